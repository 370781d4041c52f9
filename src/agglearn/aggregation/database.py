"""Tables and queries of DuckDB, which runs in this process: its records are counted as they come by.

Asked for each table by a GROUP BY of its own, it would read the records once a table. One query for the
columns that are needed gives them to the kernel a batch at a time, which counts all tables at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from agglearn.errors import InputError, MissingExtraError, one_line
from agglearn.records.options import BATCH_ROWS
from agglearn.schema.columns import check_supported, plain_batch
from agglearn.schema.places import marked
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


def is_relation(data: Any) -> bool:
    """Whether this is a relation of DuckDB, or a lazy frame that is one beneath; DuckDB is not imported."""
    import narwhals as nw

    native = nw.to_native(data, pass_through=True)
    return _of_duckdb(native) and hasattr(native, "to_arrow_reader")


@dataclass(frozen=True, eq=False)
class RelationSource:
    """Records of a relation of DuckDB."""

    relation: Any
    rows: int | None = field(init=False, default=None)

    @classmethod
    def of(cls, data: Any) -> RelationSource:
        """A source for what :func:`is_relation` knows."""
        import narwhals as nw

        return cls(nw.to_native(data, pass_through=True))

    @property
    def columns(self) -> list[str]:
        return list(self.relation.columns)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches with these columns, in one query."""
        chosen = self.relation.select(", ".join(map(_quoted, columns)))
        done = 0
        try:
            for batch in chosen.to_arrow_reader(BATCH_ROWS):
                for name in columns if not done else ():
                    check_supported(name, batch.schema.field(name).type)
                yield marked(plain_batch(batch), "the relation", done)
                done += batch.num_rows
        except Exception as error:
            # In the middle of a query the reader makes an error of Arrow's own of it.
            if not (_of_duckdb(error) or isinstance(error, OSError | pa.ArrowException)):
                raise
            raise InputError(f"the engine could not run the query: {one_line(error)}") from error


def _of_duckdb(thing: object) -> bool:
    return type(thing).__module__.split(".")[0] in ("duckdb", "_duckdb")


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
