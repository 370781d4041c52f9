"""The logistic regression with exactly the field's cells, fitted to the training records by at most 200
iterations of L-BFGS. Its penalty, a power of 2, is the best on a fifth of the training records, fitted to the
others; with it, it is fitted to all of them. Where a matrix of all records over all tables would be too
large, it is chosen, or fitted, on a random part of them: *chosen on* and *fitted to* say so. *Seconds* are
those of the last fit alone, with neither choosing nor making the matrix.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from agglearn.judge.baselines import LogisticModel, logistic, one_hot
from agglearn.judge.contenders import climb
from agglearn.runtime import memory
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS
from evidence.zoo import sets
from evidence.zoo.judging import by_set, column, judged
from evidence.zoo.sets import SETS, Sizes, Split

TITLE = "The logistic, from records"
FULL, QUICK = sets.FULL, sets.QUICK
_GRID = tuple(
    2.0**k for k in range(-10, 15)
)  # Nursery, where labels follow a rule, asks for hardly any penalty
_FIRST = 16.0  # where the search of the penalty begins
_CHOICE_ENTRIES = 60_000_000  # records times tables to choose on
_FIT_ENTRIES = 200_000_000  # and to fit to: about 4 GB
_ENTRY_BYTES = 32  # of an entry, with a copy


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set and split."""
    return [
        Cell(stem, sets.settings(name, seed, config), partial(measure, name, seed, config))
        for stem, name, seed in sets.runs(config)
    ]


def measure(name: str, seed: int, config: Sizes) -> Value:
    """The logistic of one split, its penalty chosen on validation records."""
    parts = sets.split(name, seed, config)
    rng = np.random.default_rng(seed)
    layout, test = parts.problem.layout, parts.test_records
    most = min(_FIT_ENTRIES, memory.limit() // _ENTRY_BYTES) // layout.n_tables
    choosing = _some(np.flatnonzero(~parts.is_valid), _CHOICE_ENTRIES // layout.n_tables, rng)
    l2 = _penalty(parts, choosing)
    fitting = _some(np.arange(len(parts.y)), most, rng)
    codes = np.ascontiguousarray(parts.codes[:, fitting])
    model = logistic(codes, parts.y[fitting], layout, l2)
    return {
        **parts.size(),
        "logistic": {
            **judged(test.positive, model.log_odds(test.codes, THREADS)),
            "seconds": round(model.seconds, 3),
            "iterations": model.n_iter,
            "lambda_theta": l2,
            "chosen_on": len(choosing),
            "fitted_to": len(fitting),
        },
    }


def _some(rows: npt.NDArray[np.int64], most: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """At most so many of some records, at random, in their order."""
    return rows if len(rows) <= most else np.sort(rng.permutation(rows)[:most])


def _penalty(parts: Split, rows: npt.NDArray[np.int64]) -> float:
    """The penalty of greatest NLLH on the validation records, each fit begun at the last one."""
    layout, y = parts.problem.layout, parts.y[rows]
    codes = np.ascontiguousarray(parts.codes[:, rows])
    design = one_hot(codes, layout)
    last: list[LogisticModel] = []

    def score(l2: float) -> float:
        last[:] = [logistic(codes, y, layout, l2, warm=last[0] if last else None, design=design)]
        return parts.valid_records.nllh(last[0])

    return climb(_GRID, score, _FIRST)


def section(results: Results, images: Path) -> list[str]:
    """How each fit went."""
    rows = []
    for name, found in by_set(results).items():
        fits = [one["logistic"] for one in found]
        penalties = sorted({one["lambda_theta"] for one in fits})
        rows.append(
            [
                SETS[name].title,
                column(fits, "nllh", 4),
                column(fits, "auc", 4),
                column(fits, "ece", 4),
                column(fits, "slope", 3),
                column(fits, "seconds", 1),
                column(fits, "iterations", 0),
                ", ".join(f"{l2:g}" for l2 in penalties),
                *(_share(found, key) for key in ("chosen_on", "fitted_to")),
            ]
        )
    header = ["", "NLLH", "AUC", "ECE", "slope", "seconds", "iterations", "λ", "chosen on", "fitted to"]
    return table(header, rows)


def _share(found: list[Value], key: str) -> str:
    """How many records, of all that there were."""
    there = found[0]["train_rows"]
    used = found[0]["logistic"][key]
    whole = there if key == "fitted_to" else round(0.8 * there)
    return f"{used:,}" if used > 0.97 * whole else f"{used:,} of {whole:,}"
