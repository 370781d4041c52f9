"""One call from records of any kind to aggregated data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from agglearn.aggregation.database import (
    RelationSource,
    is_relation,
    open_database_table,
    split_database_input,
)
from agglearn.aggregation.document import aggregation_document
from agglearn.aggregation.options import AggregateOptions
from agglearn.errors import InputError
from agglearn.records.files import FileSource
from agglearn.records.first_pass import Learnt, grow_schema, learn_schema, schema_of, to_survey
from agglearn.records.grow import growing, grown_schema
from agglearn.records.kept import KeptSource
from agglearn.records.learn import ColumnNote, check_told
from agglearn.records.options import TRAIN
from agglearn.records.roles import Columns, make_labels
from agglearn.records.sources import Source, open_source
from agglearn.report.document import Document
from agglearn.report.finding import Finding
from agglearn.runtime.options import AUTO, with_keywords
from agglearn.runtime.threads import meanwhile
from agglearn.schema.schema import Label, Schema
from agglearn.spark.session import is_frame
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load_schema, load_scopes
from agglearn.tables.ledger import Part
from agglearn.tables.periods import Period
from agglearn.tables.scopes import parse_scopes
from agglearn.tables.table import Scope


@dataclass(frozen=True, repr=False)
class Aggregation(Finding):
    """What an aggregation gave.

    Attributes
    ----------
    parts
        The aggregated data: ``train``, and one for each part of the split.
    notes
        What was decided about each column, where the schema was learnt.
    unknown
        For each feature that met values it has no modality for, how many.
    beside
        Triples that were counted beside all pairs, because pairs cannot tell them.
    """

    parts: dict[str, AggregatedData]
    notes: list[ColumnNote]
    unknown: dict[str, int]
    beside: list[Scope] = field(default_factory=list)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} of {data.rows:,.0f} records" for name, data in self.parts.items())
        return f"<Aggregation: {shown}>"

    @property
    def train(self) -> AggregatedData:
        return self.parts[TRAIN]

    def document(self, paths: Mapping[str, str] | None = None, seconds: float | None = None) -> Document:
        """What was counted, in words and numbers; with where it was written and what it took, if told."""
        return aggregation_document(
            self.parts, self.notes, self.unknown, self.beside, paths=paths, seconds=seconds
        )


def aggregate(
    data: Any, label: str | Sequence[str], options: AggregateOptions | None = None, **keywords: Any
) -> AggregatedData:
    """Aggregate records into contingency tables.

    Parameters
    ----------
    data
        A path, glob or folder (CSV, TSV, Parquet, Arrow), a list of paths, ``FILE.duckdb:TABLE``, a pandas,
        polars or pyarrow frame, a dict of columns, a list of dicts, a record-batch reader, a DuckDB relation
        or any lazy frame that narwhals knows. Lazy sources are aggregated where they are. So are a Spark
        DataFrame and what ``spark:TABLE_OR_PATH`` names.
    label
        The column or columns to predict.
    options, **keywords
        How: ``bins=20``, ``tables="triples"`` and whatever else
        :class:`~agglearn.aggregation.options.AggregateOptions` has, as a whole, by keyword, or both.

    Examples
    --------
    >>> import agglearn
    >>> data = {"colour": ["red", "blue", "red"], "size": ["S", "S", "L"], "click": [1, 0, 1]}
    >>> tables = agglearn.aggregate(data, "click")
    >>> tables.table("colour").counts, tables.table("colour").sums[0]
    (array([1, 2]), array([0, 2]))
    """
    return _aggregate(data, label, _options(options, keywords, "aggregate")).train


def aggregate_split(
    data: Any, label: str | Sequence[str], options: AggregateOptions | None = None, **keywords: Any
) -> Aggregation:
    """Aggregate records into one set of tables, or into several over disjoint records.

    Parameters
    ----------
    data, label, options, **keywords
        As in :func:`aggregate`; ``split={"valid": 0.2}`` says which share of the records goes where.
    """
    return _aggregate(data, label, _options(options, keywords, "aggregate_split"))


def _options(options: AggregateOptions | None, keywords: dict[str, Any], caller: str) -> AggregateOptions:
    return with_keywords(options or AggregateOptions(), keywords, caller)


def _aggregate(data: Any, label: str | Sequence[str], how: AggregateOptions) -> Aggregation:
    labels = make_labels(label, how.positive)
    if isinstance(data, str) and (database := split_database_input(data)):
        data = open_database_table(*database)
    there, data = (False, data) if _at_hand(data) else _looked_into(data)
    columns = Columns(how.features, how.exclude, labels)
    schema = _given_schema(how, columns)
    counted = (_count_there if there else _count_here)(data, columns, schema, how)
    if how.period is not None:
        part = Part(period=Period.parse(how.period))
        counted = replace(counted, parts={k: replace(d, parts=(part,)) for k, d in counted.parts.items()})
    return counted


def _at_hand(data: Any) -> bool:
    """Whether this is no frame of any library, lazy or not."""
    return isinstance(data, str | os.PathLike | dict | list | tuple | pa.Table | pa.RecordBatchReader)


def _looked_into(data: Any) -> tuple[bool, Any]:
    """Whether records stay where they are, being a lazy frame of some engine; and Spark's frame itself."""
    import narwhals as nw  # here and below: it takes as long to load as a small file to count
    from narwhals.exceptions import DuplicateError

    from agglearn.aggregation.pushdown import is_lazy

    if isinstance(data, nw.LazyFrame) and is_frame(data.to_native()):
        data = data.to_native()
    try:
        return is_lazy(data), data
    except DuplicateError:  # a frame: opening it names the column
        return False, data


def _given_schema(how: AggregateOptions, columns: Columns) -> Schema | None:
    """The schema to code by, if it is not to be learnt."""
    if how.schema is None:
        return None
    given = how.schema.schema if isinstance(how.schema, AggregatedData) else how.schema
    schema = given if isinstance(given, Schema) else load_schema(given)
    if how.target_encode:
        raise InputError("target encodings are part of a schema: they cannot be learnt beside a given one")
    schema = Schema(schema.features, tuple(_known_label(label, schema) for label in columns.labels))
    if how.features is not None or how.exclude:
        schema = schema.select(columns.feature_names([*schema.names, *schema.label_names]))
    return schema


def _known_label(label: Label, schema: Schema) -> Label:
    """The schema's own label where it is the same, so that its negative value is kept."""
    same = [x for x in schema.labels if (x.name, x.positive) == (label.name, label.positive)]
    return same[0] if same else label


def _count_here(data: Any, columns: Columns, schema: Schema | None, how: AggregateOptions) -> Aggregation:
    """Records at hand, read once to learn their schema and once to count them."""
    source = open_source(data, how.read)
    if isinstance(source, FileSource):
        source.refuse_twice()
        source = KeptSource(source)
    with meanwhile(_load_kernels):
        learnt = _learnt(source, columns, schema, how)
    return _counted(source, learnt, schema is None, how)


def _load_kernels() -> None:
    """Load what counts: it takes as long as a first look at a million records, beside which it is done."""
    from agglearn.aggregation import stream, tally, triples  # noqa: F401  numba, and what it compiled

    tally.get_ready()


def _learnt(source: Source, columns: Columns, schema: Schema | None, how: AggregateOptions) -> Learnt:
    """The schema to count by: learnt, grown, or as it was given."""
    split, show = how.parts, how.show_progress
    if schema is None:
        encoding = how.target_encoding
        return learn_schema(source, columns, how, split=split, encoding=encoding, show_progress=show)
    if how.grow:
        return grow_schema(source, schema, how, split, show_progress=show)
    return Learnt(schema)


def _counted(source: Source, learnt: Learnt, is_new: bool, how: AggregateOptions) -> Aggregation:
    """All tables of a source; with a schema that is new, the triples that pairs cannot tell among them."""
    from agglearn.aggregation.stream import count_tables
    from agglearn.aggregation.triples import Sample, telling_scopes

    count = partial(
        count_tables,
        source,
        learnt.schema,
        hash_size=how.hash_size,
        split=how.parts,
        encoding=how.target_encoding,
        show_progress=how.show_progress,
    )
    sample = Sample() if how.tables == AUTO and is_new else None
    parts, unknown = count(_scopes(how, learnt.schema), sample=sample)
    beside = [] if sample is None else telling_scopes(sample, learnt.schema, parts[TRAIN].rows)
    if beside:
        more, _ = count(beside)
        parts = {k: replace(d, tables={**d.tables, **more[k].tables}) for k, d in parts.items()}
    return Aggregation(parts, learnt.notes, unknown, beside)


def _scopes(how: AggregateOptions, schema: Schema) -> list[Scope]:
    """The tables to count: those asked for, or those beside which the schema stood."""
    if how.tables != AUTO or how.schema is None or isinstance(how.schema, Schema):
        return parse_scopes(how.tables, schema)
    like = list(how.schema.tables) if isinstance(how.schema, AggregatedData) else load_scopes(how.schema)
    return [s for s in like if set(s) <= set(schema.names)] or parse_scopes(how.tables, schema)


def _count_there(frame: Any, columns: Columns, schema: Schema | None, how: AggregateOptions) -> Aggregation:
    """Records that stay where they are: only what is counted comes back."""
    import narwhals as nw

    from agglearn.aggregation.pushdown import count_tables_lazy, survey_lazy

    if how.split or how.target_encode:
        raise InputError(
            "a lazy source has no record numbers to split by: split it there, or read it as a file"
        )
    if schema is None:
        names = columns.feature_names(nw.from_native(frame).collect_schema().names())
        check_told(how, names)
        learnt = schema_of(names, columns, how, survey_lazy(frame, to_survey(names, columns)))
    elif how.grow:
        learnt = Learnt(*grown_schema(schema, survey_lazy(frame, growing(schema)), how))
    else:
        learnt = Learnt(schema)
    if is_relation(frame):
        return _counted(RelationSource.of(frame), learnt, schema is None, how)
    scopes = _scopes(how, learnt.schema)
    data, unknown = count_tables_lazy(
        frame, learnt.schema, scopes, how.hash_size, show_progress=how.show_progress
    )
    return Aggregation({TRAIN: data}, learnt.notes, unknown)
