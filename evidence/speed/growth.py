"""What twice the modalities, chains or tables cost a sweep, and ten times the records an iteration."""

from __future__ import annotations

import numpy as np

from agglearn.datasets import AdsLog
from agglearn.field.problem import make_problem
from agglearn.tables.data import AggregatedData
from agglearn.train.loop import begin, iterate
from agglearn.train.settings import FitSettings, TrainingSettings
from evidence.speed.parts import watching
from evidence.speed.sizes import Sizes
from evidence.speed.targets import Result, at_most
from evidence.splits import ads_tables
from evidence.timing import THREADS, own_times, wall

TITLE = "Growth"
SECTION = "growth"
_WARM_UP = 3  # iterations before a sweep is timed, so that the weights are those of a fit


def run(config: Sizes) -> list[Result]:
    """Measure each growth by itself."""
    large, half = config.ads_modalities, config.ads_modalities // 2
    chains, rows = config.growth_chains, config.ads_rows // 4
    log = AdsLog(max_modalities=large, seed=1)
    data = ads_tables(log, rows)
    base = _Training(data, chains)
    shape = f"{len(data.tables)} tables, {chains:,} chains"

    fewer_modalities = _Training(ads_tables(AdsLog(max_modalities=half, seed=1), rows), chains)
    modalities = _sweeps(fewer_modalities, base, config)
    del fewer_modalities
    doubled = _sweeps(base, _Training(data, 2 * chains), config)
    tables = _sweeps(_Training(_half_of_tables(data), chains), base, config)
    few, many = _Training(ads_tables(log, rows // 10, data.schema), chains), base
    records = own_times([few.iteration, many.iteration], config.sweep_repeat)
    doubling = f"{half:,} to {large:,} in the largest features"
    return [
        _result("sweep, twice the modalities", modalities, 1.3, f"{shape}; {doubling}"),
        _result("sweep, twice the chains", doubled, 2.1, f"{shape}, then twice as many"),
        _result("sweep, twice the tables", tables, 2.1, f"half of them, then {shape}"),
        _result("iteration, ten times the records", records, 1.05, f"{shape}; {rows // 10:,} to {rows:,}"),
    ]


def _result(what: str, seconds: list[float], bound: float, setting: str) -> Result:
    before, after = seconds
    return at_most(SECTION, what, after / before, bound, setting=setting, before_s=before, after_s=after)


def _half_of_tables(data: AggregatedData) -> AggregatedData:
    """The data with half of its tables, rounded down, chosen at random."""
    chosen = np.random.default_rng(0).permutation(len(data.tables))[: len(data.tables) // 2]
    scopes = list(data.tables)
    return data.select(tables=[scopes[t] for t in chosen])


class _Training:
    """A fit under way, whose next iterations can be timed."""

    def __init__(self, data: AggregatedData, chains: int) -> None:
        problem = make_problem(data)
        how = TrainingSettings(growth=1)
        settings = FitSettings(chains=chains, iterations=10**6, tolerance=0.0, training=how)
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


def _sweeps(before: _Training, after: _Training, config: Sizes) -> list[float]:
    return own_times([before.sweep, after.sweep], config.sweep_repeat)
