"""What ``spark:TABLE_OR_PATH`` names: a table of the catalogue, a Delta table, Parquet files."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from agglearn.errors import AgglearnError, InputError
from agglearn.spark.fold import explained
from agglearn.spark.session import asked

SPARK_INPUT = "spark:"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_OTHERS = (".csv", ".tsv", ".txt", ".arrow", ".feather", ".ipc", ".gz", ".zst", ".json", ".orc", ".avro")


def is_spark_input(data: Any) -> bool:
    """Whether this names something that Spark is to read."""
    return isinstance(data, str) and data.startswith(SPARK_INPUT)


def open_input(session: Any, named: str) -> Any:
    """The frame of a table, a Delta table or Parquet files."""
    if not named.strip():
        raise InputError(
            f"{SPARK_INPUT} names nothing: say which table or path, as {SPARK_INPUT}sales.clicks"
        )
    with explained():
        if not _is_path(named):
            return _table(session, named)
        if _is_delta(session, named):
            return _delta(session, named)
        if named.lower().endswith(_OTHERS):
            raise InputError(
                f"{SPARK_INPUT}{named} is neither Parquet nor Delta: read it into a DataFrame and give that, "
                f"or leave out {SPARK_INPUT}"
            )
        return session.read.parquet(named)


def write_frame(frame: Any, named: str) -> None:
    """Write a frame as Parquet files, or as a table of the catalogue; nothing that exists is replaced."""
    if not named.strip():
        raise InputError(f"{SPARK_INPUT} names nothing: say which table or path to write")
    writer = frame.write.mode("errorifexists")
    try:
        asked(partial(writer.parquet if _is_path(named) else writer.saveAsTable, named))
    except AgglearnError as error:
        if "ALREADY_EXISTS" not in str(error.__cause__):
            raise
        raise InputError(f"{SPARK_INPUT}{named} exists already: name another output") from None


def shared_path(session: Any, named: str) -> str | None:
    """The path of Parquet files that every machine sees as this one does; None if Spark is to read them."""
    if not named.strip() or not _is_path(named):
        return None
    scheme = _SCHEME.match(named)
    if scheme is not None and not named.startswith("file:/"):
        return None
    if scheme is None and not _default_file_system(session).startswith("file:"):
        return None
    path = unquote(urlparse(named).path) if scheme is not None else named
    if named.lower().endswith(_OTHERS) or (Path(path) / "_delta_log").is_dir() or _has_columns_in_names(path):
        return None
    return str(Path(path).absolute())  # a task runs in a folder of its own


def scanned_files(frame: Any) -> list[str] | None:
    """The Parquet files that a frame is nothing but a scan of, where every machine sees them; None otherwise.

    Java hands a frame's records over row by row, which takes longer than counting them does.
    """
    plan = getattr(frame, "_jdf", None) and frame._jdf.queryExecution().analyzed()
    if plan is None or not plan.getClass().getName().endswith(".LogicalRelation"):
        return None
    relation = plan.relation()
    if not relation.getClass().getName().endswith(".HadoopFsRelation") or frame.isStreaming:
        return None
    if str(relation.fileFormat()) != "Parquet" or not relation.partitionSchema().isEmpty():
        return None
    session, names = frame.sparkSession, sorted(frame.inputFiles())
    paths = [shared_path(session, name) for name in names]
    if not paths or None in paths or session.read.parquet(*names).schema != frame.schema:
        return None  # a schema that was given may make other values of what is in the files
    return [str(path) for path in paths]


def _is_path(named: str) -> bool:
    return (
        "/" in named
        or os.sep in named
        or named.lower().endswith((".parquet", *_OTHERS))
        or Path(named).exists()
    )


def _has_columns_in_names(path: str) -> bool:
    """Whether folders are named by values, as ``day=2026-03-01``: Spark makes columns of these."""
    return Path(path).is_dir() and any(p.is_dir() for p in Path(path).glob("*=*"))


def _default_file_system(session: Any) -> str:
    context = getattr(session, "sparkContext", None)
    if context is None:
        return ""
    return str(context._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///")


def _is_delta(session: Any, named: str) -> bool:
    if _SCHEME.match(named) is None and _default_file_system(session).startswith("file:"):
        return (Path(named) / "_delta_log").is_dir()
    context = getattr(session, "sparkContext", None)
    if context is None:
        return False
    log = context._jvm.org.apache.hadoop.fs.Path(named.rstrip("/") + "/_delta_log")
    return bool(log.getFileSystem(context._jsc.hadoopConfiguration()).exists(log))


def _delta(session: Any, named: str) -> Any:
    try:
        return session.read.format("delta").load(named)
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise InputError(
            f"{SPARK_INPUT}{named} is a Delta table, and this Spark has no Delta: start it with "
            "spark.jars.packages and spark.sql.extensions as Delta's guide says"
        ) from None


def _table(session: Any, named: str) -> Any:
    try:
        frame = session.table(named)
        _ = frame.columns  # looked up here, not at the first pass
        return frame
    except Exception as error:
        if "TABLE_OR_VIEW_NOT_FOUND" not in str(error) and "PARSE_SYNTAX_ERROR" not in str(error):
            raise
        raise InputError(
            f"Spark knows no table {named!r}: name one of its catalogue as schema.table, or a path with a "
            f"slash in it, as {SPARK_INPUT}./{named}"
        ) from None
