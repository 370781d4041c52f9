"""Where records come from: files, frames, readers and clusters, all as Arrow batches.

A source knows its columns and can be read more than once, a batch at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from agglearn.errors import InputError
from agglearn.records.files import FileSource, expand
from agglearn.records.frames import FrameSource, SpooledSource, to_arrow
from agglearn.records.options import ReadOptions
from agglearn.records.spread import SparkFiles, SparkFrame
from agglearn.spark.inputs import SPARK_INPUT, is_spark_input, open_input, scanned_files, shared_path
from agglearn.spark.session import is_frame, open_session


@runtime_checkable
class Source(Protocol):
    """Records that can be read again and again, a batch at a time."""

    @property
    def columns(self) -> list[str]: ...

    @property
    def rows(self) -> int | None:
        """How many records there are, where that is known beforehand."""

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches with these columns."""


def open_source(data: Any, options: ReadOptions | None = None) -> Source:
    """A source for paths (files, globs, folders), frames, Arrow tables, readers; a source is one already."""
    options = options or ReadOptions()
    if is_frame(data):
        return _scan(data) or SparkFrame(data)
    if is_spark_input(data):
        return _open_spark([data])
    if isinstance(data, list | tuple) and any(map(is_spark_input, data)):
        return _open_spark(data)
    if isinstance(data, str | os.PathLike):
        return FileSource(expand([os.fspath(data)]), options)
    if isinstance(data, list | tuple) and data and all(isinstance(d, str | os.PathLike) for d in data):
        return FileSource(expand([os.fspath(d) for d in data]), options)
    if isinstance(data, pa.RecordBatchReader):
        return SpooledSource(data)
    if isinstance(data, Source):
        return data
    return FrameSource(to_arrow(data))


def _open_spark(inputs: Sequence[str]) -> Source:
    """What ``spark:…`` names: files that every machine sees are read by the tasks, all else by Spark."""
    if len(inputs) > 1:
        raise InputError(f"{inputs[0]} and {inputs[1]}: what Spark reads is one table or one path, by itself")
    session = open_session()
    named = inputs[0].removeprefix(SPARK_INPUT)
    path = shared_path(session, named)
    if path is None:
        return SparkFrame(open_input(session, named))
    return SparkFiles(session, FileSource(expand([path]), ReadOptions()))


def _scan(frame: Any) -> SparkFiles | None:
    """The files of a frame that is nothing but these, if they all have the same columns."""
    import pyarrow.parquet as pq

    paths = scanned_files(frame)
    if paths is None:
        return None
    schemas = [pq.read_schema(path) for path in paths]
    if not all(schema.equals(schemas[0]) for schema in schemas):
        return None  # Spark fills in what is missing in some
    return SparkFiles(frame.sparkSession, FileSource([Path(path) for path in paths], ReadOptions()))
