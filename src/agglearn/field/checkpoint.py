"""States of a training run on disk, so that a run that was killed goes on where it was.

A checkpoint is a folder ``iteration-000120`` inside the folder given, written whole or not at all. The
two newest are kept: a kill at any moment leaves at least the one before.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import AgglearnError, StoreError
from agglearn.field.engine import Engine
from agglearn.field.problem import Problem
from agglearn.field.settings import FitSettings
from agglearn.field.step import Weights
from agglearn.store import new_folder, read_arrays, read_manifest, write_arrays, write_manifest

FORMAT = "agglearn.checkpoint"
VERSION = 1
_KEPT = 2

Floats = npt.NDArray[np.float64]


@dataclass
class FitState:
    """All that training knows after some iterations."""

    weights: Weights
    iteration: int = 0
    step_scale: float = 1.0
    best_misfit: float = np.inf
    bad_iterations: int = 0
    theta_seen: Floats = field(default_factory=lambda: np.zeros(0))
    intercept_seen: float = 0.0
    stopped_because: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list)


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
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreError(f"{self.folder} is a file: checkpoints need a folder")
        self._last = time.monotonic()

    def resume(self, problem: Problem, settings: FitSettings, engine: Engine, state: FitState) -> FitState:
        """The newest state on disk (with the engine put there too), or the one given where none is."""
        self._identity = {"tables": fingerprint(problem), "settings": asdict(settings)}
        for path in self._found():
            try:
                manifest = read_manifest(path, FORMAT, VERSION)
                if manifest["identity"] != self._identity:
                    raise _OtherRunError(
                        f"{path} is of another run (other tables or settings): give the same, or "
                        "another --checkpoint folder"
                    )
                return _read(path, manifest, engine)
            except _OtherRunError:
                raise
            except AgglearnError:
                continue  # damaged by a dying disk or machine: the one before it will do
        return state

    def keep(self, engine: Engine, state: FitState) -> None:
        """Write a checkpoint if the last one is old enough, or if this is the end."""
        if time.monotonic() - self._last < self.every and state.stopped_because is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / f"iteration-{state.iteration:06d}", self._identity, engine, state)
        for old in self._found()[_KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
        self._last = time.monotonic()

    def _found(self) -> list[Path]:
        """Checkpoints, newest first."""
        return sorted(self.folder.glob("iteration-*"), reverse=True)


class _OtherRunError(StoreError):
    """A checkpoint of another run."""


def fingerprint(problem: Problem) -> str:
    """A checksum of the tables a field is fitted to."""
    digest = hashlib.sha256(repr((problem.layout, problem.rows, problem.positives)).encode())
    for array in (problem.d, problem.c):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _write(target: Path, identity: dict[str, Any], engine: Engine, state: FitState) -> None:
    weights = asdict(state.weights)
    arrays = {k: v for k, v in weights.items() if isinstance(v, np.ndarray)}
    with new_folder(target, FORMAT) as folder:
        write_manifest(
            folder,
            {
                "format": FORMAT,
                "version": VERSION,
                "identity": identity,
                "weights": write_arrays(folder, "weights", arrays),
                "engine": write_arrays(folder, "engine", engine.get_state()),
                "seen": write_arrays(folder, "seen", {"theta": state.theta_seen}),
                # A float's hexadecimal form is exact, and JSON has no infinity.
                "scalars": {
                    name: float(value).hex()
                    for name, value in {
                        "intercept": state.weights.intercept,
                        "intercept_mean": state.weights.intercept_mean,
                        "intercept_seen": state.intercept_seen,
                        "step_scale": state.step_scale,
                        "best_misfit": state.best_misfit,
                    }.items()
                },
                "iteration": state.iteration,
                "bad_iterations": state.bad_iterations,
                "stopped_because": state.stopped_because,
                "history": state.history,
            },
        )


def _read(path: Path, manifest: dict[str, Any], engine: Engine) -> FitState:
    arrays = read_arrays(path, manifest["weights"])
    engine_state = read_arrays(path, manifest["engine"])
    seen = read_arrays(path, manifest["seen"])["theta"]
    scalars = {name: float.fromhex(text) for name, text in manifest["scalars"].items()}
    engine.set_state(engine_state)
    return FitState(
        weights=Weights(**arrays, intercept=scalars["intercept"], intercept_mean=scalars["intercept_mean"]),
        iteration=manifest["iteration"],
        step_scale=scalars["step_scale"],
        best_misfit=scalars["best_misfit"],
        bad_iterations=manifest["bad_iterations"],
        theta_seen=seen,
        intercept_seen=scalars["intercept_seen"],
        stopped_because=manifest["stopped_because"],
        history=manifest["history"],
    )
