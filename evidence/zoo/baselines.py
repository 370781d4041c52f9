"""Naive Bayes, tree-augmented Naive Bayes (TAN), the best pair of features and a constant, from the same
tables. The penalty of each (for the tree: its pseudo-records) and the pair are the best on a fifth of the
training records; each is then fitted to all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from agglearn.field.problem import Problem, make_problem
from agglearn.judge.baselines import LogOddsModel, naive_bayes, pair_models
from agglearn.judge.contenders import DEFAULT_LAMBDAS, climb
from agglearn.judge.tree_bayes import tree_augmented_nb
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS
from evidence.zoo import sets
from evidence.zoo.judging import by_set, column, judged
from evidence.zoo.sets import SETS, Sizes, Split

TITLE = "Simpler models, from the same tables"
FULL, QUICK = sets.FULL, sets.QUICK
MODELS = {
    "naive_bayes": "Naive Bayes",
    "tan": "TAN",
    "best_pair": "best pair",
    "constant": "constant",
}
_FIRST = 16.0
_Fit = Callable[[Problem, float], Sequence[LogOddsModel]]
_FITS: dict[str, _Fit] = {
    "naive_bayes": lambda problem, l2: [naive_bayes(problem, l2)],
    "tan": lambda problem, l2: [tree_augmented_nb(problem, l2)],
    "best_pair": pair_models,
}


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set and split."""
    return [
        Cell(stem, sets.settings(name, seed, config), partial(measure, name, seed, config))
        for stem, name, seed in sets.runs(config)
    ]


def measure(name: str, seed: int, config: Sizes) -> Value:
    """The simpler models of one split, their penalties chosen on validation records."""
    parts = sets.split(name, seed, config)
    test = parts.test_records
    fitted_on = parts.whole.filter(pa.array(~parts.is_valid))
    # Single features beside the pairs, so that their counts are known where tables of pairs are hashed.
    some, whole = (
        make_problem(parts.aggregate(records, tables="singles,pairs", schema=parts.schema))
        for records in (fitted_on, parts.whole)
    )
    found = {}
    for model, fit in _FITS.items():
        l2, pair = _chosen(fit, some, parts)
        began = time.perf_counter()
        fitted = (pair_models(whole, l2, [pair]) if model == "best_pair" else fit(whole, l2))[0]
        seconds = time.perf_counter() - began
        found[model] = {
            **judged(test.positive, fitted.log_odds(test.codes, THREADS)),
            "seconds": round(seconds, 3),
            "lambda_theta": l2,
        }
        if model == "best_pair":
            found[model]["pair"] = [parts.schema.names[f] for f in pair]
    flat = np.full(len(test.positive), parts.problem.base_log_odds)
    found["constant"] = judged(test.positive, flat)
    return {**parts.size(), **found}


def _chosen(fit: _Fit, problem: Problem, parts: Split) -> tuple[float, tuple[int, ...]]:
    """The penalty of greatest NLLH on the validation records, and the first table of its best model."""
    tables: dict[float, tuple[int, ...]] = {}

    def score(l2: float) -> float:
        scores = {model.layout.scopes[0]: parts.valid_records.nllh(model) for model in fit(problem, l2)}
        tables[l2] = max(scores, key=lambda scope: scores[scope])
        return scores[tables[l2]]

    # Pairs are many and their score has one peak; the others are so quick that the whole grid is tried.
    l2 = climb(DEFAULT_LAMBDAS, score, _FIRST) if fit is pair_models else max(DEFAULT_LAMBDAS, key=score)
    return l2, tables[l2]


def section(results: Results, images: Path) -> list[str]:
    """NLLH, AUC and calibration of each."""
    rows = []
    for name, found in by_set(results).items():
        for model, title in MODELS.items():
            fits = [one[model] for one in found]
            keys = {"nllh": 4, "auc": 4, "ece": 4, "slope": 3, "seconds": 2}
            words = ", ".join(dict.fromkeys(" × ".join(one.get("pair", ())) for one in fits))
            values = [column(fits, key, digits) for key, digits in keys.items()]
            rows.append([f"{SETS[name].title}: {title}", *values, words])
    return table(["", "NLLH", "AUC", "ECE", "slope", "seconds", "the pair"], rows)
