"""A million records of twenty features without labels, and the tables that hold the labels: a fit to their
optimum beside scikit-learn's logistic regression of the records with their labels on the same one-hot
matrix (L-BFGS, its default tolerance, making the matrix not counted), of single features and of pairs. The
objective is that of both, in nats a record: lower is better.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import agglearn
from agglearn.datasets import AdsLog
from agglearn.field.problem import make_problem
from agglearn.judge.baselines import logistic, one_hot
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS

TITLE = "A million records"
_PENALTY = 16.0


@dataclass(frozen=True)
class Sizes:
    """Records, features, and which tables."""

    rows: int = 1_000_000
    features: int = 20
    tables: tuple[str, ...] = ("singles", "pairs")


FULL, QUICK = Sizes(), Sizes(rows=20_000, features=8)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each kind of tables."""
    return [
        Cell(
            kind,
            {"rows": config.rows, "features": config.features, "tables": kind},
            partial(measure, kind, config),
            again=True,
        )
        for kind in config.tables
    ]


def measure(kind: str, config: Sizes) -> Value:
    """Seconds and objective of both."""
    log = AdsLog(config.features, 30, click_rate=0.2, seed=1)
    codes, y = log.sample(config.rows, 7)
    records = log.to_table(codes, y, strings=True)
    data = agglearn.aggregate(records, "click", tables=kind, categorical=["*"])
    settings = agglearn.FitSettings(lambda_theta=_PENALTY)
    few = records.slice(0, 1_000)
    small = agglearn.aggregate(few, "click", tables=kind, schema=data.schema)
    agglearn.fit(small, settings, records=few, threads=THREADS)  # so that nothing is compiled below
    coded = data.schema.encode(records)
    layout = make_problem(data).layout
    began = time.perf_counter()
    model = agglearn.fit(data, settings, records=records, threads=THREADS)
    ours = time.perf_counter() - began
    design = one_hot(coded, layout)
    labels = data.schema.encode_labels(records)[0]
    rival = logistic(coded, labels, layout, _PENALTY, design=design)

    def objective(theta: np.ndarray, intercept: float) -> float:
        s = design @ theta + intercept
        return float(np.mean(np.logaddexp(0, s) - labels * s) + _PENALTY * theta @ theta / len(labels))

    return {
        "seconds": ours,
        "coding": ours - sum(entry.seconds for entry in model.record.history),
        "objective": objective(model.field.theta, model.field.intercept),
        "sklearn_seconds": rival.seconds,
        "sklearn_objective": objective(rival.theta, rival.intercept),
    }


def section(results: Results, images: Path) -> list[str]:
    """Seconds and objective of both, by tables."""
    rows = [
        [
            kind,
            f"{results[kind]['seconds']:.1f}",
            f"{results[kind]['objective']:.6f}",
            f"{results[kind]['sklearn_seconds']:.1f}",
            f"{results[kind]['sklearn_objective']:.6f}",
        ]
        for kind in results
    ]
    return table(
        ["tables", "seconds, with reading", "objective", "scikit-learn's seconds", "objective"], rows
    )
