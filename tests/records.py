"""Raw records whose label depends on them, and what a fitted field says of one record, summed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from agglearn.model.model import Model
from agglearn.schema.features import Binned, Categorical

COLOURS, SIZES = ("blue", "green", "red"), (1, 2, 3, 5)


def make_records(rows: int = 2000, seed: int = 0) -> Any:
    """Text, a category in numbers, a quantity, the label as yes or no, and a number for each record."""
    rng = np.random.default_rng(seed)
    colour = rng.integers(0, 3, rows)
    size = (colour + rng.integers(0, 3, rows)) % 4
    age = rng.integers(18, 80, rows)
    score = colour - 1.0 + (size == 2) + (age - 50) / 20
    y = rng.random(rows) < 1 / (1 + np.exp(-score))
    return pa.table(
        {
            "colour": np.array(COLOURS)[colour],
            "size": np.array(SIZES)[size],
            "age": age,
            "bought": np.where(y, "yes", "no"),
            "id": np.arange(rows),
        }
    )


def log_odds_by_hand(model: Model, record: Mapping[str, Any], without: tuple[str, ...] = ()) -> float:
    """θ₀ and the θ of the record's cell in each table, but for tables that hold a feature of ``without``."""
    total = model.field.intercept
    for t, scope in enumerate(model.scopes):
        if not set(scope) & set(without):
            cell = tuple(_code(model, name, record[name]) for name in scope)
            total += float(model.layout.table(model.field.theta, t)[cell])
    return total


def _code(model: Model, name: str, value: Any) -> int:
    feature = model.schema.feature(name)
    if isinstance(feature, Binned):
        return sum(value > cut.value or (value == cut.value and not cut.after) for cut in feature.cuts)
    assert isinstance(feature, Categorical)
    return feature.values.index(str(value))
