"""A table of a DuckDB database, as a lazy frame to be counted where it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agglearn.errors import InputError, MissingExtraError
from agglearn.records.sources import one_line
from agglearn.schema.schema import some
from agglearn.spark.inputs import is_spark_input

_DATABASE = re.compile(r"(?P<path>.+\.(?:duckdb|ddb|db))(?::(?P<table>.+))?", re.IGNORECASE)


def split_database_input(text: str) -> tuple[Path, str | None] | None:
    """The file and the table that ``FILE.duckdb:TABLE`` names; None where it names no database."""
    found = None if is_spark_input(text) else _DATABASE.fullmatch(text)
    return (Path(found["path"]), found["table"]) if found else None


def open_database_table(path: str | Path, table: str | None = None) -> Any:
    """A table or view of a DuckDB database, opened read-only; the only one if none is named."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("Reading a DuckDB database", "duckdb") from None
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    try:
        connection = duckdb.connect(str(path), read_only=True)
        listed = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_catalog = current_database() ORDER BY ALL"
        ).fetchall()
    except duckdb.Error as error:
        raise InputError(f"{path} cannot be read as a DuckDB database: {one_line(error)}") from None
    # Whoever writes a schema's name too means that table; without it the main schema comes first.
    names = {f"{schema}.{name}": (schema, name) for schema, name in listed}
    names |= {name: (schema, name) for schema, name in listed if schema == "main"}
    if table is None and len(listed) == 1:
        table = listed[0][0] + "." + listed[0][1]
    if table is None or table not in names:
        there = some([name for name in names if name not in [f"main.{n}" for _, n in listed]])
        problem = f"has no table {table!r}" if table is not None else "has several tables"
        if not listed:
            raise InputError(f"{path} has no table in it")
        raise InputError(f"{path} {problem}: name one of {there} as {path.name}:TABLE")
    return connection.table(".".join(_quoted(part) for part in names[table]))


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
