"""Records to tables, a batch at a time: memory is bounded by the tables and a batch, never the rows.

Two passes where the schema is to be learnt: a survey of the columns, then the count. With a schema
given there is only the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.aggregation.tally import Tally
from agglearn.errors import InputError
from agglearn.records.learn import Coding, ColumnNote, learn_encoding, learn_feature, learn_label, matches
from agglearn.records.sources import Source
from agglearn.records.split import TRAIN, assign
from agglearn.records.survey import ColumnSurvey
from agglearn.runtime.progress import meter
from agglearn.runtime.speech import option
from agglearn.schema.columns import as_text, distinct
from agglearn.schema.features import Encoded
from agglearn.schema.schema import Label, Schema, require_columns, some
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope

_ENCODING = "(encoding)"  # the part of a split that target encodings are learnt on


@dataclass(frozen=True)
class Columns:
    """Which columns are features, which are labels."""

    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    labels: tuple[Label, ...] = ()

    def feature_names(self, present: Sequence[str]) -> list[str]:
        """Names of the feature columns among those present."""
        labels = [label.name for label in self.labels]
        require_columns(labels, present, "label")
        if self.features is not None:
            require_columns(self.features, present, "feature")
            for name in self.features:
                if name in labels:
                    raise InputError(f"column {name!r} cannot be both a feature and a label")
        for pattern in self.exclude:
            if not any(matches(name, (pattern,)) for name in present):
                told = option("exclude", repr(pattern))
                raise InputError(f"{told} names no column: there are {some(present)}")
        names = [n for n in self.features or present if n not in labels and not matches(n, self.exclude)]
        if not names:
            raise InputError("no feature is left: the records need one column besides the label")
        return names


@dataclass(frozen=True)
class TargetEncoding:
    """Columns to be coded by (count, rate), and the share of records held out to learn that."""

    columns: tuple[str, ...] = ()
    share: float = 0.1
    modalities: int = 100

    def __post_init__(self) -> None:
        if self.modalities < 2:
            told = option("encoding_modalities", str(self.modalities))
            raise InputError(f"{told} is too few: 2 is the least")


@dataclass
class Learnt:
    """A schema, and what was decided about each column."""

    schema: Schema
    notes: list[ColumnNote] = field(default_factory=list)


@dataclass(frozen=True)
class Split:
    """Shares of the records that go elsewhere than to the training tables."""

    shares: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0


def learn_schema(
    source: Source,
    columns: Columns,
    coding: Coding,
    *,
    split: Split | None = None,
    encoding: TargetEncoding | None = None,
    show_progress: bool = False,
) -> Learnt:
    """Survey the training records of a source and decide how each column is coded."""
    encoding = encoding or TargetEncoding()
    split = _with_encoding_part(split or Split(), encoding)
    names = columns.feature_names(source.columns)
    check_told(coding, names)
    require_columns(encoding.columns, names, "column to target-encode")
    surveys = {n: ColumnSurvey(n) for n in names if n not in encoding.columns}
    label_surveys = {x.name: ColumnSurvey(x.name) for x in columns.labels if x.positive is not None}
    rates = {n: _Rates() for n in encoding.columns}
    label_names = [label.name for label in columns.labels]
    rows = 0
    with meter("reading columns", source.rows, show=show_progress) as advance:
        for batch, part in _parts(source, [*names, *label_names], split):
            rows += batch.num_rows
            advance(batch.num_rows)
            training = batch if part is None else batch.filter(pa.array(part == 0))
            for name, survey in (surveys | label_surveys).items():
                survey.add(training.column(name))
            if rates and part is not None:
                held_out = batch.filter(pa.array(part == len(split.shares)))
                y = columns.labels[0].encode(held_out.column(label_names[0]))
                for name, rate in rates.items():
                    rate.add(held_out.column(name), y)
    if not rows:
        raise InputError("there are no records to aggregate")
    features, notes = [], []
    for name in names:
        if name in surveys:
            feature, note = learn_feature(surveys[name], coding)
        else:
            feature, note = rates[name].encoding(name, encoding.modalities)
        features.append(feature)
        notes.append(note)
    labels = tuple(learn_label(label, label_surveys.get(label.name)) for label in columns.labels)
    return Learnt(Schema(tuple(features), labels), notes)


def check_told(coding: Coding, names: Sequence[str]) -> None:
    """Refuse options about columns that are not there."""
    for kind, patterns in (("categorical", coding.categorical), ("numeric", coding.numeric)):
        for pattern in patterns:
            if not any(matches(name, (pattern,)) for name in names):
                told = option(kind, repr(pattern))
                raise InputError(f"{told} names no feature: there are {some(names)}")
    for name in coding.edges:
        if name not in names:
            raise InputError(f"{option('edges', repr(name))} names no feature: there are {some(names)}")


def _with_encoding_part(split: Split, encoding: TargetEncoding) -> Split:
    if not encoding.columns:
        return split
    if not 0 < encoding.share < 1 - sum(split.shares.values()):
        raise InputError(
            f"the share of records held out for target encoding ({encoding.share:g}) must be above 0 "
            "and leave records to train on"
        )
    return replace(split, shares={**split.shares, _ENCODING: encoding.share})


def _parts(
    source: Source, columns: Sequence[str], split: Split
) -> Iterator[tuple[Any, npt.NDArray[np.uint8] | None]]:
    """Batches of a source, each with the part of the split its records belong to."""
    start = 0
    for batch in source.batches(list(dict.fromkeys(columns))):
        yield batch, assign(start, batch.num_rows, split.seed, split.shares) if split.shares else None
        start += batch.num_rows


class _Rates:
    """Counts and positives of each value of a column, on the records held out for encoding it."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._missing = False

    def add(self, column: Any, y: npt.NDArray[np.uint8]) -> None:
        values, index = distinct(column)
        self._missing |= bool((index < 0).any())
        known = index >= 0
        counts = np.bincount(index[known], minlength=len(values)).tolist()
        positives = np.bincount(index[known], weights=y[known], minlength=len(values)).tolist()
        for text, n, p in zip(as_text(values).to_pylist(), counts, positives, strict=True):
            if n:
                entry = self._counts.setdefault(text, [0, 0])
                entry[0] += n
                entry[1] += int(p)

    def encoding(self, name: str, modalities: int) -> tuple[Encoded, ColumnNote]:
        if not self._counts:
            raise InputError(f"column {name!r} has no value in the records held out to encode it")
        values = sorted(self._counts)
        counts = np.array([self._counts[v] for v in values], np.int64)
        feature = learn_encoding(name, values, counts[:, 0], counts[:, 1], self._missing, modalities)
        why = f"{len(values):,} values by count and rate on {counts[:, 0].sum():,} held-out records"
        return feature, ColumnNote(name, feature.kind, feature.n_modalities, 0, why)


def count_tables(
    source: Source,
    schema: Schema,
    scopes: list[Scope],
    *,
    hash_size: int | None = None,
    split: Split | None = None,
    encoding: TargetEncoding | None = None,
    show_progress: bool = False,
) -> tuple[dict[str, AggregatedData], dict[str, int]]:
    """Count a source's records into tables, one set for each part of the split.

    Returns the aggregations by part, and for each feature how many values it had no modality for.
    """
    split = _with_encoding_part(split or Split(), encoding or TargetEncoding())
    parts = [TRAIN, *split.shares]
    kept = [p for p in parts if p != _ENCODING]
    tallies = [Tally(schema, scopes, hash_size, copies=len(kept)) for _ in kept]
    unknown = np.zeros(len(schema.features), np.int64)
    cards = np.array(schema.cards)[:, None]
    with meter("counting", source.rows, show=show_progress) as advance:
        for batch, part in _parts(source, [*schema.names, *schema.label_names], split):
            codes = schema.encode(batch)
            labels = schema.encode_labels(batch)
            unknown += (codes == cards).sum(axis=1)
            if part is None:
                tallies[0].add(codes, labels)
            else:
                for k, tally in enumerate(tallies):
                    tally.add(np.ascontiguousarray(codes[:, part == k]), labels[:, part == k])
            advance(batch.num_rows)
    data = {}
    for part_name, tally in zip(kept, tallies, strict=True):
        if not tally.rows:
            raise InputError(
                "there are no records to aggregate"
                if len(kept) == 1
                else f"no record fell into part {part_name!r} of the split: there are too few"
            )
        data[part_name] = AggregatedData(
            schema=schema,
            tables=tally.tables(),
            rows=tally.rows,
            positives=tuple(int(p) for p in tally.positives),
            split=_describe(split, part_name) if split.shares else None,
        )
    for k, label in enumerate(schema.labels):
        if label.positive is not None and not any(d.positives[k] for d in data.values()):
            told = option("positive")
            raise InputError(f"no record has {label.name} = {label.positive!r}, which {told} names")
    counts = dict(zip(schema.names, unknown.tolist(), strict=True))
    return data, {name: n for name, n in counts.items() if n}


def _describe(split: Split, part: str) -> dict[str, Any]:
    return {"part": part, "seed": split.seed, "shares": dict(split.shares)}
