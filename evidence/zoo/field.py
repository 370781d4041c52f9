"""Fitted by default to the tables that `aggregate` makes by default: no option, no record and no table of
other records. *ECE* is the mean distance between predicted and observed rates over tenths of the test
records, *slope* that of the label on the predicted log-odds (below 1: predictions go too far). *Seconds* are
those of one fit from tables to weights on two threads, after compilation; *aggregating* comes before. *To
quality* are those until the averaged weights, looked at every ten iterations, are as good on the test records
as is asked of the field beside the logistic; looking is not counted.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import agglearn
from agglearn.field.problem import Problem
from agglearn.train.loop import levels_of
from agglearn.train.mains import with_mains
from agglearn.train.settings import FitSettings
from agglearn.train.state import FitState
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.splits import HeldOut
from evidence.timing import THREADS
from evidence.zoo import sets
from evidence.zoo.judging import by_set, column, judged
from evidence.zoo.sets import SETS, Sizes

TITLE = "The field, from tables alone"
FULL, QUICK = sets.FULL, sets.QUICK
_WARM_UP_ROWS = 1_000
_LOOK_EVERY = 10  # iterations


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set and split."""
    return sets.fitted(config, measure)


def measure(name: str, seed: int, config: Sizes) -> Value:
    """The field of one split, and how its fit went."""
    parts = sets.split(name, seed, config)
    # So that nothing is compiled while the clock runs.
    agglearn.fit(parts.aggregate(sets.sample(parts.whole, _WARM_UP_ROWS)), threads=THREADS)
    began = time.perf_counter()
    data = parts.data
    aggregated = time.perf_counter() - began
    test = parts.test_records
    watched = Watched(parts.problem, test)
    model = agglearn.fit(data, threads=THREADS, on_iteration=watched.look)
    record = model.record
    return {
        **parts.size(),
        "field": {
            **judged(test.positive, model.field.log_odds(test.codes, THREADS)),
            "seconds": round(record.seconds - watched.looking, 3),
            "aggregating": round(aggregated, 3),
            "iterations": record.iterations,
            "chains": record.chains,
            "lambda_theta": round(record.lambda_theta, 3),
            "stopped_because": record.stopped_because,
            "course": watched.course,
        },
    }


class Watched:
    """The course of a fit: its iterations, its seconds without looking, and NLLH on some records."""

    def __init__(self, problem: Problem, records: HeldOut) -> None:
        self.course: list[tuple[int, float, float]] = []
        self.looking = 0.0
        self._levels = levels_of(with_mains(problem), FitSettings())
        self._records, self._began = records, time.perf_counter()

    def look(self, state: FitState) -> None:
        """Called after each iteration."""
        if state.iteration % _LOOK_EVERY:
            return
        began = time.perf_counter()
        mean = state.weights.mean
        reached = self._records.nllh(mean if self._levels is None else self._levels.fold_field(mean))
        spent = began - self._began - self.looking
        self.course.append((state.iteration, round(spent, 3), round(reached, 5)))
        self.looking += time.perf_counter() - began


def section(results: Results, images: Path) -> list[str]:
    """How each fit went."""
    rows = []
    for name, found in by_set(results).items():
        fits = [one["field"] for one in found]
        ended = Counter(one["stopped_because"] for one in fits)
        rows.append(
            [
                SETS[name].title,
                column(fits, "nllh", 4),
                column(fits, "auc", 4),
                column(fits, "ece", 4),
                column(fits, "slope", 3),
                column(fits, "seconds", 1),
                column(fits, "aggregating", 1),
                column(fits, "iterations", 0),
                column(fits, "lambda_theta", 1),
                ", ".join(f"{why} ({n})" if len(fits) > 1 else why for why, n in ended.items()),
            ]
        )
    header = ["", "NLLH", "AUC", "ECE", "slope", "seconds", "aggregating", "iterations", "λ_θ", "stopped"]
    return table(header, rows)
