"""Records that Spark has, or that its machines can read: folded there, each task its own.

A frame's records come to the tasks as Arrow batches. Parquet files that all machines see are read by the
tasks themselves, as one machine would read them: text stays the dictionary it is stored with, and a record
has the number that it has in the files, however they are divided.

A frame's records are numbered by their place: partition after partition, as they stand there. Numbers are
needed where records are divided by a split; then the frame is to give the same partitions whenever it is
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.errors import InputError
from agglearn.runtime.fold import Fold, Total
from agglearn.runtime.threads import limit_threads
from agglearn.schema.columns import check_supported, plain_batch
from agglearn.schema.places import marked
from agglearn.spark.fold import MOST_TASKS, explained, fold_frame, tasks_of

_Folded = TypeVar("_Folded", bound=Fold)
Work: TypeAlias = Callable[[Any], Any]  # on a batch of records
_NUMBER = "(agglearn number)"
_PLACE_BITS = 33  # of the number that Spark gives a record: the place in its partition
_ROWS = 1 << 18  # of a batch


class Dividing(Protocol):
    """What says which part of a split a record belongs to."""

    @property
    def shares(self) -> dict[str, float]: ...

    def of(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8] | None:
        """The parts of records by their numbers."""


# --- frames ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SparkFrame:
    """Records of a Spark DataFrame."""

    frame: Any
    rows: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        twice = [n for i, n in enumerate(self.frame.columns) if n in self.frame.columns[:i]]
        if twice:
            raise InputError(f"the frame: column {twice[0]!r} stands twice; rename one of them")
        if self.frame.isStreaming:
            raise InputError("records of a stream have no end: write them to a table, and read that")

    @property
    def columns(self) -> list[str]:
        return list(self.frame.columns)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches with these columns, partition after partition, a few in memory at a time."""
        return self.mapped(columns, _as_it_is)

    def count(self) -> int:
        """How many records there are."""
        with explained():
            return int(self.frame.count())

    def mapped(self, columns: Sequence[str], work: Work) -> Iterator[Any]:
        """What comes of each batch, worked on where it is; partition after partition."""
        return _brought(self._select(columns), _WorkedOn(_Named(list(columns)), work))

    def folded(self, parts: Dividing, columns: Sequence[str], make: Callable[[], _Folded]) -> _Folded:
        """A fold of these columns of all records."""
        frame, names = self._select(columns), list(columns)
        if not parts.shares:
            return fold_frame(frame, _ReadFrame(names, parts), make)
        counts = self._counts
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.uint64)
        reading = _ReadFrame([*names, _NUMBER], parts, firsts)
        whole = fold_frame(frame.select("*", _number()), reading, _Checked(make))
        if whole.counts != {p: n for p, n in enumerate(counts.tolist()) if n}:
            raise _changed()
        inner: _Folded = whole.inner
        return inner

    def _select(self, columns: Sequence[str]) -> Any:
        """The frame with these columns, whose types are known to us, under names that trip nothing up."""
        with explained():
            chosen = self.frame.select(*(_column(name).alias(f"c{i}") for i, name in enumerate(columns)))
            schema = chosen.limit(0).toArrow().schema
        for name, own in zip(columns, schema, strict=True):
            check_supported(name, own.type)
        return chosen

    @cached_property
    def _counts(self) -> npt.NDArray[np.int64]:
        """Records of each partition."""
        from pyspark.sql import functions as sql

        with explained():
            counted = self.frame.groupBy(sql.spark_partition_id().alias("partition")).count().toArrow()
        found = np.zeros(max(counted["partition"].to_pylist(), default=-1) + 1, np.int64)
        found[counted["partition"].to_numpy()] = counted["count"].to_numpy()
        return found


def _column(name: str) -> Any:
    """A column by its name, whatever characters that has."""
    from pyspark.sql import functions as sql

    return sql.col("`" + name.replace("`", "``") + "`")


def _number() -> Any:
    from pyspark.sql import functions as sql

    return sql.monotonically_increasing_id().alias(_NUMBER)


def _changed() -> InputError:
    return InputError(
        "the frame gives other partitions when it is read again, so its records cannot be divided by their "
        "numbers: write it to a table, and read that"
    )


class _ReadFrame:
    """Batches of a task of a frame, of a size that is worth the work, with the parts of their records."""

    def __init__(
        self, names: list[str], parts: Dividing, firsts: npt.NDArray[np.uint64] | None = None
    ) -> None:
        self._names, self._parts, self._firsts = names, parts, firsts

    def __call__(self, batches: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        from pyspark import TaskContext

        where, done = f"partition {TaskContext.get().partitionId()} of the frame", 0
        for batch in _gathered(batches, self._names):
            part = None
            if self._firsts is not None:
                numbers = batch.column(_NUMBER).to_numpy()
                place = (numbers & ((1 << _PLACE_BITS) - 1)).astype(np.uint64)
                partition = numbers >> _PLACE_BITS
                if int(partition.max()) >= len(self._firsts):
                    raise _changed()
                part = self._parts.of(self._firsts[partition] + place)
            yield marked(batch, where, done), part
            done += batch.num_rows


class _Checked:
    """What makes a fold that also counts the records of each partition of a frame."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __call__(self) -> _CheckedFold:
        return _CheckedFold(self._make())


class _CheckedFold:
    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.counts: dict[int, int] = {}

    def add(self, batch: Any, part: Any) -> None:
        partitions = batch.column(_NUMBER).to_numpy() >> _PLACE_BITS
        for partition, n in zip(*np.unique(partitions, return_counts=True), strict=True):
            self.counts[int(partition)] = self.counts.get(int(partition), 0) + int(n)
        self.inner.add(batch, part)

    def pieces(self) -> Iterator[Any]:
        for partition, n in self.counts.items():
            yield ("partition", partition), Total(n)
        for (what, *of), piece in self.inner.pieces():
            yield ("inner", what, *of), piece

    def take(self, pieces: Any) -> None:
        inner = []
        for (what, *of), piece in pieces:
            if what == "partition":
                self.counts[of[0]] = piece.value
            else:
                inner.append((tuple(of), piece))
        self.inner.take(inner)


def _gathered(batches: Iterator[Any], names: list[str]) -> Iterator[Any]:
    """Larger batches of many small ones, as Spark sends them, with the columns' own names."""
    held: list[Any] = []
    rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch.rename_columns(names))
        rows += batch.num_rows
        if rows >= _ROWS:
            yield joined(held)
            held, rows = [], 0
    if held:
        yield joined(held)


def joined(batches: list[Any]) -> Any:
    """One batch of several; moments are in UTC, whatever zone the session shows them in."""
    table = pa.Table.from_batches(batches).combine_chunks()
    arrays = []
    for column in table.columns:
        array = column.chunk(0)
        if pa.types.is_timestamp(array.type) and array.type.tz is not None:
            array = array.cast(pa.timestamp(array.type.unit, "UTC"))
        arrays.append(array)
    return plain_batch(pa.RecordBatch.from_arrays(arrays, names=table.column_names))


def _brought(frame: Any, written: _WorkedOn) -> Iterator[Any]:
    """What comes of a frame's batches, a few in memory at a time."""
    with explained():
        rows = frame.mapInArrow(written, "batch binary")
        for row in rows.toLocalIterator(prefetchPartitions=True):
            with pa.ipc.open_stream(pa.py_buffer(row[0])) as reader:
                yield from reader


class _Named:
    """Batches of a task of a frame, of a size that is worth the work."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return _gathered(batches, self._names)


class _WorkedOn:
    """What comes of batches as bytes, which come to the driver as they are."""

    def __init__(self, read: Callable[[Iterator[Any]], Iterator[Any]], work: Work) -> None:
        self._read, self._work = read, work

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        limit_threads(TaskContext.get().cpus())
        for batch in self._read(batches):
            sink, found = pa.BufferOutputStream(), self._work(batch)
            with pa.ipc.new_stream(sink, found.schema) as writer:
                writer.write_batch(found)
            yield pa.record_batch({"batch": pa.array([sink.getvalue().to_pybytes()], pa.binary())})


def _as_it_is(batch: Any) -> Any:
    return batch


def mapped(source: Any, columns: Sequence[str], work: Work) -> Iterator[Any]:
    """What comes of each batch of a source: worked on by its machines where it is spread over some."""
    if isinstance(source, SparkFrame):
        return source.mapped(columns, work)
    return map(work, source.batches(columns))


# --- files that all machines see -------------------------------------------------------------------


class FilePiece(Protocol):
    """Some records of a file that follow one another."""

    @property
    def path(self) -> Path: ...

    @property
    def first(self) -> int:
        """The number of its first record among all records."""

    @property
    def rows(self) -> int: ...

    def batches(self, columns: Sequence[str]) -> Iterator[Any]: ...


class DivisibleFiles(Protocol):
    """Files that can be read in pieces."""

    @property
    def columns(self) -> list[str]: ...

    @property
    def rows(self) -> int | None: ...

    def batches(self, columns: Sequence[str]) -> Iterator[Any]: ...

    def pieces(self) -> list[Any]:
        """All records, in pieces that follow one another."""


@dataclass(frozen=True, eq=False)
class SparkFiles:
    """Records of files that the driver and all executors see under one path."""

    session: Any
    files: DivisibleFiles

    @property
    def columns(self) -> list[str]:
        return self.files.columns

    @property
    def rows(self) -> int | None:
        return self.files.rows

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches with these columns, read here."""
        return self.files.batches(columns)

    def folded(self, parts: Dividing, columns: Sequence[str], make: Callable[[], _Folded]) -> _Folded:
        """A fold of these columns of all records."""
        runs = _runs(self.files.pieces(), tasks_of(self.session) or MOST_TASKS)
        with explained():
            tasks = self.session.range(0, len(runs), 1, max(len(runs), 1))
        return fold_frame(tasks, _ReadRuns(runs, parts, list(columns)), make)


def _runs(pieces: Sequence[FilePiece], most: int) -> list[list[FilePiece]]:
    """Pieces that follow one another, in at most so many runs of about as many records."""
    ends = np.cumsum([piece.rows for piece in pieces])
    if not len(ends) or not ends[-1]:
        return []
    runs: dict[int, list[FilePiece]] = {}
    for piece, end in zip(pieces, ends.tolist(), strict=True):
        runs.setdefault((end - 1 - piece.rows // 2) * most // int(ends[-1]), []).append(piece)
    return list(runs.values())


class _ReadRuns:
    """Batches of the files that a task reads, with the parts of their records."""

    def __init__(self, runs: list[list[FilePiece]], parts: Dividing, columns: list[str]) -> None:
        self._runs, self._parts, self._columns = runs, parts, columns

    def __call__(self, batches: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        for run in [run for batch in batches for run in batch.column("id").to_pylist()]:
            for piece in self._runs[run]:
                if not piece.path.exists():
                    raise InputError(
                        f"{piece.path} is there for the driver and not for an executor: put it where all "
                        "machines see it, such as a shared folder, hdfs:// or s3a://"
                    )
                at = piece.first
                for batch in piece.batches(self._columns):
                    numbers = np.arange(at, at + batch.num_rows, dtype=np.uint64)
                    yield batch, self._parts.of(numbers)
                    at += batch.num_rows
