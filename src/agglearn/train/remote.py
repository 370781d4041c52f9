"""Checkpoints on any file system that Spark knows.

They are written and read in a folder of this machine, as all checkpoints are (:mod:`.checkpoint`), and
copied: there as soon as one is written, back when a run goes on.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from agglearn.errors import StoreError
from agglearn.field.engines.protocol import Engine
from agglearn.field.problem import Problem
from agglearn.spark.session import open_session
from agglearn.spark.storage import Storage, is_uri
from agglearn.train.checkpoint import BLOCKS, FOLD, OURS, Checkpoints
from agglearn.train.settings import FitSettings
from agglearn.train.state import FitState


def checkpoints_in(folder: str, every: float = 30.0) -> Checkpoints:
    """Checkpoints in a folder of this machine, or at an address such as ``hdfs://…``."""
    if is_uri(folder):
        return RemoteCheckpoints(open_session(), folder, every)
    return Checkpoints(Path(folder), every)


class RemoteCheckpoints(Checkpoints):
    """A folder of checkpoints of one run, elsewhere.

    Parameters
    ----------
    session
        The Spark session that reaches it.
    uri
        Where it is.
    every
        Seconds between two checkpoints.
    """

    def __init__(self, session: Any, uri: str, every: float = 30.0) -> None:
        self._remote = Storage(session, uri)
        self._here = tempfile.TemporaryDirectory(prefix="agglearn-")
        super().__init__(Path(self._here.name).resolve(), every)
        foreign = [name for name in self._remote.names() if not name.startswith(OURS)]
        if foreign:
            raise StoreError(f"{uri}/{foreign[0]} is no checkpoint: name a folder that holds nothing else")
        for name in self._names():
            self._remote.fetch(name, self.folder)

    def _names(self) -> list[str]:
        """What is there that is copied as it is; chains are kept there by themselves, folds on their own."""
        return [name for name in self._remote.names() if not name.startswith((BLOCKS, FOLD, "."))]

    def resume(self, problem: Problem, settings: FitSettings, engine: Engine, state: FitState) -> FitState:
        """The newest state there (with the engine put there too), or the one given where none is."""
        self._remote.make()
        try:
            found = super().resume(problem, settings, engine, state)
        except StoreError as error:
            raise self._elsewhere(error) from None
        self._copy()
        return found

    def keep(self, engine: Engine, state: FitState) -> None:
        """Write a checkpoint if the last one is old enough, or if this is the end."""
        before = self.found()
        super().keep(engine, state)
        if self.found() != before:
            self._copy()

    def _copy(self) -> None:
        """Make what is there what is here: new ones first."""
        here = {path.name: path for path in self.folder.iterdir() if not path.name.startswith(".")}
        there = set(self._names())
        for name in sorted(here.keys() - there):
            self._remote.put(here[name])
        for name in sorted(there - here.keys()):
            self._remote.remove(name)

    @property
    def storage(self) -> str:
        """Where an engine may keep what does not fit into one process."""
        return f"{self._remote.uri}/{BLOCKS}"

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on from."""
        return bool(self._remote.names())

    def of_fold(self, number: int) -> Checkpoints:
        """Where the first fit of a fold is kept, until the penalties are chosen."""
        return RemoteCheckpoints(self._remote.session, f"{self._remote.uri}/{FOLD}{number}", self.every)

    def read_choice(self, tables: list[str], settings: FitSettings) -> dict[str, Any] | None:
        """What was chosen, if it was; a choice on other tables or with other settings is refused."""
        try:
            return super().read_choice(tables, settings)
        except StoreError as error:
            raise self._elsewhere(error) from None

    def keep_choice(self, tables: list[str], settings: FitSettings, choice: dict[str, Any]) -> None:
        """Write what was chosen, and drop the fits it began with."""
        super().keep_choice(tables, settings, choice)
        self._copy()
        for name in self._remote.names():
            if name.startswith(FOLD):
                self._remote.remove(name)

    def _elsewhere(self, error: StoreError) -> StoreError:
        """The same error of the folder that the user knows."""
        return type(error)(str(error).replace(str(self.folder), self._remote.uri))
