"""One call from records of any kind to aggregated data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from narwhals.exceptions import DuplicateError

from agglearn.aggregation.pushdown import count_tables_lazy, is_lazy, survey_lazy
from agglearn.aggregation.stream import (
    Columns,
    Split,
    TargetEncoding,
    check_told,
    count_tables,
    learn_schema,
)
from agglearn.errors import InputError
from agglearn.records.learn import Coding, ColumnNote, learn_feature, learn_label
from agglearn.records.sources import ReadOptions, open_source
from agglearn.records.split import TRAIN, check_split
from agglearn.runtime.speech import option
from agglearn.schema.schema import Label, Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load_schema
from agglearn.tables.scopes import parse_scopes


@dataclass(frozen=True)
class Aggregation:
    """What an aggregation gave.

    Attributes
    ----------
    parts
        The aggregated data: ``train``, and one for each part of the split.
    notes
        What was decided about each column, where the schema was learnt.
    unknown
        For each feature that met values it has no modality for, how many.
    """

    parts: dict[str, AggregatedData]
    notes: list[ColumnNote]
    unknown: dict[str, int]

    @property
    def train(self) -> AggregatedData:
        return self.parts[TRAIN]


def aggregate(data: Any, label: str | Sequence[str], **options: Any) -> AggregatedData:
    """Aggregate records into contingency tables.

    Parameters
    ----------
    data
        A path, glob or folder (CSV, TSV, Parquet, Arrow), a list of paths, a pandas, polars or pyarrow
        frame, a dict of columns, a record-batch reader, a DuckDB relation or any lazy frame that
        narwhals knows. Lazy sources are aggregated where they are.
    label
        The column or columns to predict.
    **options
        Those of :func:`aggregate_split`, except ``split``.

    Examples
    --------
    >>> import agglearn
    >>> data = {"colour": ["red", "blue", "red"], "size": ["S", "S", "L"], "click": [1, 0, 1]}
    >>> tables = agglearn.aggregate(data, "click")
    >>> tables.table("colour").counts, tables.table("colour").sums[0]
    (array([1, 2]), array([0, 2]))
    """
    return aggregate_split(data, label, **options).train


def aggregate_split(
    data: Any,
    label: str | Sequence[str],
    *,
    positive: str | Sequence[str | None] | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    tables: str | Iterable[Sequence[str]] = "pairs",
    schema: Schema | str | os.PathLike[str] | None = None,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    bins: int = 10,
    binning: str = "quantile",
    edges: Mapping[str, Sequence[float]] | None = None,
    max_modalities: int = 1000,
    min_modality_count: int = 1,
    hash_size: int | None = None,
    target_encode: Sequence[str] = (),
    encoding_share: float = 0.1,
    encoding_modalities: int = 100,
    split: Mapping[str, float] | None = None,
    seed: int = 0,
    read: ReadOptions | None = None,
    show_progress: bool = False,
) -> Aggregation:
    """Aggregate records into one set of tables, or into several over disjoint records.

    Parameters
    ----------
    data, label
        As in :func:`aggregate`.
    positive
        The positive value of each label that is not 0/1 or true/false.
    features, exclude
        Feature columns (all but the labels by default), and columns or patterns to leave out.
    tables
        ``pairs`` (the default), ``singles``, ``triples``, ``a*b*c``, joined by commas; or tuples.
    schema
        A schema to code by, or the path of one or of an ``.agg``, instead of learning it.
    categorical, numeric, bins, binning, edges, max_modalities, min_modality_count
        How columns are coded where the schema is learnt: see
        :class:`~agglearn.records.learn.Coding`.
    hash_size
        Tables with more cells than this are hashed to so many buckets.
    target_encode, encoding_share, encoding_modalities
        Columns coded by count and rate bins, learnt on a held-out share of the records, which then is
        in no table.
    split, seed
        Shares of the records to aggregate apart, for instance ``{"valid": 0.2}``.
    read
        Separator, encoding and missing values of text files.
    """
    labels = make_labels(label, positive)
    columns = Columns(tuple(features) if features is not None else None, tuple(exclude), labels)
    coding = Coding(
        categorical=tuple(categorical),
        numeric=tuple(numeric),
        bins=bins,
        binning=binning,
        edges=edges or {},
        max_modalities=max_modalities,
        min_modality_count=min_modality_count,
    )
    if hash_size is not None and hash_size < 2:
        raise InputError(f"{option('hash_size', str(hash_size))} is too small: 2 is the least")
    if schema is not None and not isinstance(schema, Schema):
        schema = load_schema(schema)
    if schema is not None:
        if target_encode:
            raise InputError(
                "target encodings are part of a schema: they cannot be learnt beside a given one"
            )
        schema = Schema(schema.features, tuple(_known_label(label, schema) for label in labels))
        if features is not None or exclude:
            schema = schema.select(columns.feature_names([*schema.names, *schema.label_names]))
    shares = dict(split or {})
    check_split(shares)
    try:
        lazy = is_lazy(data)
    except DuplicateError:  # a frame: opening it names the column
        lazy = False
    if lazy:
        if shares or target_encode:
            raise InputError(
                "a lazy source has no record numbers to split by: split it there, or read it as a file"
            )
        return _aggregate_lazy(data, columns, coding, schema, tables, hash_size, show_progress)
    source = open_source(data, read)
    parts = Split(shares, seed)
    encoding = TargetEncoding(tuple(target_encode), encoding_share, encoding_modalities)
    notes: list[ColumnNote] = []
    if schema is None:
        learnt = learn_schema(
            source, columns, coding, split=parts, encoding=encoding, show_progress=show_progress
        )
        schema, notes = learnt.schema, learnt.notes
    result, unknown = count_tables(
        source,
        schema,
        parse_scopes(tables, schema),
        hash_size=hash_size,
        split=parts,
        encoding=encoding,
        show_progress=show_progress,
    )
    return Aggregation(result, notes, unknown)


def make_labels(label: str | Sequence[str], positive: str | Sequence[str | None] | None) -> tuple[Label, ...]:
    """Labels from their names and positive values."""
    names = [label] if isinstance(label, str) else list(label)
    values = [positive] if positive is None or isinstance(positive, str) else list(positive)
    if not names:
        raise InputError(f"no label is named: say which column to predict with {option('label')}")
    if len(values) == 1:
        values *= len(names)
    if len(values) != len(names):
        raise InputError(f"{len(values)} positive values were given for {len(names)} labels")
    return tuple(Label(n, None if v is None else str(v)) for n, v in zip(names, values, strict=True))


def _known_label(label: Label, schema: Schema) -> Label:
    """The schema's own label where it is the same, so that its negative value is kept."""
    same = [x for x in schema.labels if (x.name, x.positive) == (label.name, label.positive)]
    return same[0] if same else label


def _aggregate_lazy(
    frame: Any,
    columns: Columns,
    coding: Coding,
    schema: Schema | None,
    tables: str | Iterable[Sequence[str]],
    hash_size: int | None,
    show_progress: bool,
) -> Aggregation:
    notes: list[ColumnNote] = []
    if schema is None:
        import narwhals as nw

        names = columns.feature_names(nw.from_native(frame).collect_schema().names())
        check_told(coding, names)
        named = [label.name for label in columns.labels if label.positive is not None]
        surveys = survey_lazy(frame, [*names, *named])
        learnt = [learn_feature(surveys[name], coding) for name in names]
        notes = [note for _, note in learnt]
        labels = tuple(learn_label(label, surveys.get(label.name)) for label in columns.labels)
        schema = Schema(tuple(f for f, _ in learnt), labels)
    data, unknown = count_tables_lazy(
        frame, schema, parse_scopes(tables, schema), hash_size, show_progress=show_progress
    )
    return Aggregation({TRAIN: data}, notes, unknown)
