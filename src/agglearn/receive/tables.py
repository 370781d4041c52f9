"""Files with one table each, as a GROUP BY gives them: values of features, a count, a sum per label.

The columns of a file say which table it is: all but the count and the sums are features. A value may be
written as the modality's text, as the queries of :mod:`agglearn.sql.queries` do, or as it was in the
records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agglearn.aggregation.groups import Groups
from agglearn.errors import InputError, TableError
from agglearn.receive.release import Received, Release
from agglearn.receive.values import MOST_VALUES, Unknown, Vocabulary, encode, read_numbers
from agglearn.records.learn import ColumnNote
from agglearn.records.options import ReadOptions
from agglearn.records.sources import FileSource, expand
from agglearn.runtime.options import at_least
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
    """Read tables from files, one table a file.

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
    """Read tables from files, one table a file, and say what was found on the way.

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
    if isinstance(schema, str | Path):
        schema = load_schema(schema)
    labels = _labels(label, schema)
    options = ReadOptions(separator, encoding, tuple(missing))
    found = [_TableFile.open(path, options, labels, schema, count) for path in _paths(files)]
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
    """A file with a table, and what its columns are."""

    path: Path
    source: FileSource
    features: Scope
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
        features = tuple(name for name in left if name != count)
        if not features:
            raise InputError(f"{path} has no column besides its numbers: a table needs a feature")
        if schema is not None:
            odd = [name for name in features if name not in schema.index]
            if odd:
                raise InputError(f"{path} has the column {some(odd)}, which the schema does not know")
        return cls(path, source, features, count, sums)

    def batches(self, advance: Any) -> Iterator[tuple[Any, Array]]:
        """Batches of rows, each with its numbers: the count, then the sum of each label."""
        done = 0
        for batch in self.source.batches([*self.features, self.count, *self.sums]):
            names = [self.count, *self.sums]
            numbers = [read_numbers(batch.column(n), n, self.path, done) for n in names]
            yield batch, np.stack(numbers)
            done += batch.num_rows
            advance(batch.num_rows)
        if not done:
            raise InputError(f"{self.path} has no rows: leave it out")


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


def _refuse_twice(files: Sequence[_TableFile]) -> None:
    first: dict[frozenset[str], Path] = {}
    for file in files:
        other = first.setdefault(frozenset(file.features), file.path)
        if other is not file.path:
            raise TableError(
                f"{file.path} and {other} are both the table {' × '.join(file.features)}: give one of them"
            )


def _vocabularies(
    files: Sequence[_TableFile], max_modalities: int, advance: Any
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
