"""Files with tables, as a GROUP BY gives them: values of features, a count, a sum per label.

The columns of a file say which table it is: all but the count and the sums are features. A file may also
hold several (:mod:`.layouts`). A value may be written as the modality's text, as the queries of
:mod:`agglearn.sql.queries` do, or as it was in the records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from agglearn.aggregation.groups import Groups
from agglearn.errors import InputError, TableError
from agglearn.receive.layouts import (
    Part,
    grouping_column,
    long_columns,
    split_by_id,
    split_long,
    split_named,
    split_sets,
    table_column,
)
from agglearn.receive.release import Received, Release
from agglearn.receive.values import (
    MOST_VALUES,
    Unknown,
    Vocabulary,
    encode,
    is_gap,
    read_numbers,
    refuse_fractions,
)
from agglearn.records.files import FileSource, expand
from agglearn.records.learn import ColumnNote
from agglearn.records.options import ReadOptions
from agglearn.runtime.options import at_least, check_bounds
from agglearn.runtime.progress import meter
from agglearn.runtime.speech import option
from agglearn.schema.features import Feature
from agglearn.schema.schema import Label, Schema, some
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load_schema
from agglearn.tables.noise import Noise
from agglearn.tables.table import Array, Scope

COUNT_NAMES = ("count", "n", "cnt", "examples")
"""Names by which a column is taken for the count, in any case, if none is told."""


def receive_tables(files: Any, **options: Any) -> AggregatedData:
    """Read tables from files, one table a file or several.

    Parameters
    ----------
    files
        A path or several: CSV, TSV, Parquet or Arrow files, globs, folders.
    **options
        Those of :func:`read_tables`.
    """
    return read_tables(files, **options).data


def read_tables(
    files: Any,
    *,
    label: str | Sequence[str] | None = None,
    schema: Schema | str | Path | None = None,
    count: str | None = None,
    noise: Noise | None = None,
    floor: float | None = None,
    absent: str | None = None,
    rows: float | None = None,
    positives: Sequence[float] | None = None,
    hash_size: int | None = None,
    max_modalities: int = MOST_VALUES,
    separator: str | None = None,
    encoding: str = ReadOptions.encoding,
    missing: Sequence[str] = (),
    show_progress: bool = False,
) -> Received:
    """Read tables from files, one table a file or several, and say what was found on the way.

    Parameters
    ----------
    files
        A path or several: CSV, TSV, Parquet or Arrow files, globs, folders.
    label
        Columns with the sums of the labels; those of the schema by default.
    schema
        The schema the tables were made by, or the path of one or of an ``.agg``. Without it every
        column is a category with the values that the files have.
    count
        The column with the count; by default the one called count, n, cnt or examples.
    noise, floor, absent, rows, positives
        What is known of the numbers: see :class:`Release`.
    hash_size
        Tables with more cells than this are hashed to so many buckets.
    max_modalities
        Without a schema, a feature keeps at most so many values; the rarer share one modality.
    separator, encoding, missing
        How text files are written. An empty value is a missing one (unless the schema has it as a
        value); ``missing`` lists other texts that are.
    """
    release = Release(noise, floor, absent, rows, positives)
    at_least(2, "small", hash_size=hash_size)
    check_bounds(hash_size=hash_size)
    if isinstance(schema, str | Path):
        schema = load_schema(schema)
    labels = _labels(label, schema)
    options = ReadOptions(separator, encoding, tuple(missing))
    opened = [_TableFile.open(path, options, labels, schema, count) for path in _paths(files)]
    found = [table for file in opened for table in file.tables(schema, noise is None)]
    _refuse_twice(found)
    with meter("reading", show=show_progress) as advance:
        notes: list[ColumnNote] = []
        if schema is None:
            features, notes = _vocabularies(found, max_modalities, advance)
            schema = Schema(tuple(features), labels)
        else:
            schema = Schema(schema.features, labels)
        scopes = [tuple(sorted(file.features, key=schema.index.__getitem__)) for file in found]
        groups, unknown = [], Unknown(schema)
        for file, scope in zip(found, scopes, strict=True):
            table = Groups(scope, schema, hash_size)
            for batch, numbers in file.batches(advance):
                codes = [encode(schema.feature(name), batch.column(name)) for name in scope]
                table.add(codes, numbers)
                unknown.add(scope, codes, numbers)
            groups.append(table)
    return Received(release.assemble(schema, groups), notes, unknown.by_feature())


def _paths(files: Any) -> list[Path]:
    patterns = [files] if isinstance(files, str | os.PathLike) else list(files)
    found = expand([os.fspath(p) for p in patterns])
    if not found:
        raise InputError("no file is given to read tables from")
    return found


def _labels(label: str | Sequence[str] | None, schema: Schema | None) -> tuple[Label, ...]:
    if label is None:
        if schema is None:
            raise InputError(f"no label is named: say which column has its sum with {option('label')}")
        return schema.labels
    names = [label] if isinstance(label, str) else list(label)
    known = {} if schema is None else {x.name: x for x in schema.labels}
    return tuple(known.get(name, Label(name)) for name in names)


# --- files -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TableFile:
    """A file with one table or several, and what its columns are."""

    path: Path
    source: FileSource
    others: tuple[str, ...]
    count: str
    sums: tuple[str, ...]

    @classmethod
    def open(
        cls,
        path: Path,
        options: ReadOptions,
        labels: Sequence[Label],
        schema: Schema | None,
        count: str | None,
    ) -> _TableFile:
        source = FileSource([path], options)
        sums = tuple(label.name for label in labels)
        for name in sums:
            if name not in source.columns:
                raise InputError(
                    f"{path} has no column {name!r} with the sum of that label: its columns are "
                    f"{some(source.columns)}"
                )
        left = [name for name in source.columns if name not in sums]
        count = _count_column(path, left, schema, count)
        others = tuple(name for name in left if name != count)
        if not others:
            raise InputError(f"{path} has no column besides its numbers: a table needs a feature")
        return cls(path, source, others, count, sums)

    def tables(self, schema: Schema | None, exact: bool) -> list[_Table]:
        """The tables of the file, whichever way it holds them."""
        known = () if schema is None else schema.names
        apart = [name for name in self.others if name not in known]
        pairs, by_id, named = long_columns(apart), grouping_column(apart), table_column(apart)
        if pairs is not None:
            rows, numbers = self._whole(exact)
            return self._parts(split_long(self.path, rows, numbers, pairs), schema)
        if by_id is not None:
            features = [name for name in self.others if name not in (by_id, named)]
            rows, numbers = self._whole(exact)
            return self._parts(split_by_id(self.path, rows, numbers, by_id, features), schema)
        if named is not None:
            features = [name for name in self.others if name != named]
            rows, numbers = self._whole(exact)
            parts = split_named(self.path, rows, numbers, named, features)
            if parts is not None:
                return self._parts(parts, schema)
        if len(self.others) > 1 and self._has_gaps():
            rows, numbers = self._whole(exact)
            parts = split_sets(self.path, rows, numbers, self.others, exact)
            if parts is not None:
                return self._parts(parts, schema)
        return [_Table.checked(self, self.others, schema, exact)]

    def _parts(self, parts: Sequence[Part], schema: Schema | None) -> list[_Table]:
        if not parts:
            raise InputError(f"{self.path} has no rows of a table with a feature")
        return [_Table.checked(self, part.scope, schema, True, part) for part in parts]

    def _has_gaps(self) -> bool:
        return any(is_gap(batch.column(n)) for batch in self.source.batches(self.others) for n in self.others)

    def _whole(self, exact: bool) -> tuple[Any, Array]:
        """All rows at once, and their numbers."""
        batches, numbers = [], []
        for batch, found in self.batches(self.others, exact):
            batches.append(batch.select(list(self.others)))
            numbers.append(found)
        return pa.Table.from_batches(batches), np.concatenate(numbers, axis=1)

    def batches(self, features: Sequence[str], exact: bool) -> Iterator[tuple[Any, Array]]:
        """Batches of rows, each with its numbers: the count, then the sum of each label."""
        done = 0
        for batch in self.source.batches([*features, self.count, *self.sums]):
            names = [self.count, *self.sums]
            numbers = [read_numbers(batch.column(n), n, self.path, done) for n in names]
            if exact:
                refuse_fractions(numbers, names, self.path, done)
            yield batch, np.stack(numbers)
            done += batch.num_rows
        if not done:
            raise InputError(f"{self.path} has no rows: leave it out")


@dataclass(frozen=True)
class _Table:
    """One table of a file: the whole of it, or a part that was taken out of it."""

    file: _TableFile
    features: Scope
    exact: bool
    part: Part | None = None

    @classmethod
    def checked(
        cls, file: _TableFile, features: Scope, schema: Schema | None, exact: bool, part: Part | None = None
    ) -> _Table:
        """The table, if the schema knows its features."""
        if schema is not None:
            odd = [name for name in features if name not in schema.index]
            if odd:
                raise InputError(f"{file.path} has the column {some(odd)}, which the schema does not know")
        return cls(file, features, exact, part)

    @property
    def path(self) -> Path:
        return self.file.path

    def batches(self, advance: Any) -> Iterator[tuple[Any, Array]]:
        """Batches of rows, each with its numbers."""
        if self.part is not None:
            yield self.part.columns, self.part.numbers
            advance(self.part.columns.num_rows)
            return
        for batch, numbers in self.file.batches(self.features, self.exact):
            yield batch, numbers
            advance(batch.num_rows)


def _count_column(path: Path, names: Sequence[str], schema: Schema | None, told: str | None) -> str:
    if told is not None:
        if told not in names:
            raise InputError(f"{path} has no column {told!r} for the count: there are {some(names)}")
        return told
    features = () if schema is None else schema.names
    found = [n for n in names if n not in features and n.casefold().rstrip("_") in COUNT_NAMES]
    if not found:
        raise InputError(
            f"{path} has no column called {', '.join(COUNT_NAMES)}: say which is the count with "
            f"{option('count')} (there are {some(names)})"
        )
    stems = {n.casefold().rstrip("_") for n in found}
    if len(stems) > 1:
        raise InputError(f"{path} may have its count in {some(found)}: say which with {option('count')}")
    # A feature that is called count keeps its name, and the count is called count_ instead.
    return max(found, key=len)


def _refuse_twice(files: Sequence[_Table]) -> None:
    first: dict[frozenset[str], Path] = {}
    for file in files:
        other = first.setdefault(frozenset(file.features), file.path)
        if other is not file.path:
            raise TableError(
                f"{file.path} and {other} are both the table {' × '.join(file.features)}: give one of them"
            )


def _vocabularies(
    files: Sequence[_Table], max_modalities: int, advance: Any
) -> tuple[list[Feature], list[ColumnNote]]:
    """A categorical feature for each column, with the values that the files have."""
    vocabularies: dict[str, Vocabulary] = {}
    for file in files:
        for batch, numbers in file.batches(advance):
            for name in file.features:
                vocabulary = vocabularies.setdefault(name, Vocabulary(name))
                vocabulary.add(batch.column(name), numbers[0])
    learnt = [v.feature(max_modalities) for v in vocabularies.values()]
    return [feature for feature, _ in learnt], [note for _, note in learnt]
