"""States of a training run on disk, so that a run that was killed goes on where it was.

A checkpoint is a folder ``iteration-000120`` inside the folder given, written whole or not at all. The
two newest are kept: a kill at any moment leaves at least the one before. Where penalties are chosen first
(:mod:`.select.choose`), ``fold-1``, ``fold-2`` … hold checkpoints of the fits that this begins with, and give
way to ``choice`` once it is made. Chains that are spread over machines are kept by these, in ``blocks``.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agglearn.errors import InputError, StoreError
from agglearn.field.engines.protocol import Engine
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem
from agglearn.runtime.files import (
    DAMAGED,
    new_folder,
    read_arrays,
    read_manifest,
    tidy,
    write_arrays,
    write_manifest,
)
from agglearn.runtime.options import check_bounds
from agglearn.runtime.speech import option
from agglearn.train.settings import FitSettings
from agglearn.train.state import FitState, Iterates, Iteration

FORMAT = "agglearn.checkpoint"
VERSION = 6
_NAME, FOLD, _CHOICE, BLOCKS = "iteration-", "fold-", "choice", "blocks"
OURS = (_NAME, FOLD, _CHOICE, BLOCKS, ".")
"""How the names of what is in such a folder begin."""

_KEPT = 2  # the newest may be damaged by a dying disk: the one before it is there


@dataclass
class Checkpoints:
    """A folder of checkpoints of one run.

    Attributes
    ----------
    folder
        Where they are.
    every
        Seconds between two of them.
    """

    folder: Path
    every: float = 30.0

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)
        if not self.every >= 0:
            raise InputError(f"{option('checkpoint_every')} {self.every} must be at least 0")
        check_bounds(checkpoint_every=self.every)
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreError(f"{self.folder} is a file: checkpoints need a folder")
        foreign = [p for p in self.folder.glob("*") if not p.name.startswith(OURS)]
        if foreign:
            raise StoreError(f"{foreign[0]} is no checkpoint: name a folder that holds nothing else")
        self._last = time.monotonic()

    def resume(self, problem: Problem, settings: FitSettings, engine: Engine, state: FitState) -> FitState:
        """The newest state on disk (with the engine put there too), or the one given where none is."""
        self._identity = {"tables": problem.identity, "settings": settings.to_json()}
        self._prepare()
        damaged: dict[Path, Exception] = {}
        for path in self.found():
            try:
                manifest = read_manifest(path, FORMAT, VERSION)
                _refuse_other_run(path, manifest["identity"], self._identity)
                resumed = _read(path, manifest, problem.layout, engine)
            except _OtherRunError:
                raise
            except DAMAGED as error:
                damaged[path] = error  # by a dying disk or machine: the one before it will do
            else:
                for unreadable in damaged:
                    shutil.rmtree(unreadable, ignore_errors=True)
                return resumed
        if damaged:
            why = next(iter(damaged.values()))
            raise StoreError(f"no checkpoint in {self.folder} can be read ({why}): begin in another folder")
        return state

    def _prepare(self) -> None:
        """Make the folder before there is anything to lose; clear what a killed run left unfinished."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot write there ({error.strerror})") from None
        tidy(self.folder)

    def keep(self, engine: Engine, state: FitState) -> None:
        """Write a checkpoint if the last one is old enough, or if this is the end."""
        if time.monotonic() - self._last < self.every and state.stopped_because is None:
            return
        _write(self.folder / f"{_NAME}{state.iteration:06d}", self._identity, engine, state)
        for old in self.found()[_KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
        self._last = time.monotonic()

    def found(self) -> list[Path]:
        """Checkpoints, newest first."""
        return sorted(self.folder.glob(f"{_NAME}*"), reverse=True)

    @property
    def storage(self) -> str:
        """Where an engine may keep what does not fit into one process."""
        return str((self.folder / BLOCKS).absolute())

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on from."""
        return self.folder.is_dir() and any(self.folder.iterdir())

    def of_fold(self, number: int) -> Checkpoints:
        """Where the first fit of a fold is kept, until the penalties are chosen."""
        return Checkpoints(self.folder / f"{FOLD}{number}", self.every)

    def read_choice(self, tables: list[str], settings: FitSettings) -> dict[str, Any] | None:
        """What was chosen, if it was; a choice on other tables or with other settings is refused."""
        path = self.folder / _CHOICE
        if not path.exists():
            return None
        document = read_manifest(path, FORMAT, VERSION)
        _refuse_other_run(path, document["identity"], {"tables": tables, "settings": settings.to_json()})
        choice: dict[str, Any] = document["choice"]
        return choice

    def keep_choice(self, tables: list[str], settings: FitSettings, choice: dict[str, Any]) -> None:
        """Write what was chosen, and drop the fits it began with."""
        identity = {"tables": tables, "settings": settings.to_json()}
        with new_folder(self.folder / _CHOICE, FORMAT) as folder:
            document = {"format": FORMAT, "version": VERSION, "identity": identity, "choice": choice}
            write_manifest(folder, document)
        for fold in self.folder.glob(f"{FOLD}*"):
            shutil.rmtree(fold, ignore_errors=True)


class _OtherRunError(StoreError):
    """A checkpoint of another run."""


def _refuse_other_run(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    if found["tables"] != wanted["tables"]:
        raise _OtherRunError(f"{path} is of a run on other tables: give those, or another folder")
    settings = [{**document["settings"], **document["settings"]["training"]} for document in (found, wanted)]
    for name, value in settings[1].items():
        was = settings[0].get(name)
        if was != value and name != "training":
            raise _OtherRunError(
                f"{path} is of a run with {option(name)} {was}, not {value}: give the same settings, or "
                "another folder"
            )


def _write(target: Path, identity: dict[str, Any], engine: Engine, state: FitState) -> None:
    arrays = {k: v for k, v in vars(state.weights).items() if isinstance(v, np.ndarray)}
    seen = {"theta": state.theta_seen, "penalties": state.penalties}
    with new_folder(target, FORMAT) as folder:
        write_manifest(
            folder,
            {
                "format": FORMAT,
                "version": VERSION,
                "identity": identity,
                "weights": write_arrays(folder, "weights", arrays),
                "engine": write_arrays(folder, "engine", engine.get_state()),
                "seen": write_arrays(folder, "seen", seen),
                # A float's hexadecimal form is exact, and JSON has no infinity.
                "scalars": {
                    name: float(value).hex()
                    for name, value in {
                        "intercept": state.weights.intercept,
                        "intercept_mean": state.weights.intercept_mean,
                        "intercept_law": state.weights.intercept_law,
                        "push": state.weights.push,
                        "intercept_seen": state.intercept_seen,
                        "step_scale": state.step_scale,
                        "overlap": state.overlap,
                        "inertia": state.inertia,
                        "lambda_theta": state.lambda_theta,
                        "best_misfit": state.best_misfit,
                    }.items()
                },
                "apart": state.weights.apart,
                "iteration": state.iteration,
                "ahead": state.ahead,
                "bad_iterations": state.bad_iterations,
                "stopped_because": state.stopped_because,
                "history": [entry.to_json() for entry in state.history],
            },
        )


def _read(path: Path, manifest: dict[str, Any], layout: Layout, engine: Engine) -> FitState:
    arrays = read_arrays(path, manifest["weights"])
    engine_state = read_arrays(path, manifest["engine"])
    seen = read_arrays(path, manifest["seen"])
    scalars = {name: float.fromhex(text) for name, text in manifest["scalars"].items()}
    engine.set_state(engine_state)
    return FitState(
        weights=Iterates(
            layout,
            **arrays,
            intercept=scalars["intercept"],
            intercept_mean=scalars["intercept_mean"],
            intercept_law=scalars["intercept_law"],
            push=scalars["push"],
            apart=manifest["apart"],
        ),
        lambda_theta=scalars["lambda_theta"],
        penalties=seen["penalties"],
        iteration=manifest["iteration"],
        ahead=manifest["ahead"],
        step_scale=scalars["step_scale"],
        overlap=scalars["overlap"],
        inertia=scalars["inertia"],
        best_misfit=scalars["best_misfit"],
        bad_iterations=manifest["bad_iterations"],
        theta_seen=seen["theta"],
        intercept_seen=scalars["intercept_seen"],
        stopped_because=manifest["stopped_because"],
        history=[Iteration.from_json(entry) for entry in manifest["history"]],
    )
