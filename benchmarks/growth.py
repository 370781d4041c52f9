"""What twice the modalities, chains or tables cost a sweep, and ten times the records an iteration."""

from __future__ import annotations

import numpy as np

from agglearn.datasets import AdsLog
from agglearn.field.problem import make_problem
from agglearn.field.settings import FitSettings
from agglearn.field.train import begin, iterate
from agglearn.tables import AggregatedData
from benchmarks.config import Config
from benchmarks.measure import THREADS, Result, at_most, own_times, wall
from benchmarks.parts import watching
from benchmarks.problems import ads_tables

SUBJECT = "growth"
_WARM_UP = 3  # iterations before a sweep is timed, so that the weights are those of a fit


def run(config: Config) -> list[Result]:
    """Measure each growth by itself."""
    large, half = config.ads_modalities, config.ads_modalities // 2
    chains, rows = config.growth_chains, config.ads_rows // 4
    log = AdsLog(max_modalities=large, seed=1)
    data = ads_tables(log, rows)
    base = _Training(data, chains)
    shape = f"{len(data.tables)} tables of up to {large:,} modalities a feature, {chains:,} chains"

    fewer_modalities = _Training(ads_tables(AdsLog(max_modalities=half, seed=1), rows), chains)
    modalities = _sweeps(fewer_modalities, base, config)
    del fewer_modalities
    doubled = _sweeps(base, _Training(data, 2 * chains), config)
    tables = _sweeps(_Training(_half_of_tables(data), chains), base, config)
    few, many = _Training(ads_tables(log, rows // 10, data.schema), chains), base
    records = own_times([few.iteration, many.iteration], config.growth_repeat)
    return [
        _result(f"sweep with twice the modalities: {half:,} to {large:,}", modalities, 1.3, shape),
        _result(f"sweep with twice the chains: {chains:,} to {2 * chains:,}", doubled, 2.1, shape),
        _result(f"sweep with twice the tables: to {len(data.tables)}", tables, 2.1, shape),
        _result(f"iteration with ten times the records: {rows // 10:,} to {rows:,}", records, 1.05, shape),
    ]


def _result(what: str, seconds: list[float], bound: float, shape: str) -> Result:
    return at_most(
        SUBJECT, what, seconds[1] / seconds[0], bound, before_s=seconds[0], after_s=seconds[1], shape=shape
    )


def _half_of_tables(data: AggregatedData) -> AggregatedData:
    """The data with half of its tables, rounded down, chosen at random."""
    chosen = np.random.default_rng(0).permutation(len(data.tables))[: len(data.tables) // 2]
    scopes = list(data.tables)
    return data.select(tables=[scopes[t] for t in chosen])


class _Training:
    """A fit under way, whose next iterations can be timed."""

    def __init__(self, data: AggregatedData, chains: int) -> None:
        problem = make_problem(data)
        settings = FitSettings(chains=chains, growth=1, iterations=10**6, tolerance=0.0)
        engine, mu0, state = begin(problem, settings, THREADS)
        self._steps = iterate(engine, mu0, problem, settings, state, THREADS)
        for _ in range(_WARM_UP):
            next(self._steps)

    def iteration(self) -> float:
        """Seconds of the next iteration."""
        return wall(lambda: next(self._steps))

    def sweep(self) -> float:
        """Seconds of the sweep of the next iteration."""
        with watching() as parts:
            next(self._steps)
            return parts.lap()["sweep"]


def _sweeps(before: _Training, after: _Training, config: Config) -> list[float]:
    return own_times([before.sweep, after.sweep], config.growth_repeat)
