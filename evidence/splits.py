"""What is learnt from: Adult and Bank in any binning, split and tables, and the simulated ads log.

Columns are coded by what the training records show, test records by the same codes. The binnings of the
numeric columns:

- ``quantile``: agglearn's default, ten bins of about as many records, with any value that holds more than its
  share set apart;
- ``width``: the ten bins of equal width that the authors' published code makes of *every* numeric column,
  also of those with few values, their edges rounded to whole numbers (so that Bank's interest rate has five);
- ``plain width``: agglearn's own ten bins of equal width, unrounded, of the columns it takes for quantities.

Nothing is left out: Bank has its ``duration``, Adult its ``fnlwgt``, and a missing value is a category. Seed
0 of Adult is the published split; its other seeds draw the 48,842 records anew, a third of them to test. A
seed of Bank, which has no published split, draws a fifth to test, the share of the authors' code. A fifth of
the training records are for validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import agglearn
from agglearn.aggregation.tally import Tally
from agglearn.datasets import AdsLog, load_adult, load_bank
from agglearn.errors import InputError
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem, make_problem
from agglearn.judge.scores import nllh
from agglearn.records.split import assign
from agglearn.schema.features import Binned, Codes, Cut
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.scopes import parse_scopes
from evidence.timing import THREADS

Floats = npt.NDArray[np.float64]

DATA_SETS = ("adult", "bank")
BINNINGS = ("quantile", "width")
TITLES = {"adult": "Adult", "bank": "Bank"}

_LABELS = {"adult": ("income", ">50K"), "bank": ("y", "yes")}
_TEST_SHARES = {"adult": 1 / 3, "bank": 1 / 5}
_VALID_SHARE = 1 / 5  # of the training records
_BINS = 10


class Predictor(Protocol):
    """Whatever gives log-odds: a field, or a model it is compared with."""

    def log_odds(self, codes: Codes, threads: int = 1) -> Floats:
        """Log-odds of coded records, a row per feature."""
        ...


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Coded records to judge a model by, a row per feature."""

    codes: Codes
    positive: npt.NDArray[np.bool_]

    def nllh(self, model: Predictor) -> float:
        """NLLH of a model's log-odds."""
        return nllh(self.positive, model.log_odds(self.codes, THREADS))


@dataclass(frozen=True, eq=False)
class Part:
    """Coded records of one part of a split, and what is made of them."""

    schema: Schema
    scopes: tuple[tuple[str, ...], ...]
    codes: Codes
    y: npt.NDArray[np.uint8]

    @cached_property
    def data(self) -> AggregatedData:
        """Their tables."""
        tally = Tally(self.schema, list(self.scopes))
        tally.add(np.ascontiguousarray(self.codes), self.y[None, :])
        return AggregatedData(self.schema, tally.tables(), len(self.y), (int(self.y.sum()),))

    @cached_property
    def problem(self) -> Problem:
        """What a field is fitted to."""
        return make_problem(self.data)

    @property
    def layout(self) -> Layout:
        return self.problem.layout

    def over(self, tables: str) -> Part:
        """The same records with other tables."""
        return replace(self, scopes=tuple(parse_scopes(tables, self.schema)))

    @cached_property
    def held_out(self) -> HeldOut:
        """The same records to judge by."""
        return HeldOut(self.codes, self.y == 1)


@dataclass(frozen=True, eq=False)
class Split:
    """A data set in a binning, split by a seed.

    Attributes
    ----------
    train, valid
        What penalties are chosen on: four fifths of the training records to fit, a fifth to judge.
    whole
        All training records, ``train`` and ``valid`` together: what the final models are fitted to.
    test
        What the final models are judged on, and nothing else looks at.
    raw
        The columns of ``train``, ``valid``, ``whole`` and ``test`` before they are coded, as Arrow tables.
    """

    name: str
    binning: str
    seed: int
    train: Part
    valid: Part
    whole: Part
    test: Part
    raw: dict[str, Any]


def split(
    name: str,
    binning: str,
    seed: int,
    *,
    tables: str | Sequence[Sequence[str]] = "pairs",
    features: Sequence[str] | None = None,
    quantile_columns: Sequence[str] = (),
    share: float = 1.0,
) -> Split:
    """A data set, split and coded.

    Parameters
    ----------
    name, binning, seed
        ``adult`` or ``bank``; ``quantile``, ``width`` or ``plain width``; which split (0 of Adult is the
        published one).
    tables
        Which tables, as :func:`agglearn.aggregate` reads them: ``pairs``, ``singles,pairs``,
        ``pairs,triples``.
    features
        Which features; all by default.
    quantile_columns
        Numeric columns that are in quantile bins whatever the binning is.
    share
        A random share of the records, of all parts alike, for a quick run.

    Raises
    ------
    InputError
        The data are not at hand.
    """
    parts = _parts(name, seed, share)
    label, positive = _LABELS[name]
    whole = pa.concat_tables([parts["train"], parts["valid"]])
    columns = [c for c in whole.column_names if c != label and (features is None or c in features)]
    schema = _schema(whole.select([*columns, label]), label, positive, binning)
    if quantile_columns and binning != "quantile":
        other = _schema(whole.select([*columns, label]), label, positive, "quantile")
        schema = Schema(
            tuple((other if f.name in quantile_columns else schema).feature(f.name) for f in schema.features),
            schema.labels,
        )
    scopes = tuple(parse_scopes(tables, schema))

    def coded(records: Any) -> Part:
        return Part(schema, scopes, schema.encode(records), schema.encode_labels(records)[0])

    return Split(
        name=name,
        binning=binning,
        seed=seed,
        train=coded(parts["train"]),
        valid=coded(parts["valid"]),
        whole=coded(whole),
        test=coded(parts["test"]),
        raw={**parts, "whole": whole},
    )


@lru_cache(maxsize=2)
def _records(name: str) -> tuple[Any, Any]:
    """The published training and test records; Bank has no test records of its own."""
    if name == "adult":
        return load_adult()
    if name == "bank":
        return load_bank(), None
    raise InputError(f"data set {name!r} is not one of {', '.join(DATA_SETS)}")


def _parts(name: str, seed: int, share: float) -> dict[str, Any]:
    train, test = _records(name)
    if name == "adult" and seed == 0:
        kept = _kept(test.num_rows, share)
        test = test if kept is None else test.filter(kept)
        shares = {"valid": _VALID_SHARE}
    else:
        train, test = (train if test is None else pa.concat_tables([train, test])), None
        held_out = _TEST_SHARES[name]
        shares = {"test": held_out, "valid": _VALID_SHARE * (1 - held_out)}
    part = assign(0, train.num_rows, seed, shares)
    kept = _kept(train.num_rows, share)
    parts = {}
    for k, which in enumerate(["train", *shares]):
        mine = part == k if kept is None else (part == k) & kept
        parts[which] = train.filter(pa.array(mine))
    return parts if test is None else {**parts, "test": test}


def _kept(rows: int, share: float) -> npt.NDArray[np.bool_] | None:
    """Which records a share keeps; None where it keeps all."""
    if share >= 1:
        return None
    return np.asarray(assign(0, rows, 999, {"kept": share}) == 1)


def numeric_columns(name: str) -> list[str]:
    """The columns of numbers, which the binnings code differently."""
    records, _ = _records(name)
    return [field.name for field in records.schema if not pa.types.is_string(field.type)]


def _schema(records: Any, label: str, positive: str, binning: str) -> Schema:
    """How the columns are coded, by the training records."""
    if binning not in (*BINNINGS, "plain width"):
        raise InputError(f"binning {binning!r} is not quantile, width or plain width")
    ours = "quantile" if binning == "quantile" else "width"
    learnt = agglearn.aggregate(
        records, label, positive=positive, binning=ours, bins=_BINS, tables="singles"
    ).schema
    if binning != "width":
        return learnt
    numeric = {field.name for field in records.schema if not pa.types.is_string(field.type)}
    return Schema(
        tuple(
            _rounded(feature.name, records.column(feature.name).to_numpy())
            if feature.name in numeric
            else feature
            for feature in learnt.features
        ),
        learnt.labels,
    )


def _rounded(name: str, values: npt.NDArray[Any]) -> Binned:
    """The authors' bins of a numeric column.

    Ten steps of equal width, each end rounded to a whole number, e₁ ≤ … ≤ e₁₀. A value below e₁ is in the
    first bin, one in [eⱼ, eⱼ₊₁) in the next, and one *above* e₉ in the last; e₉ itself is in the one before.
    A bin is named by its upper end, so the last two are one where rounding makes their ends equal.
    """
    low, high = float(values.min()), float(values.max())
    ends = [float(round(low + j * (high - low) / _BINS)) for j in range(1, _BINS + 1)]
    cuts = [Cut(end) for end in dict.fromkeys(ends[:-2]) if end < ends[-2]]
    if ends[-2] < ends[-1]:
        cuts.append(Cut(ends[-2], after=True))
    kept = tuple(cut for cut in cuts if low < cut.value or (cut.after and low <= cut.value))
    whole = bool(np.all(values == np.floor(values)))
    return Binned(name=name, missing=False, cuts=kept, low=low, high=high, integer=whole)


def ads_tables(log: AdsLog, rows: int, schema: Schema | None = None) -> AggregatedData:
    """All pair tables of so many records of an ads log, coded by a schema if one is given."""
    table = log.to_table(*log.sample(rows, seed=0))
    if schema is not None:
        return agglearn.aggregate(table, "click", schema=schema)
    return agglearn.aggregate(table, "click", categorical=["*"], min_modality_count=1)


def ads_fresh(log: AdsLog, data: AggregatedData, rows: int) -> HeldOut:
    """Records of the same log that no table counts."""
    codes, y = log.sample(rows, seed=1)
    return HeldOut(data.schema.encode(log.to_table(codes, y)), y == 1)
