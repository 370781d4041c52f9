"""A model as one SQL query: it adds a probability to a table, in the database and without functions of ours.

Each feature's value becomes its code (a CASE, or a join with a constant table where there are many values),
and the tables of the model are one constant array (:mod:`.folding`) that the codes point into. The types of
columns are taken to be those the schema knows, as in :mod:`agglearn.sql.queries`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agglearn.errors import InputError
from agglearn.export.folding import Folded, fold, padded_size
from agglearn.model.model import Model
from agglearn.schema.features import Feature
from agglearn.schema.rules import Cuts, LookUp
from agglearn.sql.dialects import Dialect, dialect_named
from agglearn.sql.queries import CONDITIONS, case, no_number

_SOURCE = "agglearn_records"
_CODED = "agglearn_codes"
_WEIGHTS = "agglearn_weights"
_MOST_CASES = {"string": 50}  # values that a CASE tells apart, more are joined
_MOST_CAST_CASES = 4  # the same of values that are no texts: each comparison would make the text again
_MOST_NUMBERS = 5_000_000  # of all arrays: about 60 MB of text
_FARTHEST = 700  # log-odds: the exponential of more is beyond a double in some databases
PROBABILITY = "probability"


def scoring_query(
    model: Model, dialect: str = "duckdb", table: str = "records", view: str | None = None
) -> str:
    """The query that adds the probability to a table of records.

    Parameters
    ----------
    model
        The model.
    dialect
        As for :func:`agglearn.sql.queries.write_queries`.
    table
        Where the records are.
    view
        A view to create of it; without one the text is a plain query.
    """
    sql = dialect_named(dialect)
    _check_size(model)
    features = model.schema.features
    helpers = [sql.name(f"agglearn_{f}") for f in range(len(features))]
    joins = [_join(f, feature, sql) for f, feature in enumerate(features) if _joined(feature)]
    columns = [
        [*lines[:-1], f"{lines[-1]} AS {helper}"]
        for helper, lines in zip(helpers, (_code(f, x, sql) for f, x in enumerate(features)), strict=True)
    ]
    kept = sql.kept.format(source=_SOURCE)
    arrays = fold(model, range(model.layout.n_tables))
    weights = np.concatenate([folded.weights.ravel() for folded in arrays])
    lines = [
        f"-- P({' '.join(model.label.name.split())} = 1) by a model that agglearn fitted",
        *([f"-- {sql.note}"] if sql.note else []),
        *([f"CREATE VIEW {sql.path(view)} AS"] if view is not None else []),
        f"WITH {_CODED} AS {sql.computed_once}(",
        "  SELECT",
        f"    {kept},",
        *_separated(columns),
        f"  FROM {sql.path(table)} AS {_SOURCE}",
        *(f"  {join}" for join in joins),
        f"), {_WEIGHTS} AS MATERIALIZED (",
        f"  SELECT {sql.numbers(weights)} AS weights",
        ")",
        "SELECT",
        f"  {sql.star.format(source=_CODED, helpers=', '.join(helpers))},",
        f"  1 / (1 + EXP(-LEAST(GREATEST({model.field.intercept!r}",
        *("    " + term for term in _terms(arrays, helpers, sql)),
        f"  , -{_FARTHEST}), {_FARTHEST}))) AS {sql.name(PROBABILITY)}",
        f"FROM {_CODED} CROSS JOIN {_WEIGHTS};",
    ]
    return "\n".join(lines) + "\n"


def _check_size(model: Model) -> None:
    layout = model.layout
    total = 0
    for t, scope in enumerate(layout.scopes):
        numbers = padded_size(layout.cards, scope)
        total += numbers
        if total > _MOST_NUMBERS:
            what = " × ".join(model.scopes[t])
            hashed = ", whose buckets have to be written out," if layout.buckets[t] else ""
            if layout.cells[t].tied:
                hashed = ", whose unseen cells have to be written out,"
            raise InputError(
                f"SQL cannot carry this model: with table {what}{hashed} of {numbers:,} combinations it has "
                f"more than {_MOST_NUMBERS:,} numbers; export it as json, python or onnx"
            )


def _separated(columns: list[list[str]]) -> list[str]:
    lines = []
    for k, column in enumerate(columns):
        end = "," if k + 1 < len(columns) else ""
        lines += [f"    {line}" for line in [*column[:-1], column[-1] + end]]
    return lines


def _joined(feature: Feature) -> bool:
    rule = feature.rule
    if not isinstance(rule, LookUp) or rule.value_type in CONDITIONS:
        return False
    return len(rule.codes) > _MOST_CASES.get(rule.value_type, _MOST_CAST_CASES)


def _column(feature: Feature, sql: Dialect) -> str:
    return f"{_SOURCE}.{sql.name(feature.name)}"


def _join(f: int, feature: Feature, sql: Dialect) -> str:
    rule = feature.rule
    assert isinstance(rule, LookUp)
    name = f"agglearn_values_{f}"
    values = sql.constant_table(name, list(rule.codes.items()))
    return f"LEFT JOIN {values} ON {name}.value = {sql.plain(_column(feature, sql), rule.value_type)}"


def _code(f: int, feature: Feature, sql: Dialect) -> list[str]:
    """The code of a feature's value."""
    rule, column = feature.rule, _column(feature, sql)
    if isinstance(rule, Cuts):
        branches = [([no_number(column, sql)], str(rule.missing))]
        branches += [
            ([f"{column} {'<=' if cut.after else '<'} {sql.number(cut.value)}"], str(code))
            for code, cut in enumerate(rule.cuts)
        ]
        return case(branches, str(len(rule.cuts)))
    if _joined(feature):
        found = f"agglearn_values_{f}.code"
        missing = ([f"{column} IS NULL"], str(rule.missing))
        return case([missing, ([f"{found} IS NOT NULL"], found)], str(rule.default))
    if rule.value_type in CONDITIONS:
        absent, equal = CONDITIONS[rule.value_type]
        branches = [([absent(column, sql)], str(rule.missing))]
        branches += [([equal(column, value, sql)], str(code)) for value, code in rule.codes.items()]
        return case(branches, str(rule.default))
    text = sql.plain(column, rule.value_type)
    branches = [([f"{column} IS NULL"], str(rule.missing))]
    branches += [([f"{text} = {sql.literal(value)}"], str(code)) for value, code in rule.codes.items()]
    return case(branches, str(rule.default))


def _terms(arrays: Sequence[Folded], helpers: Sequence[str], sql: Dialect) -> list[str]:
    """What each array adds; all of them stand in one, one after the other."""
    terms, start = [], 0
    for folded in arrays:
        index = ""
        for f, size in zip(folded.features, folded.weights.shape, strict=True):
            index = f"({index}) * {size} + {helpers[f]}" if index else helpers[f]
        place = f"{start} + {index}" if start else index
        terms.append(f"+ {sql.element.format(array=f'{_WEIGHTS}.weights', index=place)}")
        start += folded.weights.size
    return terms
