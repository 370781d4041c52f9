"""The largest shape of the paper: 19 features of up to 1,000 modalities, 10 million cells."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from agglearn.datasets import AdsLog
from agglearn.field.problem import make_problem
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load, save
from agglearn.train.loop import begin, iterate
from agglearn.train.settings import FitSettings, TrainingSettings
from evidence.speed.curves import learning_curve
from evidence.speed.parts import watching
from evidence.speed.sizes import Sizes
from evidence.speed.targets import Result, at_least, at_most, not_measured
from evidence.splits import HeldOut, ads_fresh, ads_tables
from evidence.timing import THREADS, in_process

TITLE = "Ads shape"
SECTION = "ads_shape"
_WHOLE_RUN = 500  # iterations of a run, to which the measured ones are projected
_SHARE_OF_BEST = 0.95  # of the NLLH that the Metropolis run ends with
_PATIENCE = 2  # times the iterations of Metropolis that Gibbs may take to get there
_EXACT = 10**6  # modalities up to which Gibbs draws exactly: all


def run(config: Sizes) -> list[Result]:
    """Measure the parts of an iteration, and Metropolis against Gibbs."""
    log = AdsLog(max_modalities=config.ads_modalities, seed=1)
    data = ads_tables(log, config.ads_rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ads.agg"
        save(data, path)
        results = _iterations(config, path)
    fresh = ads_fresh(log, data, config.fresh_rows)
    return [*results, *_race(data, fresh, config)]


def _iterations(config: Sizes, tables: Path) -> list[Result]:
    code = (
        "from evidence.speed.ads_shape import measure_iterations\n"
        f"result = measure_iterations({str(tables)!r}, {config.ads_chains}, {config.ads_iterations})"
    )
    measured = in_process(code)
    parts, sweep = measured["parts"], measured["parts"]["sweep"]
    shape = f"{measured['cells']:,} cells, {config.ads_chains:,} chains"
    hours = (measured["start_s"] + _WHOLE_RUN * measured["iteration_s"]) / 3600
    times: dict[str, Any] = {k: measured[k] for k in ("start_s", "iteration_s")}
    what = f"{_WHOLE_RUN} iterations, projected from {config.ads_iterations}"
    results = [at_most(SECTION, what, hours, 1.0, "h", setting=shape, **times)]
    shares = {part: spent for part, spent in parts.items() if part != "sweep"}
    shares["all else"] = measured["iteration_s"] - sum(parts.values())
    for part, spent in shares.items():
        what = f"time of {part} / the sweep's"
        results.append(at_most(SECTION, what, spent / sweep, 0.5, setting=shape, part_s=spent, sweep_s=sweep))
    peak = measured["peak_bytes"] / 2**30
    return [*results, at_most(SECTION, "peak memory of the process", peak, 6, "GiB", setting=shape)]


def measure_iterations(tables: str, chains: int, iterations: int) -> dict[str, Any]:
    """Seconds of the start, of an iteration and of its parts: means, after one that is not counted."""
    problem = make_problem(load(tables))
    how = TrainingSettings(growth=1)
    settings = FitSettings(chains=chains, iterations=iterations + 1, tolerance=0.0, training=how)
    began = time.perf_counter()
    engine, mu0, state = begin(problem, settings, THREADS)
    start = time.perf_counter() - began
    with watching() as parts:
        for _ in iterate(engine, mu0, problem, settings, state, THREADS):
            if state.iteration == 1:
                parts.lap()
                began = time.perf_counter()
        elapsed = time.perf_counter() - began
        seconds = parts.lap()
    return {
        "cells": problem.layout.n_cells,
        "start_s": start,
        "iteration_s": elapsed / iterations,
        "parts": {part: spent / iterations for part, spent in seconds.items()},
    }


def _race(data: AggregatedData, fresh: HeldOut, config: Sizes) -> list[Result]:
    """Time to the same NLLH with Metropolis proposals and with exact draws."""
    n = config.race_iterations
    how = TrainingSettings(growth=1)
    proposing = FitSettings(chains=config.race_chains, iterations=n, tolerance=0.0, training=how)
    exact = replace(proposing, iterations=_PATIENCE * n, training=replace(how, exact_up_to=_EXACT))
    for settings in (proposing, exact):  # compile first
        learning_curve(data, replace(settings, chains=100, iterations=1), fresh)
    metropolis = learning_curve(data, proposing, fresh)
    goal = _SHARE_OF_BEST * metropolis[-1][1]
    gibbs = learning_curve(data, exact, fresh, goal)
    what = "time to the same NLLH, exact Gibbs / Metropolis"
    setting = f"{config.race_chains:,} chains from the start, to {goal:.4f} on fresh records"
    if gibbs[-1][1] < goal:
        return [not_measured(SECTION, what, f"Gibbs had {gibbs[-1][1]:.4f} after {_PATIENCE * n} iterations")]
    quick = next(seconds for seconds, score in metropolis if score >= goal)
    slow = gibbs[-1][0]
    result = at_least(SECTION, what, slow / quick, 3, setting=setting, metropolis_s=quick, gibbs_s=slow)
    result.curves = {"Metropolis": metropolis, "exact Gibbs": gibbs}
    return [result]
