"""The data sets of the zoo, their splits, and tables of them made with everything by default."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import agglearn
from agglearn.datasets import (
    AdsLog,
    load_adult,
    load_bank,
    load_census,
    load_credit,
    load_fars,
    load_flights,
    load_nursery,
)
from agglearn.field.problem import Problem, make_problem
from agglearn.records.options import Coding
from agglearn.records.split import assign
from agglearn.schema.features import Codes
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.train.settings import FitSettings
from evidence.runner import Cell, Value
from evidence.splits import HeldOut

_VALID_SHARE = 1 / 5  # of the training records
_TEST_SHARE = 1 / 5  # where no test records are published


@dataclass(frozen=True)
class DataSet:
    """A data set of the zoo.

    Attributes
    ----------
    title
        What the page calls it.
    load
        Gives the records, or the published training and test records.
    label, positive
        The label column and its positive value.
    without
        Columns that are left out.
    splits
        How many splits a full run takes.
    """

    title: str
    load: Callable[[], Any]
    label: str
    positive: str
    without: tuple[str, ...] = ()
    splits: int = 3


def _ads(features: int, modalities: int, rows: int) -> Any:
    log = AdsLog(features, modalities, click_rate=0.2, seed=1)
    return log.to_table(*log.sample(rows, 7), strings=True)


SETS = {
    "adult": DataSet("Adult", load_adult, "income", ">50K"),
    "bank": DataSet("Bank", load_bank, "y", "yes"),
    "fars": DataSet("FARS", load_fars, "fatal", "yes"),
    "credit": DataSet("Credit", load_credit, "default.payment.next.month", "1"),
    "census": DataSet("Census", load_census, "income", "50000+", splits=1),
    "flights": DataSet("Flights", load_flights, "late", "yes", without=("tailnum", "flight")),
    "nursery": DataSet("Nursery", load_nursery, "priority", "yes"),
    "adslow": DataSet("Ads, low", lambda: _ads(12, 30, 60_000), "click", "1"),
    "adshigh": DataSet("Ads, high", lambda: _ads(19, 500, 100_000), "click", "1"),
}


@dataclass(frozen=True)
class Sizes:
    """Sizes: the most splits, records of a set (training and test together) and features; None is all."""

    splits: int | None = None
    rows: int | None = None
    features: int | None = None


FULL = Sizes()
QUICK = Sizes(splits=1, rows=3_000, features=12)


def runs(config: Sizes) -> list[tuple[str, str, int]]:
    """A name for each data set and split, with both."""
    return [
        (f"{name}-seed{seed}", name, seed)
        for name, found in SETS.items()
        for seed in range(min(found.splits, config.splits or found.splits))
    ]


def settings(name: str, seed: int, config: Sizes) -> Value:
    """What decides a split and how it is coded."""
    return {
        "data": name,
        "seed": seed,
        "rows": config.rows,
        "features": config.features,
        "coding": asdict(Coding()),
    }


def fitted(config: Sizes, measure: Callable[[str, int, Sizes], Value]) -> list[Cell]:
    """A cell for each data set and split, which rests on how a field is fitted by default."""
    fit = FitSettings().to_json()
    return [
        Cell(stem, {**settings(name, seed, config), "fit": fit}, partial(measure, name, seed, config))
        for stem, name, seed in runs(config)
    ]


@dataclass(frozen=True, eq=False)
class Split:
    """A data set, split by a seed; its codes are learnt from all training records.

    Attributes
    ----------
    name
        Which data set.
    whole, test
        Raw training and test records.
    is_valid
        Which training records serve to choose penalties.
    """

    name: str
    whole: Any
    test: Any
    is_valid: npt.NDArray[np.bool_]

    @property
    def label(self) -> str:
        return SETS[self.name].label

    def aggregate(self, records: Any, **options: Any) -> AggregatedData:
        """Tables of records, by default as a user makes them."""
        return agglearn.aggregate(records, self.label, positive=SETS[self.name].positive, **options)

    @cached_property
    def data(self) -> AggregatedData:
        """The tables of all training records, everything by default."""
        return self.aggregate(self.whole)

    @property
    def schema(self) -> Schema:
        return self.data.schema

    @cached_property
    def problem(self) -> Problem:
        return make_problem(self.data)

    @cached_property
    def codes(self) -> Codes:
        """The training records, coded."""
        return self.schema.encode(self.whole)

    @cached_property
    def y(self) -> npt.NDArray[np.uint8]:
        """Labels of the training records."""
        labels: npt.NDArray[np.uint8] = self.schema.encode_labels(self.whole)[0]
        return labels

    @cached_property
    def valid_records(self) -> HeldOut:
        """The training records that penalties are chosen on, coded."""
        return HeldOut(np.ascontiguousarray(self.codes[:, self.is_valid]), self.y[self.is_valid] == 1)

    @cached_property
    def test_records(self) -> HeldOut:
        """The test records, coded."""
        return HeldOut(self.schema.encode(self.test), self.schema.encode_labels(self.test)[0] == 1)

    def size(self) -> Value:
        """How large it is, and a fingerprint of its codes, equal for models of the same cells."""
        text = json.dumps(self.schema.to_json(), sort_keys=True, default=str)
        return {
            "train_rows": self.whole.num_rows,
            "test_rows": self.test.num_rows,
            "features": len(self.schema.features),
            "tables": self.problem.layout.n_tables,
            "cells": self.problem.layout.n_cells,
            "codes": hashlib.sha256(text.encode()).hexdigest()[:12],
        }


@lru_cache(maxsize=1)
def _records(name: str) -> tuple[Any, Any]:
    """The records of a set without what is left out, and its published test records if it has some."""
    loaded = SETS[name].load()
    parts = loaded if isinstance(loaded, tuple) else (loaded, None)
    first, second = (p if p is None else p.drop_columns(list(SETS[name].without)) for p in parts)
    return first, second


@lru_cache(maxsize=1)
def split(name: str, seed: int, config: Sizes = FULL) -> Split:
    """A data set, split: seed 0 is the published split where there is one, others draw the records anew.

    Raises
    ------
    InputError
        The data are not at hand.
    """
    train, test = _records(name)
    if test is not None and seed > 0:
        share = test.num_rows / (train.num_rows + test.num_rows)
        train, test = pa.concat_tables([train, test]), None
    else:
        share = _TEST_SHARE
    if config.features is not None:
        columns = [c for c in train.column_names if c != SETS[name].label][: config.features]
        train = train.select([*columns, SETS[name].label])
        test = None if test is None else test.select(train.column_names)
    if config.rows is not None:
        held_out = round(config.rows * share)
        train = sample(train, config.rows - held_out if test is not None else config.rows)
        test = None if test is None else sample(test, held_out)
    if test is None:
        is_test = assign(0, train.num_rows, seed, {"test": share}) == 1
        train, test = train.filter(pa.array(~is_test)), train.filter(pa.array(is_test))
    return Split(name, train, test, assign(0, train.num_rows, seed + 1_000, {"valid": _VALID_SHARE}) == 1)


def sample(records: Any, rows: int) -> Any:
    """At most so many records, drawn at random."""
    if records.num_rows <= rows:
        return records
    return records.take(np.sort(np.random.default_rng(0).permutation(records.num_rows)[:rows]))
