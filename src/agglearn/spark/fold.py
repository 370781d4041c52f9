"""One pass over records on a cluster: every task folds its batches, and what they hold is summed in a tree.

Pieces come back whole, one for each key, never the records. Tasks that are run again, late or twice change
nothing: what a piece holds depends on the records alone, and pieces are added in the order of their tasks.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from agglearn import errors
from agglearn.errors import AgglearnError, InputError
from agglearn.runtime.fold import Fold
from agglearn.runtime.threads import limit_threads
from agglearn.spark.session import require_package

Batches: TypeAlias = Iterator[Any]
Reading: TypeAlias = Callable[[Batches], Iterator[tuple[Any, Any]]]
_Folded = TypeVar("_Folded", bound=Fold)

_COLUMNS = "key string, task int, piece binary"
_SCHEMA = pa.schema([("key", pa.string()), ("task", pa.int32()), ("piece", pa.binary())])
_FAN_IN = 16  # pieces that are added up at once
_FEW_TASKS = 4  # whose pieces the driver adds up by itself
_BATCH_BYTES = 1 << 24
_FAILED = "failed"

MOST_TASKS = 4096
"""Tasks of a pass where nobody knows how many run at a time."""


def tasks_of(session: Any) -> int | None:
    """How many tasks a pass is divided into: as many as run at a time, for each brings home all it holds.

    None where that is not known: of a session elsewhere, or of a cluster that grows while it works.
    """
    context = getattr(session, "sparkContext", None)
    if context is None:
        return None
    conf = context.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        return None
    # Executors that have not come up yet are not among those that Spark counts.
    promised = int(conf.get("spark.executor.instances", "0")) * int(conf.get("spark.executor.cores", "1"))
    cores = max(int(context.defaultParallelism), promised, int(conf.get("spark.cores.max", "0")))
    return max(cores // int(conf.get("spark.task.cpus", "1")), 1)


def fold_frame(frame: Any, read: Reading, make: Callable[[], _Folded]) -> _Folded:
    """Fold the batches of a frame where they are.

    Parameters
    ----------
    frame
        A Spark DataFrame: its Arrow batches are what ``read`` is given.
    read
        What makes batches of records, each with the parts that its records belong to, of a task's batches.
    make
        What makes a fold, here and in every task.
    """
    _require_package(frame.sparkSession)
    most = tasks_of(frame.sparkSession)
    tasks = MOST_TASKS if most is None else most
    with explained():
        rows = (frame if most is None else frame.coalesce(most)).mapInArrow(_Folding(read, make), _COLUMNS)
        while tasks > _FEW_TASKS:
            above = (rows["task"] / _FAN_IN).cast("int").alias("above")
            rows = rows.groupBy("key", above).applyInArrow(_summed, _COLUMNS)
            tasks = -(-tasks // _FAN_IN)
        found = rows.toArrow()
    pieces: dict[str, Any] = {}
    for key, piece in _in_order(found):
        if key in pieces:
            pieces[key].merge(piece)
        else:
            pieces[key] = piece
    if _FAILED in pieces:
        raise pieces[_FAILED].error()
    whole = make()
    whole.take((tuple(json.loads(key)), piece) for key, piece in pieces.items())
    return whole


@lru_cache(maxsize=1)
def _require_package(session: Any) -> None:
    """Look once whether a session's executors have this package."""
    if getattr(session, "sparkContext", None) is not None:
        require_package(session)


@contextmanager
def explained() -> Iterator[None]:
    """Turn what Spark raises into one line; an exception of our own code in a task stays what it is."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "PySpark does not yet fully support", FutureWarning)
            yield
    except AgglearnError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")) or "PythonException" in str(error):
            raise
        raise InputError(f"Spark could not read the records: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What an error of Spark says first: the rest is where in Java it was."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    said = causes[-1].removeprefix("Caused by: ") if causes else (lines or [type(error).__name__])[0]
    return said.split("; SQLSTATE")[0].split(" SQLSTATE")[0].rstrip(" .")[:300]


class _Failure:
    """A mistake of the user's that a task met; the one of the first task is told."""

    def __init__(self, error: AgglearnError) -> None:
        self.kind, self.text = type(error).__name__, str(error)

    def merge(self, other: _Failure) -> None:
        """That of an earlier task stays."""

    def error(self) -> AgglearnError:
        kind: type[AgglearnError] = getattr(errors, self.kind, AgglearnError)
        return kind(self.text)


class _Folding:
    """What a task does: fold its batches, and take what it has apart."""

    def __init__(self, read: Reading, make: Callable[[], Fold]) -> None:
        self._read, self._make = read, make

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        limit_threads(context.cpus())
        own = self._make()
        pieces: Iterable[tuple[str, Any]]
        try:
            for batch, part in self._read(batches):
                own.add(batch, part)
            pieces = ((json.dumps(key), piece) for key, piece in own.pieces())
        except AgglearnError as error:
            # Raised, it would be tried again and again, and come back as a page of text.
            pieces = [(_FAILED, _Failure(error))]
        yield from _rows(pieces, context.partitionId())


def _rows(pieces: Iterable[tuple[str, Any]], task: int) -> Batches:
    """Pieces as batches of rows, none of them large."""
    keys: list[str] = []
    held: list[bytes] = []
    size = 0
    for key, piece in pieces:
        keys.append(key)
        held.append(_plain().dumps(piece))
        size += len(held[-1])
        if size > _BATCH_BYTES:
            yield _batch(keys, held, task)
            keys, held, size = [], [], 0
    yield _batch(keys, held, task)


def _batch(keys: list[str], pieces: list[bytes], task: int) -> Any:
    return pa.record_batch([keys, pa.array([task] * len(keys), pa.int32()), pieces], schema=_SCHEMA)


def _summed(rows: Any) -> Any:
    """Pieces of one key, added up in the order of their tasks; what they come to stands for a task above."""
    ((key, total), *rest) = _in_order(rows)
    for _, piece in rest:
        total.merge(piece)
    above = rows["task"][0].as_py() // _FAN_IN
    return pa.Table.from_batches([_batch([key], [_plain().dumps(total)], above)])


def _in_order(rows: Any) -> Iterator[tuple[str, Any]]:
    """Keys and pieces of rows, in the order of their tasks."""
    keys, pieces = rows["key"], rows["piece"]
    for i in np.argsort(rows["task"].to_numpy(), kind="stable").tolist():
        yield keys[i].as_py(), _plain().loads(pieces[i].as_py())


def _plain() -> Any:
    """How Spark itself writes what tasks of one job pass on to each other."""
    from pyspark.serializers import CPickleSerializer

    return CPickleSerializer()
