"""scikit-learn's `HistGradientBoostingClassifier` with its defaults on the columns as they are: numbers as
numbers, text as categories. It takes 255 categories of a column at most; those that are rarer than the 254th
count as missing. It sees every record and is free of bins and pairs: how far it is above the field is the
price of tables, and of coding.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.ensemble import HistGradientBoostingClassifier

from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.zoo import sets
from evidence.zoo.judging import by_set, column, judged
from evidence.zoo.sets import SETS, Sizes, Split

TITLE = "Gradient boosting, from records"
FULL, QUICK = sets.FULL, sets.QUICK
_MOST_CATEGORIES = 254


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set and split."""
    return [
        Cell(stem, _settings(name, seed, config), partial(measure, name, seed, config))
        for stem, name, seed in sets.runs(config)
    ]


def _settings(name: str, seed: int, config: Sizes) -> Value:
    """What decides the records; how they are coded for tables does not matter here."""
    return {k: v for k, v in sets.settings(name, seed, config).items() if k != "coding"}


def measure(name: str, seed: int, config: Sizes) -> Value:
    """The trees of one split."""
    parts = sets.split(name, seed, config)
    train, test, categories = matrices(parts)
    positive = SETS[name].positive
    y, y_test = (_labels(records, parts.label, positive) for records in (parts.whole, parts.test))
    model = HistGradientBoostingClassifier(categorical_features=categories, random_state=seed)
    began = time.perf_counter()
    model.fit(train, y)
    seconds = time.perf_counter() - began
    return {
        "train_rows": len(y),
        "test_rows": len(y_test),
        "boosting": {
            **judged(y_test, model.decision_function(test)),
            "seconds": round(seconds, 3),
            "iterations": int(model.n_iter_),
        },
    }


def matrices(parts: Split) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], list[int]]:
    """Training and test records as numbers, and which columns are categories."""
    names = [name for name in parts.whole.column_names if name != parts.label]
    text = [k for k, name in enumerate(names) if pa.types.is_string(parts.whole.schema.field(name).type)]
    columns = [
        _categories(parts.whole.column(name), parts.test.column(name))
        if k in text
        else [records.column(name).to_numpy() for records in (parts.whole, parts.test)]
        for k, name in enumerate(names)
    ]
    train, test = (np.column_stack([c[part] for c in columns]).astype(np.float64) for part in (0, 1))
    return train, test, text


def _categories(train: Any, test: Any) -> list[npt.NDArray[np.float64]]:
    """Codes of text, the most frequent value first; those that are too rare, or new, are missing."""
    counted = pc.value_counts(train)
    order = np.argsort(-counted.field("counts").to_numpy(), kind="stable")[:_MOST_CATEGORIES]
    values = counted.field("values").take(pa.array(order))
    codes = [pc.index_in(column, value_set=values).cast(pa.float64()) for column in (train, test)]
    return [pc.fill_null(column, float("nan")).to_numpy() for column in codes]


def _labels(records: Any, label: str, positive: str) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.equal(records.column(label).cast(pa.string()), positive), dtype=np.bool_)


def section(results: Results, images: Path) -> list[str]:
    """How each fit went."""
    rows = []
    for name, found in by_set(results).items():
        fits = [one["boosting"] for one in found]
        keys = {"nllh": 4, "auc": 4, "ece": 4, "slope": 3, "seconds": 1, "iterations": 0}
        rows.append([SETS[name].title, *(column(fits, key, digits) for key, digits in keys.items())])
    return table(["", "NLLH", "AUC", "ECE", "slope", "seconds", "trees"], rows)
