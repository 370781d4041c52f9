"""With all records and the same penalty (λ_θ = 16 on every weight), the fit is the logistic regression that
sees the labels of the records too, by scikit-learn's L-BFGS: here beside one another.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

import agglearn
from agglearn.field.problem import make_problem
from agglearn.judge.baselines import logistic
from evidence.known.parts import NAMES, known
from evidence.known.shares import Sizes
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS
from evidence.zoo.sets import SETS

TITLE = "The logistic, from c alone"
FULL, QUICK = Sizes(), Sizes(names=("adult",), rows=3_000)
_PENALTY = 16.0


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set."""
    return [
        Cell(
            name,
            {"data": name, "rows": config.rows, "lambda_theta": _PENALTY},
            partial(measure, name, config.rows),
        )
        for name in config.names
    ]


def measure(name: str, rows: int | None) -> Value:
    """Both models, judged on the same records."""
    has = known(name, rows)
    settings = agglearn.FitSettings(lambda_theta=_PENALTY)
    model = agglearn.fit(has.data, settings, records=has.some(1.0), threads=THREADS)
    codes = has.data.schema.encode(has.records)
    y = has.data.schema.encode_labels(has.records)[0]
    whole = (codes < np.array(has.data.schema.cards)[:, None]).all(axis=0)
    codes = np.ascontiguousarray(codes[:, whole])
    rival = logistic(codes, y[whole], make_problem(has.data).layout, _PENALTY, max_iter=1_000)
    return {"records": has.judged.nllh(model.field), "logistic": has.judged.nllh(rival)}


def section(results: Results, images: Path) -> list[str]:
    """NLLH of both."""
    rows = [
        [
            SETS[name].title,
            f"{results[name]['records']:.5f}",
            f"{results[name]['logistic']:.5f}",
            f"{results[name]['records'] - results[name]['logistic']:+.5f}",
        ]
        for name in NAMES
        if name in results
    ]
    return table(["NLLH", "c and the records' features", "records with labels", "difference"], rows)
