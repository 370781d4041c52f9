"""Flights from New York with the tail number and the flight number as categories: about 4,000 values each,
all pairs of 13 features, everything by default. Beside it the logistic regression on the records, with
exactly the same cells and a penalty chosen on a fifth of the training records. To hold: no slower, and at
most 0.003 below it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import agglearn
from agglearn.datasets import load_flights
from agglearn.field.problem import make_problem
from agglearn.judge.baselines import LogisticModel, logistic, one_hot
from agglearn.judge.contenders import climb
from agglearn.records.split import assign
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.splits import HeldOut
from evidence.timing import THREADS, machine

TITLE = "Tail numbers and flight numbers"
_CODES = ["flight", "tailnum"]
_PENALTIES = [2.0**k for k in range(11)]
_WARM_UP_ROWS = 2_000


@dataclass(frozen=True)
class Sizes:
    """Splits, and the most records (None: all)."""

    seeds: tuple[int, ...]
    rows: int | None = None


FULL, QUICK = Sizes((0, 1, 2)), Sizes((0,), 6_000)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each split."""
    return [
        Cell(f"seed{seed}", {"seed": seed, "rows": config.rows}, partial(measure, seed, config.rows))
        for seed in config.seeds
    ]


def measure(seed: int, rows: int | None) -> Value:
    """The field and the logistic of one split."""
    records = load_flights()
    if rows is not None:
        records = records.take(np.random.default_rng(0).permutation(records.num_rows)[:rows])
    is_test = assign(0, records.num_rows, seed, {"test": 0.2}) == 1
    train, test = records.filter(pa.array(~is_test)), records.filter(pa.array(is_test))

    def tables(part: pa.Table) -> agglearn.AggregatedData:
        return agglearn.aggregate(part, "late", positive="yes", categorical=_CODES)

    agglearn.fit(tables(train.slice(0, _WARM_UP_ROWS)), threads=THREADS)  # compiled before the clock runs
    began = time.perf_counter()
    data = tables(train)
    aggregated = time.perf_counter() - began
    model = agglearn.fit(data, threads=THREADS)
    heldout = HeldOut(data.schema.encode(test), data.schema.encode_labels(test)[0] == 1)
    layout = make_problem(data).layout
    rival = _logistic(data, train, seed)
    return {
        "machine": machine(),
        "records": train.num_rows,
        "values": {name: data.schema.feature(name).n_modalities for name in _CODES},
        "tables": layout.n_tables,
        "cells": layout.n_cells,
        "combinations": int(sum(np.prod([layout.cards[f] for f in scope]) for scope in layout.scopes)),
        "aggregating": aggregated,
        "seconds": model.record.seconds,
        "iterations": model.record.iterations,
        "nllh": heldout.nllh(model.field),
        "logistic_seconds": rival.seconds,
        "logistic_nllh": heldout.nllh(rival),
    }


def _logistic(data: agglearn.AggregatedData, train: pa.Table, seed: int) -> LogisticModel:
    layout = make_problem(data).layout
    codes, y = data.schema.encode(train), data.schema.encode_labels(train)[0]
    design = one_hot(codes, layout)
    is_valid = assign(0, len(y), seed + 1_000, {"valid": 0.2}) == 1
    valid = HeldOut(np.ascontiguousarray(codes[:, is_valid]), y[is_valid] == 1)
    some, labels, rows = np.ascontiguousarray(codes[:, ~is_valid]), y[~is_valid], design[~is_valid]

    def score(l2: float) -> float:
        return valid.nllh(logistic(some, labels, layout, l2, design=rows))

    return logistic(codes, y, layout, climb(_PENALTIES, score, 16.0), design=design)


def section(results: Results, images: Path) -> list[str]:
    """A row for each split."""
    rows = [
        [
            name,
            f"{found['records']:,}",
            f"{found['cells']:,} of {found['combinations']:,}",
            f"{found['nllh']:.4f}",
            f"{found['logistic_nllh']:.4f}",
            f"{found['aggregating']:.1f}",
            f"{found['seconds']:.1f}",
            f"{found['logistic_seconds']:.1f}",
        ]
        for name, found in results.items()
    ]
    header = ["", "records", "cells", "NLLH", "logistic's", "aggregating, s", "fit, s", "logistic, s"]
    return table(header, rows)
