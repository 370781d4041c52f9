"""The same number of records with 1, 2, 4 and 8 times the values of every long feature: a dense field would
have 1, 4, 16 and 64 times the cells. To hold: the cost follows the cells that are seen. *An iteration*
moves as many chains at each size. In the first row all tables are dense, and nothing has to be looked up: a
cell costs less there than in the other rows, where tables of two long features list their cells.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import agglearn
from agglearn.field.problem import make_problem
from agglearn.train.loop import begin, iterate
from agglearn.train.mains import with_mains
from agglearn.train.settings import FitSettings, TrainingSettings
from evidence.cardinality.records import LongLog
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS, machine

TITLE = "Growth"
_TIMES = (1, 2, 4, 8)
_SMALL = (3, 4, 6, 8)
_LONG_FEATURES = 6


@dataclass(frozen=True)
class Sizes:
    """Records, chains, values of a long feature at first, and iterations that are timed."""

    rows: int
    chains: int
    values: int
    iterations: int


FULL, QUICK = Sizes(200_000, 50_000, 500, 9), Sizes(5_000, 2_000, 100, 3)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each size."""
    return [
        Cell(
            f"{times}-times-the-values",
            {"times": times, "rows": config.rows, "chains": config.chains, "values": config.values},
            partial(measure, times, config),
            again=True,
        )
        for times in _TIMES
    ]


def measure(times: int, config: Sizes) -> Value:
    """Seconds of aggregating, of the start and of an iteration, and the size of what they work on."""
    log = LongLog((*([times * config.values] * _LONG_FEATURES), *_SMALL), power=1.0)
    records = pa.concat_tables(log.tables(config.rows, 1))
    options: dict[str, Any] = {"categorical": ["*"], "min_modality_count": 1}
    agglearn.aggregate(records.slice(0, 1000), "click", **options)
    began = time.perf_counter()
    data = agglearn.aggregate(records, "click", **options)
    aggregated = time.perf_counter() - began
    problem = with_mains(make_problem(data))
    settings = FitSettings(
        chains=config.chains,
        iterations=config.iterations + 1,
        tolerance=0.0,
        training=TrainingSettings(growth=1),
    )
    began = time.perf_counter()
    engine, mu0, state = begin(problem, settings, THREADS)
    started = time.perf_counter() - began
    for _ in iterate(engine, mu0, problem, settings, state, THREADS):
        pass
    layout = problem.layout
    combinations = 0
    for scope in layout.scopes:
        product = 1
        for f in scope:
            product *= layout.cards[f]
        combinations += product
    return {
        "machine": machine(),
        "cells": layout.n_cells,
        "combinations": combinations,
        "aggregate": aggregated,
        "start": started,
        "iteration": median(entry.seconds for entry in state.history[1:]),
    }


def section(results: Results, images: Path) -> list[str]:
    """A row for each size."""
    rows = [
        [
            name.replace("-", " "),
            f"{found['combinations']:,}",
            f"{found['cells']:,}",
            f"{found['aggregate']:.2f}",
            f"{found['start']:.2f}",
            f"{found['iteration']:.3f}",
        ]
        for name, found in results.items()
    ]
    header = ["", "combinations", "cells", "aggregating, s", "start, s", "an iteration, s"]
    return table(header, rows)
