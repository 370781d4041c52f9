"""GROUP BY queries to be run where the records are and may not leave.

One query a table. Its columns are the features, each holding the text of a modality, then the count,
then the sum of each label: what ``agglearn receive`` reads. A column is taken to have the type the
schema knows it by; text may stand for anything that is not cut into bins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isinf

from agglearn.errors import InputError
from agglearn.runtime.speech import option
from agglearn.schema.features import Binned, Categorical, Encoded, Feature
from agglearn.schema.schema import Label, Schema
from agglearn.tables.format import table_columns
from agglearn.tables.scopes import cells_of, shape_of
from agglearn.tables.table import Scope

_WIDTH = 100
_CODED = "coded_records"


@dataclass(frozen=True)
class Query:
    """A query that gives one table.

    Attributes
    ----------
    name
        A plain name for a file.
    scope
        The features of the table.
    text
        The query, ending in a semicolon.
    """

    name: str
    scope: Scope
    text: str


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


def queries(
    schema: Schema,
    scopes: Sequence[Scope],
    dialect: str,
    source_table: str,
    hash_size: int | None = None,
    min_count: int | None = None,
) -> list[Query]:
    """Write the GROUP BY query of each table.

    Parameters
    ----------
    schema
        Features and labels; their names are columns of the source table.
    scopes
        The tables wanted.
    dialect
        ``duckdb``, ``postgresql``, ``bigquery``, ``snowflake`` or ``spark``.
    source_table
        Where the records are: ``table``, ``schema.table`` or ``catalog.schema.table``. Names are used as
        written; one with a dot in it stands in double quotes or backticks.
    hash_size
        Tables with more cells than this are to be hashed when they are received.
    min_count
        Leave out cells with fewer records than this.
    """
    if dialect not in DIALECTS:
        raise InputError(f"dialect {dialect!r} is not one of {', '.join(DIALECTS)}")
    if min_count is not None and min_count < 1:
        raise InputError(f"{option('min_count', str(min_count))} is too small: 1 is the least")
    sql = DIALECTS[dialect]
    source = ".".join(sql.name(part) for part in _parts(source_table))
    columns = {f.name: _feature(f, sql) for f in schema.features}
    labels = {label.name: _label(label, sql) for label in schema.labels}
    written = []
    for position, scope in enumerate(scopes):
        slug = "-".join(re.sub(r"[^A-Za-z0-9]+", "_", f)[:24].strip("_") for f in scope)
        lines = [
            *_heading(scope, schema, sql, cells_of(scope, schema, hash_size).buckets),
            *_coded({name: columns[name] for name in scope} | labels, source, sql),
            *_grouped(scope, schema, sql, min_count),
        ]
        written.append(Query(f"{position:04d}-{slug[:80]}", scope, "\n".join(lines) + "\n"))
    return written


def _parts(table: str) -> list[str]:
    """The names that a dotted name is made of, without their quotes."""
    part = r'"(?:[^"]|"")+"|`[^`]+`|[^."`\s](?:[^."`]*[^."`\s])?'
    if not re.fullmatch(rf"(?:{part})(?:\.(?:{part}))*", table):
        raise InputError(
            f"source table {table!r} is not a name such as events or sales.events: put a part with a "
            "dot or quotes in it between double quotes"
        )
    return [name[1:-1].replace('""', '"') if name[0] in '"`' else name for name in re.findall(part, table)]


def _heading(scope: Scope, schema: Schema, sql: Dialect, buckets: int) -> list[str]:
    # A name may hold a line break, which would end the comment.
    title = " ".join(" × ".join(scope).split())
    cells = " × ".join(f"{m:,}" for m in shape_of(scope, schema))
    lines = [f"-- {title}: {cells} cells"]
    if buckets:
        lines.append(f"-- Plain values: agglearn receive --hash-size {buckets} folds the rows into buckets.")
    return [*lines, f"-- {sql.note}"] if sql.note else lines


def _coded(columns: dict[str, list[str]], source: str, sql: Dialect) -> list[str]:
    lines = [f"WITH {_CODED} AS (", "  SELECT"]
    for i, (name, expression) in enumerate(columns.items()):
        end = "," if i + 1 < len(columns) else ""
        block = [*expression[:-1], f"{expression[-1]} AS {sql.name(name)}{end}"]
        lines += [f"    {line}" for line in block]
    return [*lines, f"  FROM {source}", ")"]


def _grouped(scope: Scope, schema: Schema, sql: Dialect, min_count: int | None) -> list[str]:
    names = table_columns(scope, cells_of(scope, schema), schema)
    features = [sql.name(f) for f in scope]
    selected = [*features, f"COUNT(*) AS {sql.name(names['count'])}"]
    for label in schema.label_names:
        column = sql.name(label)
        # A record without a usable label makes the sum of its cell NULL, which receive refuses.
        selected.append(f"CASE WHEN COUNT({column}) = COUNT(*) THEN SUM({column}) END AS {column}")
    lines = ["SELECT", *(f"  {s}," for s in selected[:-1]), f"  {selected[-1]}", f"FROM {_CODED}"]
    lines.append(f"GROUP BY {', '.join(features)}")
    if min_count is not None:
        lines.append(f"HAVING COUNT(*) >= {min_count}")
    lines[-1] += ";"
    return lines


# --- expressions -----------------------------------------------------------------------------------


def _case(branches: Sequence[tuple[list[str], str]], otherwise: str | None) -> list[str]:
    """A CASE with one branch a line; a condition may take several."""
    lines = ["CASE"]
    for condition, value in branches:
        lines += [f"  WHEN {condition[0]}", *(f"  {line}" for line in condition[1:])]
        lines[-1] += f" THEN {value}"
    if otherwise is not None:
        lines.append(f"  ELSE {otherwise}")
    return [*lines, "END"]


def _is_in(expression: str, literals: Sequence[str]) -> list[str]:
    """``expression IN (…)``, wrapped."""
    if len(literals) == 1:
        return [f"{expression} = {literals[0]}"]
    whole = f"{expression} IN ({', '.join(literals)})"
    if len(whole) <= _WIDTH:
        return [whole]
    lines = [f"{expression} IN ("]
    row = ""
    for literal in literals:
        if row and len(row) + len(literal) > _WIDTH - 8:
            lines.append(f"  {row.rstrip()}")
            row = ""
        row += f"{literal}, "
    return [*lines, f"  {row.rstrip(', ')}", ")"]


def _feature(feature: Feature, sql: Dialect) -> list[str]:
    """The text of the feature's modality."""
    missing = sql.literal(feature.modalities[-1]) if feature.missing else "NULL"
    if isinstance(feature, Binned):
        return _bins(feature, missing, sql)
    column = sql.name(feature.name)
    if isinstance(feature, Encoded):
        return _encoding(feature, missing, sql)
    outside = sql.literal(feature.modalities[len(feature.values)]) if feature.other else None
    compared = _BY_VALUE.get(feature.value_type)
    if compared is not None:
        return compared(feature, missing, outside, sql)
    text = sql.plain(column, feature.value_type)
    if outside is None:
        return [f"COALESCE({text}, {missing})" if feature.missing else text]
    known = _is_in(text, [sql.literal(v) for v in feature.values]) if feature.values else ["FALSE"]
    return _case([([f"{column} IS NULL"], missing), (known, text)], outside)


def _bins(feature: Binned, missing: str, sql: Dialect) -> list[str]:
    column = sql.name(feature.name)
    branches = [([_no_number(column, sql)], missing)]
    for cut, modality in zip(feature.cuts, feature.modalities, strict=False):
        sign = "<=" if cut.after else "<"
        branches.append(([f"{column} {sign} {sql.number(cut.value)}"], sql.literal(modality)))
    return _case(branches, sql.literal(feature.modalities[len(feature.cuts)]))


def _no_number(column: str, sql: Dialect) -> str:
    return f"{column} IS NULL OR " + sql.is_nan.format(f"CAST({column} AS {sql.double})")


def _encoding(feature: Encoded, missing: str, sql: Dialect) -> list[str]:
    column = sql.name(feature.name)
    text = f"CAST({column} AS {sql.text})"
    members: dict[int, list[str]] = {}
    for value, code in zip(feature.values, feature.codes, strict=True):
        if code:
            members.setdefault(code, []).append(sql.literal(value))
    branches = [([f"{column} IS NULL"], missing)]
    branches += [
        (_is_in(text, values), sql.literal(feature.groups[code])) for code, values in sorted(members.items())
    ]
    return _case(branches, sql.literal(feature.groups[0]))


def _floats(feature: Categorical, missing: str, outside: str | None, sql: Dialect) -> list[str]:
    """Databases write a float in different ways, so its values are told apart as numbers."""
    column = sql.name(feature.name)
    number = f"CAST({column} AS {sql.double})"
    branches = [([_no_number(column, sql)], missing)]
    branches += [([f"{number} = {sql.number(float(value))}"], sql.literal(value)) for value in feature.values]
    return _case(branches, outside or f"CAST({column} AS {sql.text})")


def _timestamps(feature: Categorical, missing: str, outside: str | None, sql: Dialect) -> list[str]:
    """As floats: a moment is written in different ways, and is told apart as one."""
    column = sql.name(feature.name)
    branches = [([f"{column} IS NULL"], missing)]
    for value in feature.values:
        kind = sql.timestamp_with_zone if value.endswith("Z") else sql.timestamp
        branches.append(([f"{column} = CAST({sql.literal(value)} AS {kind})"], sql.literal(value)))
    return _case(branches, outside or f"CAST({column} AS {sql.text})")


_BY_VALUE: dict[str, Callable[[Categorical, str, str | None, Dialect], list[str]]] = {
    "float": _floats,
    "timestamp": _timestamps,
}


def _label(label: Label, sql: Dialect) -> list[str]:
    """1 or 0; NULL where the record has no usable label."""
    column = sql.name(label.name)
    text = f"TRIM(CAST({column} AS {sql.text}))"
    if label.positive is not None:
        positive = _is_in(text, [sql.literal(t) for t in _spellings([label.positive.strip()])])
        return _case([(positive, "1"), ([f"{column} IS NOT NULL"], "0")], None)
    ones, zeros = _spellings(["1", "true", "True", "TRUE"]), _spellings(["0", "false", "False", "FALSE"])
    return _case(
        [
            (_is_in(text, [sql.literal(t) for t in ones]), "1"),
            (_is_in(text, [sql.literal(t) for t in zeros]), "0"),
        ],
        None,
    )


def _spellings(texts: list[str]) -> list[str]:
    """Texts of a label's value; a whole number may be a float there, which some write with a zero."""
    return [*texts, *(f"{t}.0" for t in texts if re.fullmatch(r"-?\d+", t))]
