"""GROUP BY queries to be run where the records are and may not leave.

One query a table. Its columns are the features, each holding the text of a modality, then the count,
then the sum of each label: what ``agglearn receive`` reads. A column is taken to have the type the
schema knows it by; text may stand for anything that is not cut into bins.

Or one query for all: the records are read and coded once, and every row names its features. GROUPING SETS
would say the same; for hundreds of tables DuckDB and PostgreSQL take longer for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agglearn.runtime.options import at_least, check_bounds
from agglearn.schema.features import Feature
from agglearn.schema.rules import Cuts, LookUp
from agglearn.schema.schema import Label, Schema
from agglearn.schema.values import spellings
from agglearn.sql.dialects import Dialect, dialect_named
from agglearn.tables.format import table_columns
from agglearn.tables.scopes import cells_of, shape_of
from agglearn.tables.table import Scope

_WIDTH = 100
_CODED = "coded_records"
_HASHED = "-- Plain values: agglearn receive --hash-size {} folds the rows into buckets."


@dataclass(frozen=True)
class Query:
    """A query that gives one table, or several.

    Attributes
    ----------
    name
        A plain name for a file.
    scopes
        The features of each table.
    text
        The query, ending in a semicolon.
    """

    name: str
    scopes: tuple[Scope, ...]
    text: str


def write_queries(
    schema: Schema,
    scopes: Sequence[Scope],
    dialect: str,
    source_table: str,
    hash_size: int | None = None,
    min_count: int | None = None,
    one_query: bool = False,
) -> list[Query]:
    """Write the GROUP BY query of each table, or one for all.

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
    one_query
        Ask for all tables at once, or for as many as the database can be asked for.
    """
    at_least(1, "small", min_count=min_count)
    at_least(2, "small", hash_size=hash_size)
    check_bounds(min_count=min_count, hash_size=hash_size)
    sql = dialect_named(dialect)
    source = sql.path(source_table)
    columns = {f.name: _feature(f, sql) for f in schema.features}
    labels = {label.name: _label(label, sql) for label in schema.labels}
    if one_query:
        groups = [tuple(scopes[i : i + sql.most_tables]) for i in range(0, len(scopes), sql.most_tables)]
        return [
            Query(f"tables-{i:04d}" if len(groups) > 1 else "tables", group, "\n".join(lines) + "\n")
            for i, group in enumerate(groups)
            for lines in [_together(group, schema, columns, labels, source, sql, hash_size, min_count)]
        ]
    written = []
    for position, scope in enumerate(scopes):
        slug = "-".join(re.sub(r"[^A-Za-z0-9]+", "_", f)[:24].strip("_") for f in scope)
        lines = [
            *_heading(scope, schema, sql, cells_of(scope, schema, hash_size).buckets),
            *_coded({name: columns[name] for name in scope} | labels, source, sql),
            *_grouped(scope, schema, sql, min_count),
        ]
        written.append(Query(f"{position:04d}-{slug[:80]}", (scope,), "\n".join(lines) + "\n"))
    return written


def _together(
    scopes: Sequence[Scope],
    schema: Schema,
    columns: dict[str, list[str]],
    labels: dict[str, list[str]],
    source: str,
    sql: Dialect,
    hash_size: int | None,
    min_count: int | None,
) -> list[str]:
    """A query for several tables: a row names the features of its table beside their values."""
    used = dict.fromkeys(name for scope in scopes for name in scope)
    buckets = max(cells_of(scope, schema, hash_size).buckets for scope in scopes)
    lines = [f"-- {len(scopes):,} tables over {len(used):,} features"]
    if buckets:
        lines.append(_HASHED.format(buckets))
    lines += [f"-- {sql.note}"] if sql.note else []
    lines += _coded({name: columns[name] for name in used} | labels, source, sql, once=True)
    word, value = _free_words(schema)
    count = table_columns((), cells_of(scopes[0], schema), schema)["count"]
    for i, scope in enumerate(scopes):
        named: list[str] = []
        for k in range(max(map(len, scopes))):
            none = f"CAST(NULL AS {sql.text})"
            name, held = (sql.literal(scope[k]), sql.name(scope[k])) if k < len(scope) else (none, none)
            named += [f"{name} AS {word}_{k + 1}", f"{held} AS {value}_{k + 1}"]
        lines += ["UNION ALL"] if i else []
        lines.append(f"SELECT {', '.join([*named, *_numbers(count, schema, sql)])}")
        lines += [f"FROM {_CODED}", *_by(scope, sql, min_count)]
    lines[-1] += ";"
    return lines


def _free_words(schema: Schema) -> tuple[str, str]:
    """What columns with names of features and with their values are called, where no feature is."""
    taken = [name.casefold() for name in (*schema.names, *schema.label_names)]
    words = (
        ("feature", "value"),
        ("variable", "level"),
        ("dimension", "category"),
        ("attribute", "modality"),
    )
    return next((w for w in words if not any(n.startswith(w) for n in taken)), words[-1])


def _heading(scope: Scope, schema: Schema, sql: Dialect, buckets: int) -> list[str]:
    # A name may hold a line break, which would end the comment.
    title = " ".join(" × ".join(scope).split())
    cells = " × ".join(f"{m:,}" for m in shape_of(scope, schema))
    lines = [f"-- {title}: {cells} cells"]
    if buckets:
        lines.append(_HASHED.format(buckets))
    return [*lines, f"-- {sql.note}"] if sql.note else lines


def _coded(columns: dict[str, list[str]], source: str, sql: Dialect, once: bool = False) -> list[str]:
    lines = [f"WITH {_CODED} AS {sql.computed_once if once else ''}(", "  SELECT"]
    for i, (name, expression) in enumerate(columns.items()):
        end = "," if i + 1 < len(columns) else ""
        block = [*expression[:-1], f"{expression[-1]} AS {sql.name(name)}{end}"]
        lines += [f"    {line}" for line in block]
    return [*lines, f"  FROM {source}", ")"]


def _grouped(scope: Scope, schema: Schema, sql: Dialect, min_count: int | None) -> list[str]:
    names = table_columns(scope, cells_of(scope, schema), schema)
    selected = [*(sql.name(f) for f in scope), *_numbers(names["count"], schema, sql)]
    lines = ["SELECT", *(f"  {s}," for s in selected[:-1]), f"  {selected[-1]}", f"FROM {_CODED}"]
    lines += _by(scope, sql, min_count)
    lines[-1] += ";"
    return lines


def _numbers(count: str, schema: Schema, sql: Dialect) -> list[str]:
    """The count and the sums of a group."""
    selected = [f"COUNT(*) AS {sql.name(count)}"]
    for label in schema.label_names:
        column = sql.name(label)
        # A record without a usable label makes the sum of its cell NULL, which receive refuses.
        selected.append(f"CASE WHEN COUNT({column}) = COUNT(*) THEN SUM({column}) END AS {column}")
    return selected


def _by(scope: Scope, sql: Dialect, min_count: int | None) -> list[str]:
    lines = [f"GROUP BY {', '.join(sql.name(f) for f in scope)}"]
    return lines if min_count is None else [*lines, f"HAVING COUNT(*) >= {min_count}"]


# --- expressions -----------------------------------------------------------------------------------


def case(branches: Sequence[tuple[list[str], str]], otherwise: str | None) -> list[str]:
    """A CASE with one branch a line; a condition may take several."""
    lines = ["CASE"]
    for condition, value in branches:
        lines += [f"  WHEN {condition[0]}", *(f"  {line}" for line in condition[1:])]
        lines[-1] += f" THEN {value}"
    if otherwise is not None:
        lines.append(f"  ELSE {otherwise}")
    return [*lines, "END"]


def is_in(expression: str, literals: Sequence[str]) -> list[str]:
    """``expression IN (…)``, wrapped."""
    if not literals:
        return ["FALSE"]
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
    column = sql.name(feature.name)
    # A code beyond the modalities is unknown: a missing value of that code is left missing.
    texts = dict(enumerate(sql.literal(text) for text in feature.modalities))
    if isinstance(feature.rule, Cuts):
        return _cuts(column, feature.rule, texts, sql)
    written = _written_as_they_are(feature.rule, feature.modalities)
    return _look_up(column, feature.rule, texts, written, sql)


def _written_as_they_are(rule: LookUp, modalities: Sequence[str]) -> bool:
    """Whether every value's modality is the text of that value."""
    return all(modalities[code] == text for text, code in rule.codes.items())


def _cuts(column: str, rule: Cuts, texts: Mapping[int, str], sql: Dialect) -> list[str]:
    branches = [([no_number(column, sql)], texts.get(rule.missing, "NULL"))]
    for code, cut in enumerate(rule.cuts):
        sign = "<=" if cut.after else "<"
        branches.append(([f"{column} {sign} {sql.number(cut.value)}"], texts[code]))
    return case(branches, texts[len(rule.cuts)])


def no_number(column: str, sql: Dialect) -> str:
    """Whether a number is missing."""
    return f"{column} IS NULL OR " + sql.is_nan.format(f"CAST({column} AS {sql.double})")


def _look_up(column: str, rule: LookUp, texts: Mapping[int, str], written: bool, sql: Dialect) -> list[str]:
    missing, outside = texts.get(rule.missing), texts.get(rule.default)
    if rule.value_type in CONDITIONS:
        absent, equal = CONDITIONS[rule.value_type]
        branches = [([absent(column, sql)], missing or "NULL")]
        branches += [([equal(column, value, sql)], texts[code]) for value, code in rule.codes.items()]
        return case(branches, outside or f"CAST({column} AS {sql.text})")
    text = sql.plain(column, rule.value_type)
    if written and outside is None:
        return [text if missing is None else f"COALESCE({text}, {missing})"]
    # What becomes of values, and which these are.
    members: dict[str, list[str]] = {text: []} if written else {}
    for value, code in sorted(rule.codes.items(), key=lambda item: item[1]):
        if code != rule.default:
            ways = [w for w in spellings([value]) if w == value or w not in rule.codes]
            members.setdefault(text if written else texts[code], []).extend(map(sql.literal, ways))
    branches = [([f"{column} IS NULL"], missing or "NULL")]
    branches += [(is_in(text, values), modality) for modality, values in members.items()]
    return case(branches, outside or text)


def _is_null(column: str, sql: Dialect) -> str:
    return f"{column} IS NULL"


def _is_float(column: str, value: str, sql: Dialect) -> str:
    """Databases write a float in different ways, so its values are told apart as numbers."""
    return f"CAST({column} AS {sql.double}) = {sql.number(float(value))}"


def _is_timestamp(column: str, value: str, sql: Dialect) -> str:
    """As floats: a moment is written in different ways, and is told apart as one."""
    kind = sql.timestamp_with_zone if value.endswith("Z") else sql.timestamp
    return f"{column} = CAST({sql.literal(value)} AS {kind})"


_Absent: TypeAlias = Callable[[str, Dialect], str]
_Equal: TypeAlias = Callable[[str, str, Dialect], str]
CONDITIONS: dict[str, tuple[_Absent, _Equal]] = {
    "float": (no_number, _is_float),
    "timestamp": (_is_null, _is_timestamp),
}


def _label(label: Label, sql: Dialect) -> list[str]:
    """1 or 0; NULL where the record has no usable label."""
    column = sql.name(label.name)
    text = f"TRIM(CAST({column} AS {sql.text}))"
    if label.positive is not None:
        positive = is_in(text, [sql.literal(t) for t in spellings([label.positive.strip()])])
        return case([(positive, "1"), ([f"{column} IS NOT NULL"], "0")], None)
    ones, zeros = spellings(["true"]), spellings(["false"])
    return case(
        [
            (is_in(text, [sql.literal(t) for t in ones]), "1"),
            (is_in(text, [sql.literal(t) for t in zeros]), "0"),
        ],
        None,
    )
