"""What is learnt from in the benchmarks: Adult, Bank, and the simulated ads log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import agglearn
from agglearn.datasets import AdsLog, load_adult, load_bank
from agglearn.field.kernels.score import score_codes
from agglearn.field.layout import Layout
from agglearn.field.problem import layout_of
from agglearn.judge.scores import nllh
from agglearn.records.split import assign
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from evidence.timing import THREADS

Codes = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Coded records to judge a model by, a row per feature."""

    codes: Codes
    positive: npt.NDArray[np.bool_]

    def nllh(self, layout: Layout, theta: Floats, intercept: float) -> float:
        """NLLH of the log-odds φ(x)·θ + θ₀."""
        return nllh(self.positive, score_codes(self.codes, layout, theta, intercept, THREADS))


@dataclass(frozen=True, eq=False)
class Split:
    """A data set whose tables, and the schema they are coded by, come from its training part alone."""

    name: str
    data: AggregatedData
    codes: Codes
    y: npt.NDArray[np.uint8]
    test: HeldOut

    @property
    def layout(self) -> Layout:
        return layout_of(self.data)


def adult() -> Split:
    """Adult in its published split."""
    train, test = load_adult()
    return _split("Adult", train, test, "income", ">50K")


def bank(seed: int) -> Split:
    """Bank, a random fifth held out."""
    records = load_bank()
    is_test = assign(0, records.num_rows, seed, {"test": 0.2}) == 1
    return _split("Bank", records.filter(~is_test), records.filter(is_test), "y", "yes")


def _split(name: str, train: Any, test: Any, label: str, positive: str) -> Split:
    data = agglearn.aggregate(train, label, positive=positive)
    schema = data.schema
    held_out = HeldOut(schema.encode(test), schema.encode_labels(test)[0] == 1)
    return Split(name, data, schema.encode(train), schema.encode_labels(train)[0], held_out)


def ads_tables(log: AdsLog, rows: int, schema: Schema | None = None) -> AggregatedData:
    """All pair tables of so many records of an ads log, coded by a schema if one is given."""
    table = log.to_table(*log.sample(rows, seed=0))
    if schema is not None:
        return agglearn.aggregate(table, "click", schema=schema)
    return agglearn.aggregate(table, "click", categorical=["*"], max_modalities=65_000)


def ads_fresh(log: AdsLog, data: AggregatedData, rows: int) -> HeldOut:
    """Records of the same log that no table counts."""
    codes, y = log.sample(rows, seed=1)
    return HeldOut(data.schema.encode(log.to_table(codes, y)), y == 1)
