"""What is known beside tables: records, with their labels or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.aggregation.api import aggregate
from agglearn.aggregation.pushdown import is_lazy
from agglearn.errors import InputError
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.field.members import Members
from agglearn.field.problem import Problem, layout_of
from agglearn.field.public import PublicTable, holders_of
from agglearn.field.rake import rake
from agglearn.receive.tables import read_tables
from agglearn.records.options import ReadOptions
from agglearn.records.sources import Source, open_source
from agglearn.records.spread import SparkFrame, mapped
from agglearn.runtime.arrays import from_numpy, to_numpy
from agglearn.runtime.memory import require
from agglearn.runtime.progress import meter
from agglearn.runtime.speech import option
from agglearn.schema.rules import code_type
from agglearn.schema.schema import Schema, require_columns
from agglearn.tables.data import AggregatedData

_WORST = 20  # distances that are kept of all tables
_WORKSPACE = 40  # bytes a record beside its codes


@dataclass(frozen=True, eq=False)
class CodedRecords:
    """Records as codes, those with an unknown value left out.

    Attributes
    ----------
    codes
        A row for each feature.
    left_out
        How many had a value that the tables do not know.
    labelled
        Whether they had a column of the label's name, which was not looked at.
    """

    codes: Codes
    left_out: int
    labelled: bool


@dataclass(frozen=True)
class RecordsUsed:
    """How records stood in for the law of X: what a report says of it.

    Attributes
    ----------
    rows, left_out, labelled
        How many there were, how many more had unknown values, and whether a label was there (and not looked
        at).
    same
        Whether they are the records behind the tables.
    effective, greatest
        How many of equal weight they are worth, and the greatest weight, the usual one being 1.
    share
        What they were trusted with beside the chains; 1 where there were none.
    kept
        How many of them the model keeps as its law of X.
    distances
        The tables (features or their names) whose counts were farthest from the records', in standard errors
        beyond chance.
    """

    rows: int
    left_out: int
    labelled: bool
    same: bool
    effective: float
    greatest: float
    share: float
    kept: int
    distances: tuple[tuple[Any, float], ...]

    def to_json(self) -> dict[str, Any]:
        """The account as plain JSON values."""
        return {**vars(self), "distances": [list(pair) for pair in self.distances]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RecordsUsed:
        """The account that :meth:`to_json` gave."""
        pairs = tuple((str(name), float(z)) for name, z in document["distances"])
        return cls(**{**document, "distances": pairs})


def source_of(records: Any, columns: Sequence[str], read: ReadOptions | None = None) -> Source:
    """Records to read: any source that can be aggregated."""
    if is_lazy(records):
        frame = nw.from_native(records)
        present = frame.collect_schema().names()
        require_columns([c for c in columns if c not in present], present)
        return open_source(frame.collect(backend="pyarrow").to_native())
    return open_source(records, read)


def code_features(
    records: Any,
    schema: Schema,
    label: str,
    read: ReadOptions | None = None,
    *,
    show_progress: bool = False,
) -> CodedRecords:
    """Codes of records, read a batch at a time; no label is looked at."""
    source = source_of(records, schema.names, read)
    require_columns(schema.names, source.columns)
    cards = np.array(schema.cards)[:, None]
    present = source.count() if isinstance(source, SparkFrame) else source.rows
    if present is not None:
        room = _WORKSPACE + 2 * len(schema.names) * np.dtype(code_type(max(schema.cards))).itemsize
        require(room * present, f"{present:,} records in memory", "give fewer of them, such as a sample")
    parts: list[Codes] = []
    unknown, rows, kept = np.zeros(len(schema.names), np.int64), 0, 0
    with meter("reading records", source.rows, show=show_progress) as advance:
        for batch in mapped(source, list(schema.names), _Coding(schema)):
            codes = np.stack([to_numpy(column) for column in batch.columns])
            strange = codes >= cards
            unknown += strange.sum(axis=1)
            known = ~strange.any(axis=0)
            parts.append(codes if known.all() else np.ascontiguousarray(codes[:, known]))
            rows, kept = rows + codes.shape[1], kept + int(known.sum())
            require(_WORKSPACE * kept, f"{kept:,} records in memory", "give fewer of them")
            advance(batch.num_rows)
    if not rows:
        raise InputError("there are no records to learn X from")
    if not kept:
        worst = int(np.argmax(unknown))
        raise InputError(
            f"no record has values that the tables know: of {rows:,}, {unknown[worst]:,} have an unknown one "
            f"of {schema.names[worst]!r}; are they of the same source?"
        )
    return CodedRecords(np.concatenate(parts, axis=1), rows - kept, label in source.columns)


class _Coding:
    """What makes codes of a batch, a column for each feature."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def __call__(self, batch: Any) -> Any:
        codes = self._schema.encode(batch)
        return pa.record_batch([from_numpy(row) for row in codes], names=[f"{f}" for f in range(len(codes))])


def with_records(
    problem: Problem, given: CodedRecords, threads: int, *, weigh: bool = True
) -> tuple[Problem, RecordsUsed]:
    """The problem with records as its law of X, weighted to agree with its tables."""
    raked = rake(problem, Members.evenly(problem.layout, given.codes, threads), weigh=weigh)
    used = RecordsUsed(
        rows=given.codes.shape[1],
        left_out=given.left_out,
        labelled=given.labelled,
        same=raked.same,
        effective=raked.members.size,
        greatest=raked.greatest,
        share=1.0,
        kept=0,
        distances=_farthest(problem.layout, raked.distances),
    )
    return replace(problem, records=raked.members), used


def _farthest(layout: Layout, distances: npt.NDArray[np.float64]) -> tuple[tuple[Any, float], ...]:
    told = [t for t in np.argsort(-np.nan_to_num(distances, nan=-np.inf)) if np.isfinite(distances[t])]
    return tuple((layout.scopes[t], float(distances[t])) for t in told[:_WORST])


def public_tables(given: Any, like: AggregatedData, read: ReadOptions | None = None) -> list[PublicTable]:
    """Public counts of X: tables, or files of them with the values of some features and a count each.

    Labels among them are not looked at; ``like`` are the tables that they are to tell of.
    """
    schema, layout = like.schema, layout_of(like)
    if not isinstance(given, AggregatedData):
        options = read or ReadOptions()
        given = read_tables(
            given,
            label=[],
            schema=schema,
            absent="zero",
            separator=options.separator,
            encoding=options.encoding,
            missing=options.missing,
        ).data
    if given.schema.features != schema.features:
        raise InputError(
            "the public tables have another schema than the tables of the records: count them by that one "
            f"({option('schema', 'TRAIN.agg')})"
        )
    found = []
    for scope, table in given.tables.items():
        if not table.cells.dense or table.measured is not None:
            raise InputError(f"public table {table.title} lacks cells: only whole tables can be used")
        if not table.counts.sum() > 0:
            raise InputError(f"public table {table.title} counts no record")
        places = [schema.index[name] for name in scope]
        if not holders_of(layout, tuple(places)):
            raise InputError(
                f"public table {table.title}: no table of the records holds "
                f"{'it' if len(places) == 1 else 'these features together'}, so that there is nothing to tell"
            )
        order = np.argsort(places)
        counts = np.transpose(table.counts.astype(np.float64), order)
        found.append(PublicTable(tuple(places[i] for i in order), counts, float(table.noise_moments.count)))
    return found


def tables_of(
    records: Any, like: AggregatedData, label: str | None, read: ReadOptions | None = None
) -> AggregatedData:
    """Tables of labelled records, coded and counted as others are."""
    names = like.schema.labels if label is None else (like.schema.labels[like.label_index(label)],)
    require_columns([own.name for own in names], source_of(records, (), read).columns, "label")
    buckets = {table.cells.buckets for table in like.tables.values()} - {0}
    return aggregate(
        records,
        [own.name for own in names],
        positive=[own.positive for own in names],
        schema=like.schema,
        tables=list(like.tables),
        hash_size=max(buckets) if buckets else None,
        read=read or ReadOptions(),
    )
