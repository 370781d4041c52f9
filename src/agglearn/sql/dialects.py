"""How databases differ in what the queries need: names, texts, numbers, dates."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf


@dataclass(frozen=True)
class Dialect:
    """What differs from one database to another."""

    text: str
    double: str
    timestamp: str
    timestamp_with_zone: str
    is_nan: str
    iso_date: str
    identifier_quote: str = '"'
    identifier_escapes: tuple[tuple[str, str], ...] = (('"', '""'),)
    text_escapes: tuple[tuple[str, str], ...] = (("'", "''"),)
    note: str = ""

    def name(self, identifier: str) -> str:
        """A quoted identifier."""
        return self.identifier_quote + _escaped(identifier, self.identifier_escapes) + self.identifier_quote

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
    ),
    "postgresql": Dialect(
        text="text",
        double="double precision",
        timestamp="timestamp",
        timestamp_with_zone="timestamptz",
        is_nan="{} = 'NaN'",
        iso_date="to_char(CAST({} AS date), 'YYYY-MM-DD')",
    ),
    "bigquery": Dialect(
        text="STRING",
        double="FLOAT64",
        timestamp="DATETIME",
        timestamp_with_zone="TIMESTAMP",
        is_nan="IS_NAN({})",
        iso_date="FORMAT_DATE('%F', CAST({} AS DATE))",
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
        identifier_quote="`",
        identifier_escapes=(("`", "``"),),
        text_escapes=_BACKSLASHES,
    ),
}
