"""A million records of twenty features without labels, and the tables that hold the labels: a fit to their
optimum beside scikit-learn's logistic regression of the records with their labels on the same one-hot
matrix (L-BFGS, its default tolerance), of single features and of pairs. The objective is that of both, in
nats a record: lower is better. Beside the whole fit stand the seconds until its objective was no higher than
scikit-learn's: the same precision. Reading is what turns the records into codes, the one-hot what turns the
codes into scikit-learn's matrix; neither is counted in the columns before it.
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
from agglearn.train.state import FitState
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
    path: list[tuple[np.ndarray, float]] = []

    def keep(state: FitState) -> None:
        path.append((state.weights.theta.copy(), state.weights.intercept))

    began = time.perf_counter()
    model = agglearn.fit(data, settings, records=records, threads=THREADS, on_iteration=keep)
    ours = time.perf_counter() - began
    began = time.perf_counter()
    design = one_hot(coded, layout)
    making = time.perf_counter() - began
    labels = data.schema.encode_labels(records)[0]
    rival = logistic(coded, labels, layout, _PENALTY, design=design)

    def objective(theta: np.ndarray, intercept: float) -> float:
        s = design @ theta + intercept
        return float(np.mean(np.logaddexp(0, s) - labels * s) + _PENALTY * theta @ theta / len(labels))

    steps = np.cumsum([entry.seconds for entry in model.record.history])
    return {
        "seconds": ours,
        "coding": ours - float(steps[-1]),
        "objective": objective(model.field.theta, model.field.intercept),
        "steps": [
            {"seconds": float(upto), "objective": objective(*at)}
            for upto, at in zip(steps, path, strict=True)
        ],
        "sklearn_seconds": rival.seconds,
        "sklearn_iterations": rival.n_iter,
        "one_hot": making,
        "sklearn_objective": objective(rival.theta, rival.intercept),
    }


def section(results: Results, images: Path) -> list[str]:
    """Seconds and objective of both, by tables, and ours step by step."""
    rows = [
        [
            kind,
            f"{found['seconds'] - found['coding']:.1f}",
            f"{found['objective']:.6f}",
            _reached(found),
            f"{found['coding']:.1f}",
            f"{found['sklearn_seconds']:.1f}",
            f"{found['sklearn_objective']:.6f}",
            f"{found['one_hot']:.1f}",
        ]
        for kind, found in results.items()
    ]
    head = [
        "tables",
        "seconds",
        "objective",
        "seconds to scikit-learn's objective",
        "reading",
        "scikit-learn's seconds",
        "objective",
        "one-hot",
    ]
    lines = table(head, rows)
    for kind, found in results.items():
        each = [[f"{step['seconds']:.2f}", f"{step['objective']:.6f}"] for step in found["steps"]]
        lines += ["", f"Newton steps, {kind}: seconds since the first began, and the objective after each."]
        lines += ["", *table(["seconds", "objective"], each)]
    return lines


def _reached(found: Value) -> str:
    """Seconds until the objective is no higher than scikit-learn's."""
    for step in found["steps"]:
        if step["objective"] <= found["sklearn_objective"]:
            return f"{step['seconds']:.1f}"
    return "never"
