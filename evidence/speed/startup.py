"""Processes that start: the help, small commands, a fit of next to nothing with kernels compiled and not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import agglearn
from agglearn.datasets import toy
from agglearn.tables.format import save
from evidence.speed.sizes import Sizes
from evidence.speed.targets import Result, at_most, plain
from evidence.timing import seconds, wall

TITLE = "Start-up"
SECTION = "startup"
_COMMAND = str(Path(sys.executable).parent / "agglearn")


def run(config: Sizes) -> list[Result]:
    """Measure wall time of whole processes."""
    with tempfile.TemporaryDirectory() as folder:
        tables, model = Path(folder) / "toy.agg", Path(folder) / "toy.model"
        save(agglearn.aggregate(toy(), "label"), tables)
        cache = {"NUMBA_CACHE_DIR": f"{folder}/kernels"} if config.cold_start else {}

        def fit() -> None:
            _run(["fit", str(tables), "-o", str(model), "--json"], cache)

        small = {
            "check": ["check", str(tables)],
            "merge": ["merge", str(tables), "-o", f"{folder}/merged.agg"],
            "sql": ["sql", str(tables), "--table", "t"],
        }
        results = [at_most(SECTION, "agglearn --help", seconds(lambda: _run(["--help"])), 0.5, "s")]
        for verb, command in small.items():
            taken = seconds(lambda command=command: _run(command), config.repeat)  # type: ignore[misc]
            results.append(at_most(SECTION, f"agglearn {verb} of tiny tables", taken, 0.8, "s"))
        if config.cold_start:
            what = "first fit of a tiny problem, compiling all kernels"
            results.append(plain(SECTION, what, wall(fit), "s"))
        what = "second fit of a tiny problem, kernels from disk"
        return [*results, at_most(SECTION, what, seconds(fit, config.repeat), 3, "s")]


def _run(arguments: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        [_COMMAND, *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
