"""Fitted by default to the tables that `aggregate` makes by default: no option, no record and no table of
other records. *ECE* is the mean distance between predicted and observed rates over tenths of the test
records, *slope* that of the label on the predicted log-odds (below 1: predictions go too far). *Seconds* are
those of one fit from tables to weights on two threads, after compilation; *aggregating* comes before.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from pathlib import Path

import agglearn
from agglearn.train.settings import FitSettings
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS
from evidence.zoo import sets
from evidence.zoo.judging import by_set, column, judged
from evidence.zoo.sets import SETS, Sizes

TITLE = "The field, from tables alone"
FULL, QUICK = sets.FULL, sets.QUICK
_WARM_UP_ROWS = 1_000


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set and split."""
    return [
        Cell(
            stem,
            {**sets.settings(name, seed, config), "fit": FitSettings().to_json()},
            partial(measure, name, seed, config),
        )
        for stem, name, seed in sets.runs(config)
    ]


def measure(name: str, seed: int, config: Sizes) -> Value:
    """The field of one split, and how its fit went."""
    parts = sets.split(name, seed, config)
    # So that nothing is compiled while the clock runs.
    agglearn.fit(parts.aggregate(sets.sample(parts.whole, _WARM_UP_ROWS)), threads=THREADS)
    began = time.perf_counter()
    data = parts.data
    aggregated = time.perf_counter() - began
    model = agglearn.fit(data, threads=THREADS)
    record, test = model.record, parts.test_records
    return {
        **parts.size(),
        "field": {
            **judged(test.positive, model.field.log_odds(test.codes, THREADS)),
            "seconds": round(record.seconds, 3),
            "aggregating": round(aggregated, 3),
            "iterations": record.iterations,
            "chains": record.chains,
            "lambda_theta": round(record.lambda_theta, 3),
            "stopped_because": record.stopped_because,
        },
    }


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
