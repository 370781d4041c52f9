"""How databases differ in what the queries need: names, texts, numbers, dates, arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isinf

from agglearn.errors import InputError


@dataclass(frozen=True)
class Dialect:
    """What differs from one database to another.

    ``array`` is a constant array of numbers, ``element`` one of them, counting from 0; ``table`` a constant
    table with the columns value and code, and ``table_row`` a row of it; ``kept`` what a query keeps of its
    source beside columns of its own, and ``star`` the source's columns again, without these; ``most_tables``
    how many tables one query asks for.
    """

    text: str
    double: str
    timestamp: str
    timestamp_with_zone: str
    is_nan: str
    iso_date: str
    array: str
    element: str
    table: str = "(VALUES {rows}) AS {name}(value, code)"
    table_row: str = "({value}, {code})"
    kept: str = "{source}.*"
    star: str = "{source}.* EXCLUDE ({helpers})"
    computed_once: str = ""
    most_tables: int = 100
    identifier_quote: str = '"'
    identifier_escapes: tuple[tuple[str, str], ...] = (('"', '""'),)
    text_escapes: tuple[tuple[str, str], ...] = (("'", "''"),)
    note: str = ""

    def name(self, identifier: str) -> str:
        """A quoted identifier."""
        return self.identifier_quote + _escaped(identifier, self.identifier_escapes) + self.identifier_quote

    def path(self, table: str) -> str:
        """A table's name such as ``schema.table``, each part quoted; a part with a dot stands in quotes."""
        part = r'"(?:[^"]|"")+"|`[^`]+`|[^."`\s](?:[^."`]*[^."`\s])?'
        if not re.fullmatch(rf"(?:{part})(?:\.(?:{part}))*", table):
            raise InputError(
                f"source table {table!r} is not a name such as events or sales.events: put a part with a "
                "dot or quotes in it between double quotes"
            )
        parts = re.findall(part, table)
        return ".".join(self.name(p[1:-1].replace('""', '"') if p[0] in '"`' else p) for p in parts)

    def numbers(self, values: Iterable[float]) -> str:
        """A constant array."""
        return self.array.format(",".join(f"{x:.10g}" for x in values))

    def constant_table(self, name: str, codes: Sequence[tuple[str, int]]) -> str:
        """A table of texts and their codes, to be joined."""
        rows = ", ".join(self.table_row.format(value=self.literal(text), code=code) for text, code in codes)
        return self.table.format(rows=rows, name=name)

    def literal(self, text: str) -> str:
        """A quoted text."""
        return "'" + _escaped(text, self.text_escapes) + "'"

    def plain(self, column: str, value_type: str) -> str:
        """The canonical text of a column's values."""
        if value_type == "date":
            return self.iso_date.format(column)
        text = f"CAST({column} AS {self.text})"
        return f"LOWER({text})" if value_type == "boolean" else text

    def number(self, value: float) -> str:
        """A number that the database reads as the same double."""
        if isinf(value):
            return f"CAST('{value}' AS {self.double})"
        if value == int(value) and abs(value) < 1e15:
            return str(int(value))
        digits = repr(value)
        # Without an exponent most databases read a decimal, and round when they make it a double.
        return digits if "e" in digits else digits + "e0"


def _escaped(text: str, escapes: tuple[tuple[str, str], ...]) -> str:
    for plain, written in escapes:
        text = text.replace(plain, written)
    return text


_BACKSLASHES = (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r"))

DIALECTS = {
    "duckdb": Dialect(
        text="VARCHAR",
        double="DOUBLE",
        timestamp="TIMESTAMP",
        timestamp_with_zone="TIMESTAMPTZ",
        is_nan="isnan({})",
        iso_date="strftime(CAST({} AS DATE), '%Y-%m-%d')",
        array="CAST('[{}]' AS DOUBLE[])",
        most_tables=1000,
        element="{array}[{index} + 1]",
    ),
    "postgresql": Dialect(
        text="text",
        double="double precision",
        timestamp="timestamp",
        timestamp_with_zone="timestamptz",
        is_nan="{} = 'NaN'",
        iso_date="to_char(CAST({} AS date), 'YYYY-MM-DD')",
        array="CAST('{{{}}}' AS double precision[])",
        element="{array}[{index} + 1]",
        kept="{source} AS agglearn_row",
        star="(agglearn_row).*",
        computed_once="MATERIALIZED ",
        most_tables=1000,
    ),
    "bigquery": Dialect(
        text="STRING",
        double="FLOAT64",
        timestamp="DATETIME",
        timestamp_with_zone="TIMESTAMP",
        is_nan="IS_NAN({})",
        iso_date="FORMAT_DATE('%F', CAST({} AS DATE))",
        array="ARRAY<FLOAT64>[{}]",
        element="{array}[OFFSET({index})]",
        table="UNNEST([{rows}]) AS {name}",
        star="{source}.* EXCEPT ({helpers})",
        table_row="STRUCT({value} AS value, {code} AS code)",
        identifier_quote="`",
        identifier_escapes=(("\\", "\\\\"), ("`", "\\`")),
        text_escapes=_BACKSLASHES,
    ),
    "snowflake": Dialect(
        text="VARCHAR",
        double="DOUBLE",
        timestamp="TIMESTAMP_NTZ",
        timestamp_with_zone="TIMESTAMP_TZ",
        is_nan="{} = 'NaN'",
        iso_date="TO_CHAR(CAST({} AS DATE), 'YYYY-MM-DD')",
        array="PARSE_JSON('[{}]')",
        element="CAST(GET({array}, {index}) AS DOUBLE)",
        text_escapes=(("\\", "\\\\"), ("'", "''")),
        note="Names are quoted, so upper and lower case must be as the table has them.",
    ),
    "spark": Dialect(
        text="STRING",
        double="DOUBLE",
        timestamp="TIMESTAMP_NTZ",
        timestamp_with_zone="TIMESTAMP",
        is_nan="isnan({})",
        iso_date="date_format(CAST({} AS DATE), 'yyyy-MM-dd')",
        array="from_json('[{}]', 'array<double>')",
        element="{array}[{index}]",
        kept="struct({source}.*) AS agglearn_row",
        star="agglearn_row.*",
        identifier_quote="`",
        identifier_escapes=(("`", "``"),),
        text_escapes=_BACKSLASHES,
    ),
}


def dialect_named(name: str) -> Dialect:
    """The dialect of that name."""
    if name not in DIALECTS:
        raise InputError(f"dialect {name!r} is not one of {', '.join(DIALECTS)}")
    return DIALECTS[name]
