"""Lazy frames to tables by GROUP BY, run where the records are: only rows of tables come back.

Bins, folded categories and labels are computed by the engine, in expressions that every engine narwhals
knows can run (DuckDB, polars, Spark, …). A category that needs no folding is grouped by as it is; the
few distinct values that come back are then coded here, by the same code as streamed records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agglearn.aggregation.groups import Groups
from agglearn.errors import InputError, one_line
from agglearn.records import survey as surveys
from agglearn.records.survey import ColumnSurvey
from agglearn.runtime.progress import meter
from agglearn.runtime.speech import option
from agglearn.schema.columns import as_text, check_supported, one_array, value_type
from agglearn.schema.rules import Codes, Cuts, LookUp, Rule
from agglearn.schema.schema import Label, Schema, require_columns
from agglearn.schema.values import same_value, spellings
from agglearn.spark.session import is_frame
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope

Frame: TypeAlias = "nw.LazyFrame[Any]"
Expression: TypeAlias = nw.Expr

_VALUE, _MISSING, _OUTSIDE = 0, 1, 2  # what a folded value is
_SPARE = 16  # values beyond the modalities that may come back one by one


def is_lazy(data: Any) -> bool:
    """Whether this is a lazy frame of some engine rather than records at hand."""
    if isinstance(data, str | os.PathLike | dict | list | tuple | pa.Table | pa.RecordBatchReader):
        return False
    if is_frame(data):  # Spark has a way of its own
        return False
    return isinstance(nw.from_native(data, pass_through=True), nw.LazyFrame)


# --- the engine's side -----------------------------------------------------------------------------


def _open(frame: Any, names: Sequence[str], labels: Sequence[str] = ()) -> tuple[Frame, dict[str, Any]]:
    """The frame, and the Arrow type of each of the columns wanted."""
    lazy = nw.from_native(frame)
    present = lazy.collect_schema().names()
    require_columns(labels, present, "label")
    require_columns(names, present)
    schema = _collect(lazy.select(*dict.fromkeys([*names, *labels])).head(0)).schema
    for field in schema:
        check_supported(field.name, field.type)
    return lazy, {field.name: field.type for field in schema}


def _collect(query: Frame) -> Any:
    """Run a query; what comes back is an Arrow table."""
    try:
        return query.collect("pyarrow").to_native()
    except Exception as error:
        # Each engine has errors of its own kind: a file gone, a cast that fails, a lost connection.
        raise InputError(f"the engine could not run the query: {one_line(error)}") from error


def _clean(name: str, arrow_type: Any) -> Expression:
    """The column in a form that can be compared with literals, NaN made null."""
    column = nw.col(name)
    if pa.types.is_floating(arrow_type):
        # A literal is a double: a narrower column would never equal it.
        column = column.cast(nw.Float64)
        return nw.when(~column.is_nan()).then(column)
    if pa.types.is_dictionary(arrow_type):
        return column.cast(nw.String)
    return column


def _int64(column: Any) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = one_array(column).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


# --- the survey ------------------------------------------------------------------------------------


def survey_lazy(frame: Any, names: Sequence[str]) -> dict[str, ColumnSurvey]:
    """Count the values of each column in the engine.

    As when records are streamed, counts are exact up to :data:`~agglearn.records.survey.KEPT` distinct
    values; beyond, evenly spaced quantiles of a number and the commonest values of anything else come
    back.
    """
    lazy, types = _open(frame, names)
    return {name: _survey(lazy, name, types[name]) for name in names}


def _survey(lazy: Frame, name: str, arrow_type: Any) -> ColumnSurvey:
    survey = ColumnSurvey(name, value_type(arrow_type))
    counts = lazy.select(nw.col(name).alias("value")).group_by("value").agg(nw.len().alias("n"))
    found = _collect(counts.head(surveys.KEPT + 1))
    if found.num_rows > surveys.KEPT:
        survey.exact = False
        survey.told_distinct = int(_collect(counts.select(nw.len().alias("n")))["n"][0].as_py())
        found = _thinned(lazy, counts, name, arrow_type)
    values, n = one_array(found["value"]), _int64(found["n"])
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    survey.add_counts(values, n)
    if not survey.exact:
        survey.rows = int(_collect(lazy.select(nw.len().alias("n")))["n"][0].as_py())
    return survey


def _thinned(lazy: Frame, counts: Frame, name: str, arrow_type: Any) -> Any:
    """Few enough of a column's values, with their counts, and a null with the count of its own."""
    value = nw.col("value")
    absent = value.is_null() | value.is_nan() if pa.types.is_floating(arrow_type) else value.is_null()
    present = counts.filter(~absent)
    groups = surveys.KEPT // 2
    if value_type(arrow_type) in ("integer", "float"):
        # Each group of neighbours of about equal weight is represented by its last value.
        total = int(_collect(present.select(nw.col("n").sum().alias("n")))["n"].cast(pa.int64())[0].as_py())
        ranked = present.with_columns(
            rank=nw.col("n").cast(nw.Int64).cum_sum().over(order_by="value").cast(nw.Int64)
        ).with_columns(group=((nw.col("rank") - 1) * groups) // total)
        kept = ranked.group_by("group").agg(value.max(), nw.col("n").sum()).select("value", "n")
    else:
        kept = present.sort("n", "value", descending=[True, False]).head(groups)
    found = _collect(kept)
    nulls = _collect(counts.filter(absent).select(nw.col("n").sum().alias("n")))["n"].cast(pa.int64())
    n_missing = nulls[0].as_py() or 0
    values = pa.concat_arrays([one_array(found["value"]), pa.nulls(1, found["value"].type)])
    return {"value": values, "n": pa.array(np.append(_int64(found["n"]), n_missing))}


# --- the count -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Key:
    """What a feature is grouped by, and how the groups that come back are coded.

    Where the engine folds values, it joins a ``mapping`` from the ``raw`` values that have a modality to
    what they are ``mapped`` to; all other values make one group of code ``outside``.
    """

    column: Expression
    encode: Callable[[Any], Codes]
    mapping: Frame | None = None
    missing: int = 0
    outside: int = 0

    def codes(self, groups: Any, kinds: npt.NDArray[np.int64] | None) -> Codes:
        """Codes of the groups, each of a kind if there was a mapping."""
        codes = self.encode(groups)
        if kinds is not None:
            codes[kinds == _MISSING] = self.missing
            codes[kinds == _OUTSIDE] = self.outside
        return codes


def count_tables_lazy(
    frame: Any,
    schema: Schema,
    scopes: Sequence[Scope],
    hash_size: int | None = None,
    show_progress: bool = False,
) -> tuple[AggregatedData, dict[str, int]]:
    """Count the records of a lazy frame into tables, one GROUP BY a table.

    Returns the aggregation, and for each feature how many values it had no modality for.
    """
    lazy, types = _open(frame, schema.names, schema.label_names)
    labels = [_label(lazy, label, types[label.name]) for label in schema.labels]
    keys = _keys(lazy, schema, types)
    unknown: dict[str, int] = {}
    tables = {}
    totals = np.zeros(1 + len(labels), np.int64)
    alone = [(name,) for name in schema.names if not any(name in scope for scope in scopes)]
    with meter("counting", len(scopes) + len(alone), "tables", show=show_progress) as advance:
        for scope in [*scopes, *alone]:
            codes, numbers = _group(lazy, [keys[name] for name in scope], labels)
            for name, column in zip(scope, codes, strict=True):
                n_unknown = int(numbers[0, column == schema.feature(name).n_modalities].sum())
                unknown.setdefault(name, n_unknown)
            totals = numbers.sum(axis=1)
            if scope not in alone:
                groups = Groups(scope, schema, hash_size)
                groups.add(codes, numbers)
                tables[scope] = groups.table()
            advance(1)
    rows, positives = int(totals[0]), tuple(int(p) for p in totals[1:])
    for label, n in zip(schema.labels, positives, strict=True):
        if label.positive is not None and not n:
            told = option("positive")
            raise InputError(f"no record has {label.name} = {label.positive!r}, which {told} names")
    data = AggregatedData(schema=schema, tables=tables, rows=rows, positives=positives)
    return data, {name: unknown[name] for name in schema.names if unknown[name]}


def _group(
    lazy: Frame, keys: Sequence[_Key], labels: Sequence[Expression]
) -> tuple[list[Codes], npt.NDArray[np.int64]]:
    """One GROUP BY: the codes of each key, then counts and sums."""
    sums = [f"sum_{k}" for k in range(len(labels))]
    columns = [key.column.alias(f"key_{i}") for i, key in enumerate(keys)]
    query = lazy.select(*columns, *(e.alias(name) for e, name in zip(labels, sums, strict=True)))
    by = []
    for i, key in enumerate(keys):
        if key.mapping is None:
            by.append(f"key_{i}")
        else:
            query = _mapped(query, key.mapping, i)
            by += [f"mapped_{i}", f"kind_{i}"]
    found = _collect(query.group_by(*by).agg(nw.len().alias("n"), *(nw.col(s).sum() for s in sums)))
    codes = []
    for i, key in enumerate(keys):
        if key.mapping is None:
            codes.append(key.codes(one_array(found[f"key_{i}"]), None))
        else:
            codes.append(key.codes(one_array(found[f"mapped_{i}"]), _int64(found[f"kind_{i}"])))
    return codes, np.stack([_int64(found[name]) for name in ["n", *sums]])


def _mapped(query: Frame, mapping: Frame, i: int) -> Frame:
    """The query with what the values of key ``i`` are mapped to, and what kind each is."""
    key, mapped = nw.col(f"key_{i}"), nw.col(f"mapped_{i}")
    renamed = mapping.select(nw.col("raw").alias(f"raw_{i}"), nw.col("mapped").alias(f"mapped_{i}"))
    outside = nw.when(mapped.is_null()).then(nw.lit(_OUTSIDE)).otherwise(nw.lit(_VALUE))
    kind = nw.when(key.is_null()).then(nw.lit(_MISSING)).otherwise(outside)
    joined = query.join(renamed, left_on=f"key_{i}", right_on=f"raw_{i}", how="left")
    return joined.with_columns(kind.alias(f"kind_{i}"))


def _label(lazy: Frame, label: Label, arrow_type: Any) -> Expression:
    """The label as 0 or 1, by the distinct values it has."""
    column = _clean(label.name, arrow_type)
    counts = lazy.select(column.alias("value")).group_by("value").agg(nw.len().alias("n"))
    found = _collect(counts.sort("value").head(surveys.KEPT + 1))
    if not found.num_rows:
        raise InputError("there are no records to aggregate")
    values, n = one_array(found["value"]), _int64(found["n"])
    if values.null_count:
        missing = int(n[values.is_null().to_numpy(zero_copy_only=False)].sum())
        raise InputError(
            f"label {label.name!r} is missing in {missing:,} records: "
            "every record needs a label; leave out those that have none"
        )
    positive = label.encode(values, lambda row: "the records") == 1
    if found.num_rows > surveys.KEPT:
        raise InputError(f"label {label.name!r} has more than {surveys.KEPT:,} different values")
    return _one_of(column, values.filter(pa.array(positive)).to_pylist(), 1, nw.lit(0))


def _one_of(column: Expression, values: list[Any], code: int, otherwise: Expression) -> Expression:
    if not values:
        return otherwise
    return nw.when(column.is_in(values)).then(nw.lit(code)).otherwise(otherwise)


def _keys(lazy: Frame, schema: Schema, types: dict[str, Any]) -> dict[str, _Key]:
    in_engine = {
        f.name: _bins(f.name, f.rule, types[f.name])
        for f in schema.features
        if isinstance(f.rule, Cuts) and _is_number(types[f.name])
    }
    by_value = [name for name in schema.names if name not in in_engine]
    distinct = {}
    if by_value:
        found = _collect(lazy.select(nw.col(*by_value).n_unique()))
        distinct = {name: found[name][0].as_py() for name in by_value}
    keys = {}
    for name, n_modalities in zip(schema.names, schema.cards, strict=True):
        rule = schema.feature(name).rule
        if name in in_engine:
            keys[name] = in_engine[name]
        elif distinct[name] <= n_modalities + _SPARE:
            keys[name] = _values(name, rule)
        elif isinstance(rule, Cuts):
            keys[name] = _bins_of_text(lazy, name, rule, types[name])
        else:
            keys[name] = _folded(lazy, name, rule, types[name])
    return keys


def _is_number(arrow_type: Any) -> bool:
    known = value_type(arrow_type) in ("integer", "float", "boolean")
    return known and not pa.types.is_duration(arrow_type)


def _values(name: str, rule: Rule) -> _Key:
    """Grouped by the raw value, and coded here."""
    return _Key(nw.col(name), rule.encode)


def _bins(name: str, rule: Cuts, arrow_type: Any) -> _Key:
    """The code of a bin is the number of cuts at or below the value."""
    column = _clean(name, arrow_type)
    if pa.types.is_boolean(arrow_type):
        column = column.cast(nw.Int8)
    column = column.cast(nw.Float64)
    code = nw.when(~column.is_null()).then(nw.lit(0))
    for cut in rule.cuts:
        above = column > cut.value if cut.after else column >= cut.value
        code = code + above.cast(nw.Int32)
    return _Key(code, lambda codes: _as_codes(codes, rule.missing))


def _as_codes(column: Any, missing: int) -> Codes:
    codes: Codes = column.cast(pa.int64()).fill_null(missing).to_numpy().astype(np.uint16)  # of a bin
    return codes


def _bins_of_text(lazy: Frame, name: str, rule: Cuts, arrow_type: Any) -> _Key:
    """Numbers that the engine holds as text: it groups by lists of the texts that each bin has."""
    groups = _texts_by_code(lazy, name, rule)
    if groups is None:
        raise InputError(
            f"column {name!r} is to be numeric and is text with more than {surveys.KEPT:,} "
            "different values: cast it to a number in the lazy frame"
        )
    return _grouped(lazy, _clean(name, arrow_type), groups, rule.missing, rule.unknown)


def _texts_by_code(lazy: Frame, name: str, rule: Rule) -> dict[int, list[str]] | None:
    """The texts that a column has, by their codes; None if they are too many to look at."""
    values = _collect(lazy.select(nw.col(name).alias("value")).unique().head(surveys.KEPT + 1))
    if values.num_rows > surveys.KEPT:
        return None
    texts = one_array(values["value"]).drop_null()
    codes = rule.encode(texts)
    return {c: texts.filter(pa.array(codes == c)).to_pylist() for c in np.unique(codes).tolist()}


def _folded(lazy: Frame, name: str, rule: LookUp, arrow_type: Any) -> _Key:
    """Grouped by the values that have a code; the engine folds all the others into one."""
    column = _clean(name, arrow_type)
    if rule.by_key and value_type(arrow_type) == "string":  # numbers as text, written in who knows what way
        texts = _texts_by_code(lazy, name, rule)
        if texts is not None:
            texts.pop(rule.default, None)
            return _grouped(lazy, column, texts, rule.missing, rule.default)
    raw = _raw_values(list(rule.codes), arrow_type)
    if raw is None:
        return _values(name, rule)
    if rule.one_to_one and len(raw) <= len(rule.codes):
        mapping = _mapping(lazy, column, list(raw), nw.col("raw"))
        return _Key(column, rule.encode, mapping, rule.missing, rule.default)
    groups: dict[int, list[Any]] = {}
    for value, text in raw.items():
        groups.setdefault(rule.code(text), []).append(value)
    return _grouped(lazy, column, groups, rule.missing, rule.default)


def _grouped(
    lazy: Frame, column: Expression, groups: dict[int, list[Any]], missing: int, outside: int
) -> _Key:
    """The code of a value by lists of the values that share one."""
    code: Expression = nw.lit(outside)
    for group, members in groups.items():
        code = _one_of(nw.col("raw"), members, group, code)
    values = [value for members in groups.values() for value in members]
    mapping = _mapping(lazy, column, values, code)
    return _Key(column, lambda codes: _as_codes(codes, 0), mapping, missing, outside)


def _mapping(lazy: Frame, column: Expression, values: list[Any], mapped: Expression) -> Frame:
    """A row for each of the values that the column has: small, and made where the records are."""
    present = lazy.select(column.alias("raw")).filter(nw.col("raw").is_in(values))
    return present.group_by("raw").agg(nw.len().alias("n")).select("raw", mapped.alias("mapped"))


def _raw_values(texts: Sequence[str], arrow_type: Any) -> dict[Any, str] | None:
    """Values of this type that the texts may stand for, each with its text; None if they cannot be read.

    A text that no value of the type has, such as ``007`` of an integer, is left out; a number that the engine
    has as text may be written in several ways.
    """
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    own = set(texts)
    ways = {way: text for text in texts for way in spellings([text]) if way == text or way not in own}
    if value_type(arrow_type) == "string":
        return dict(ways)
    found: dict[Any, str] = {}
    for way, text in ways.items():
        try:
            value = pa.array([way]).cast(arrow_type)
        except pa.ArrowInvalid:
            continue
        except pa.ArrowNotImplementedError:
            return None
        if same_value(as_text(value)[0].as_py(), text):
            found.setdefault(value[0].as_py(), text)
    return found
