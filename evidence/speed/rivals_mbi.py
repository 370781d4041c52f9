"""mbi, which estimates the same model by exact inference, on the largest problem it can still do.

With tables of all pairs the junction tree of the model is one clique of all features, so mbi holds a number
for each joint state, and its cost grows with their product; the field's chains know nothing of it. mbi is
run as its documentation recommends (mirror descent, its default number of iterations) on the tables
of (feature, feature, label), in an environment of its own.

mbi has no penalty: where cells are few records it fits them all the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from agglearn.datasets.sources import cache_folder
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.problem import make_problem
from agglearn.tables.data import AggregatedData
from agglearn.train.loop import Fit, fit
from evidence.speed.sizes import Sizes
from evidence.speed.targets import Result, not_measured, plain
from evidence.splits import HeldOut, Split, split
from evidence.timing import THREADS, seconds

TITLE = "mbi"
SECTION = "rivals_mbi"
_VERSION = "2.0.0"
_BYTES = 12 << 30
_WORKER = Path(__file__).with_name("mbi_worker.py")


def run(config: Sizes) -> list[Result]:
    """Give mbi more and more features of Adult until it fails; compare on the last it did."""
    what = f"mbi {_VERSION}"
    try:
        python = _environment(install=config.mbi_install)
    except (OSError, RuntimeError) as error:
        return [not_measured(SECTION, what, str(error))]
    done: tuple[_Problem, dict[str, Any]] | None = None
    failed = ""
    adult = split("adult", "quantile", 0)
    for features in config.mbi_features:
        problem = _problem(adult, features)
        outcome = _mbi(python, problem, config)
        if isinstance(outcome, str):
            failed = f"with {features} features ({problem.states:,} joint states) it {outcome}"
            break
        done = (problem, outcome)
    if done is None:
        return [not_measured(SECTION, what, failed)]
    return _compare(*done, failed, config)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Some features of Adult."""

    data: AggregatedData
    test: HeldOut

    @property
    def states(self) -> int:
        return 2 * prod(self.data.schema.cards)


def _problem(adult: Split, features: int) -> _Problem:
    """The features with the fewest modalities, so that mbi gets as far as it can."""
    whole, test = adult.whole.data, adult.test.held_out
    schema = whole.schema
    names = sorted(schema.names, key=lambda name: schema.feature(name).n_modalities)[:features]
    data = whole.select(features=names)
    rows = [schema.index[name] for name in data.schema.names]
    return _Problem(data, HeldOut(test.codes[rows], test.positive))


def _compare(problem: _Problem, mbi: dict[str, Any], failed: str, config: Sizes) -> list[Result]:
    fitted = fit(make_problem(problem.data), threads=THREADS)
    ours = seconds(lambda: fit(make_problem(problem.data), threads=THREADS), config.repeat)
    score = problem.test.nllh(fitted.field)
    features = len(problem.data.schema.names)
    setting = f"{features} features of Adult, {problem.states:,} joint states"
    ratio = plain(
        SECTION,
        f"time of mbi's {mbi['iterations']:,} iterations / a fit of ours",
        mbi["seconds"] / ours,
        "×",
        setting,
        mbi_s=mbi["seconds"],
        mbi_first_50_iterations_and_compilation_s=mbi["first_seconds"],
        mbi_misfit=mbi["misfit"],
        ours_s=ours,
        ours_misfit=_misfit(fitted),
    )
    quality = plain(
        SECTION,
        "NLLH on held-out records − mbi's",
        score - mbi["nllh"],
        "",
        setting,
        ours=score,
        mbi=mbi["nllh"],
    )
    if not failed:
        return [ratio, quality]
    return [ratio, quality, not_measured(SECTION, f"mbi {_VERSION} on more features", failed)]


def _misfit(fitted: Fit) -> float:
    """Half the differences of the field's exact tables from the data's, as mbi's worker counts them."""
    problem = fitted.problem
    exact = ExactEngine(problem.layout, problem.rows, max_states=10**7)
    expected = exact.expect(fitted.field)
    positive, negative = expected.c - problem.c, (expected.d - expected.c) - (problem.d - problem.c)
    gaps = np.abs(positive).sum() + np.abs(negative).sum()
    return float(gaps / (2 * problem.rows * problem.layout.n_tables))


def _mbi(python: Path, problem: _Problem, config: Sizes) -> dict[str, Any] | str:
    """What mbi's process found, or how it failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        _write(problem, path)
        command = [str(python), "-W", "ignore", str(_WORKER), str(path), str(config.mbi_iterations)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        ended = _await(process, config.mbi_seconds)
        output, errors = process.communicate()
    if ended:
        return ended
    if process.returncode:
        return f"ended with {(errors.strip().splitlines() or ['no message'])[-1]}"
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


def _await(process: subprocess.Popen[str], allowed: float) -> str:
    """Wait for a process to end; why it was ended, if it was."""
    began = time.perf_counter()
    while process.poll() is None:
        try:
            memory = psutil.Process(process.pid).memory_info().rss
        except psutil.NoSuchProcess:
            continue
        if time.perf_counter() - began > allowed:
            process.kill()
            return f"was not done after {allowed:g} s, compilation included"
        if memory > _BYTES:
            process.kill()
            return f"took more than {_BYTES >> 30} GiB"
        time.sleep(0.1)
    return ""


def _write(problem: _Problem, path: Path) -> None:
    """The tables as (feature, feature, label) counts, and the records to score."""
    index = problem.data.schema.index
    arrays: dict[str, Any] = {
        "cards": np.array(problem.data.schema.cards),
        "rows": problem.data.rows,
        "test": problem.test.codes,
        "positive": problem.test.positive,
    }
    for scope, table in problem.data.tables.items():
        positives = table.sums[0]
        arrays["-".join(str(index[f]) for f in scope)] = np.stack([table.counts - positives, positives], -1)
    np.savez(path, **arrays)


def _environment(install: bool) -> Path:
    """The Python of an environment with mbi, made the first time it is needed."""
    folder = cache_folder() / "rivals" / f"mbi-{_VERSION}"
    python, finished = folder / "bin" / "python", folder / ".installed"
    if finished.exists():
        return python
    if not install:
        raise RuntimeError("not installed; a full run installs it")
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", f"mbi=={_VERSION}"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"it could not be installed: {reason}")
    finished.touch()
    return python
