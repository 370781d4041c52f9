"""Records of any kind give the same tables, whole or in parts."""

from __future__ import annotations

import csv
import datetime as dt
import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agglearn.aggregation.api import aggregate, aggregate_split
from agglearn.aggregation.database import open_database_table
from agglearn.errors import InputError, TooLargeError
from agglearn.records import files, frames, kept
from agglearn.records.split import assign, parse_split
from agglearn.runtime import memory
from agglearn.schema.columns import as_text
from agglearn.schema.features import Binned, Categorical, Encoded
from agglearn.schema.schema import Label, Schema
from agglearn.tables.data import AggregatedData, merge
from agglearn.tables.format import save, save_schema
from agglearn.tables.hashing import hashed_cells

Backend: TypeAlias = Callable[[Any, Path], Any]
BACKENDS: dict[str, Backend] = {}


def backend(name: str) -> Callable[[Backend], Backend]:
    def register(make: Backend) -> Backend:
        BACKENDS[name] = make
        return make

    return register


def file_backend(name: str, write: Callable[[Any, Path], object]) -> None:
    @backend(name)
    def make(table: Any, folder: Path) -> Any:
        write(table, folder / name)
        return folder / name


def write_csv(table: Any, path: Path, delimiter: str = ",") -> None:
    # The writer of the standard library, so that nothing is read by what wrote it.
    text = [as_text(column).to_pylist() for column in table.columns]
    with pa.output_stream(path, compression="detect") as stream, pa.PythonFile(stream) as out:
        rows = itertools.chain([table.column_names], zip(*text, strict=True))
        for row in rows:
            line = Line()
            csv.writer(line, delimiter=delimiter, lineterminator="\n").writerow(row)
            out.write(line.text.encode())


class Line:
    text = ""

    def write(self, text: str) -> None:
        self.text += text


def write_arrow(table: Any, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)


def write_arrow_stream(table: Any, path: Path) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)


backend("pandas")(lambda table, folder: table.to_pandas())
backend("polars")(lambda table, folder: pl.from_arrow(table))
backend("pyarrow")(lambda table, folder: table)
backend("chunks")(
    lambda table, folder: pa.concat_tables([table.slice(i, 50) for i in range(0, len(table), 50)])
)
backend("dict")(lambda table, folder: table.to_pydict())
backend("reader")(lambda table, folder: table.to_reader(max_chunksize=max(1, len(table) // 5)))
backend("polars lazy")(lambda table, folder: BACKENDS["polars"](table, folder).lazy())
file_backend("records.csv", write_csv)
file_backend("records.csv.gz", write_csv)
file_backend("records.csv.zst", write_csv)
file_backend("records.tsv", lambda table, path: write_csv(table, path, "\t"))
file_backend("semicolons.txt", lambda table, path: write_csv(table, path, ";"))
file_backend("records.parquet", lambda table, path: pq.write_table(table, path, row_group_size=100))
file_backend("records.arrow", write_arrow)
file_backend("stream.arrow", write_arrow_stream)
file_backend("records.feather", feather.write_feather)


def write_parts(table: Any, folder: Path) -> None:
    folder.mkdir()
    third = len(table) // 3
    pq.write_table(table.slice(0, third), folder / "part-1.parquet")
    pq.write_table(table.slice(third, third).select(table.column_names[::-1]), folder / "part-2.parquet")
    pq.write_table(table.slice(2 * third), folder / "part-3.parquet")
    (folder / "_SUCCESS").touch()
    (folder / "notes.md").write_text("not records")


file_backend("folder", write_parts)


@backend("glob")
def glob_of_files(table: Any, folder: Path) -> Any:
    write_parts(table, folder / "parts")
    return str(folder / "parts" / "part-*.parquet")


@backend("list")
def list_of_files(table: Any, folder: Path) -> Any:
    write_parts(table, folder / "parts")
    return sorted((folder / "parts").glob("*.parquet"))


@backend("duckdb relation")
def duckdb_relation(table: Any, folder: Path) -> Any:
    return duckdb.connect().from_arrow(table)


@backend("duckdb table")
def duckdb_table(table: Any, folder: Path) -> Any:
    with duckdb.connect(str(folder / "records.duckdb")) as connection:
        connection.from_arrow(table).create("order")
    return open_database_table(folder / "records.duckdb", "order")


@pytest.fixture(params=BACKENDS)
def on_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Any], Any]:
    """Give an Arrow table to one of the backends."""
    return lambda table: BACKENDS[request.param](table, tmp_path)


def without_types(data: AggregatedData) -> AggregatedData:
    """The data with the types of categories forgotten: a text file cannot know them."""
    features = tuple(
        replace(f, value_type="string") if isinstance(f, Categorical) else f for f in data.schema.features
    )
    return replace(data, schema=Schema(features, data.schema.labels))


# --- one body, every backend -----------------------------------------------------------------------

# Table 2 of the paper, corrected: (records, positives) of each cell.
TOY_TABLES = {
    ("x1", "x2"): {("1", "A"): (1, 0), ("1", "B"): (2, 1), ("2", "A"): (1, 1), ("2", "B"): (1, 1)},
    ("x1", "x3"): {("1", "a"): (1, 1), ("1", "b"): (2, 0), ("2", "a"): (1, 1), ("2", "b"): (1, 1)},
    ("x2", "x3"): {("A", "a"): (0, 0), ("A", "b"): (2, 1), ("B", "a"): (2, 2), ("B", "b"): (1, 0)},
}


def test_the_toy_records_of_the_paper_give_its_tables(toy: Any, on_backend: Callable[[Any], Any]) -> None:
    data = aggregate(on_backend(toy), "y")
    assert (data.rows, data.positives) == (5, (3,))
    found: dict[Any, dict[Any, Any]] = {scope: {} for scope in data.tables}
    for scope, table in data.tables.items():
        modalities = [data.schema.feature(name).modalities for name in scope]
        for cell in np.ndindex(table.counts.shape):
            key = tuple(m[i] for m, i in zip(modalities, cell, strict=True))
            found[scope][key] = (table.counts[cell], table.sums[0][cell])
    assert found == TOY_TABLES
    assert data.equals(aggregate(toy, "y")), "the schema differs"


def rich_records(n: int = 600) -> Any:
    """Columns of every kind under names that are hard on readers and on SQL."""
    rng = np.random.default_rng(0)

    def gaps(values: Any, share: float = 0.1) -> list[Any]:
        return [None if gone else v for v, gone in zip(values, rng.random(n) < share, strict=True)]

    day = dt.date(2024, 2, 27)
    amounts = np.where(rng.random(n) < 0.7, 0.0, np.round(rng.gamma(2, 50, n), 2))
    with_nan = rng.normal(size=n)
    with_nan[rng.random(n) < 0.2] = np.nan
    return pa.table(
        {
            "two words": gaps(rng.choice(["a", "B b", "ç", "it's", 'say "no"', "x,y", "(other)"], n)),
            "select": rng.integers(0, 4, n),
            "l'été": gaps(rng.choice([True, False], n).tolist()),
            'quo"te': [day + dt.timedelta(int(d)) for d in rng.integers(0, 4, n)],
            "shop_id": pa.array(
                gaps(rng.integers(0, 10**6, 30)[rng.integers(0, 30, n)].tolist()), pa.int64()
            ),
            "count": rng.integers(18, 90, n),
            "größe": amounts,
            "semi;colon": with_nan,
            "comma, name": gaps(np.round(rng.normal(size=n), 3).tolist()),
            "order": rng.integers(0, 2, n),
            "sum": rng.choice([True, False], n),
        }
    )


def expected_text(feature: Categorical | Binned, value: Any) -> str:
    """The modality of a raw value, worked out without the package."""
    if value is None or value != value:
        return "(missing)"
    if isinstance(feature, Binned):
        below = [c for c in feature.cuts if value > c.value or (value == c.value and not c.after)]
        return feature.modalities[len(below)]
    return str(value).lower() if isinstance(value, bool) else str(value)


def count_in_python(table: Any, schema: Schema, scope: tuple[str, ...]) -> dict[tuple[str, ...], list[int]]:
    """Cells by their modalities, counted record by record."""
    cells: dict[tuple[str, ...], list[int]] = {}
    for record in table.to_pylist():
        key = tuple(expected_text(schema.feature(n), record[n]) for n in scope)  # type: ignore[arg-type]
        cell = cells.setdefault(key, [0] * (1 + len(schema.labels)))
        for k, n in enumerate([1, *(int(record[label]) for label in schema.label_names)]):
            cell[k] += n
    return cells


def cells_of_table(data: AggregatedData, scope: tuple[str, ...]) -> dict[tuple[str, ...], list[int]]:
    table = data.tables[scope]
    modalities = [data.schema.feature(n).modalities for n in scope]
    return {
        tuple(m[i] for m, i in zip(modalities, cell, strict=True)): [
            table.counts[cell],
            *table.sums[:, *cell],
        ]
        for cell in zip(*np.nonzero(table.counts), strict=True)
    }


@pytest.fixture(scope="module")
def rich() -> Any:
    return rich_records()


@pytest.fixture(scope="module")
def rich_data(rich: Any) -> AggregatedData:
    data = aggregate(rich, ["order", "sum"], tables="singles,pairs")
    for scope in data.tables:  # checked once, record by record, and every backend against it
        assert cells_of_table(data, scope) == count_in_python(rich, data.schema, scope)
    return data


def test_rich_records_give_the_same_tables_everywhere(
    rich: Any, rich_data: AggregatedData, on_backend: Callable[[Any], Any], request: pytest.FixtureRequest
) -> None:
    data = aggregate(on_backend(rich), ["order", "sum"], tables="singles,pairs")
    assert without_types(data).equals(without_types(rich_data))
    text_file = any(ending in request.node.name for ending in (".csv", ".tsv", ".txt"))
    assert text_file or data.schema == rich_data.schema


def test_a_schema_learnt_on_one_backend_codes_another(
    rich: Any, rich_data: AggregatedData, on_backend: Callable[[Any], Any]
) -> None:
    result = aggregate_split(
        on_backend(rich), ["order", "sum"], schema=rich_data.schema, tables="singles,pairs"
    )
    assert result.train.equals(rich_data)
    assert result.unknown == {}


@pytest.mark.parametrize("name", ["records.csv", "records.parquet", "records.arrow", "pyarrow", "reader"])
def test_tables_do_not_depend_on_the_size_of_a_batch(
    rich: Any, rich_data: AggregatedData, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (files, frames):
        monkeypatch.setattr(module, "BATCH_ROWS", 37)
    monkeypatch.setattr(files, "_CSV_BLOCK", 5000)
    data = aggregate(BACKENDS[name](rich, tmp_path), ["order", "sum"], tables="singles,pairs")
    assert without_types(data).equals(without_types(rich_data))


def test_frames_with_categories_and_narrow_types_are_no_different(
    rich: Any, rich_data: AggregatedData
) -> None:
    names = ["two words", "select", "count"]
    expected = aggregate(rich.select([*names, "order"]), "order")
    pandas = rich.select([*names, "order"]).to_pandas()
    pandas = pandas.astype({"two words": "category", "select": "int8", "count": "float64", "order": "bool"})
    polars = pl.from_arrow(rich.select([*names, "order"]))
    assert isinstance(polars, pl.DataFrame)
    polars = polars.cast({"two words": pl.Categorical, "select": pl.UInt8, "count": pl.Float32})
    for frame in (pandas, polars):
        assert without_types(aggregate(frame, "order")).equals(without_types(expected))


# --- merging and splitting -------------------------------------------------------------------------

records = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.integers(0, 3),
        st.sampled_from([0.0, 0.0, 0.5, 2.0, None]),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


def as_table(rows: list[tuple[Any, ...]]) -> Any:
    types = {"s": pa.string(), "i": pa.int64(), "f": pa.float64(), "click": pa.bool_(), "sale": pa.bool_()}
    columns = zip(*rows, strict=True)
    return pa.table({n: pa.array(c, t) for (n, t), c in zip(types.items(), columns, strict=True)})


@given(
    rows=records,
    ends=st.lists(st.integers(0, 40), max_size=4),
    labels=st.sampled_from(["click", ("click", "sale")]),
    tables=st.sampled_from(["pairs", "singles", "triples", "singles,s*f", "s*i*f,i"]),
    hash_size=st.none() | st.integers(2, 12),
)
@settings(max_examples=60, deadline=None)
def test_merging_any_split_equals_aggregating_the_whole(
    rows: list[tuple[Any, ...]],
    ends: list[int],
    labels: Any,
    tables: str,
    hash_size: int | None,
) -> None:
    table = as_table([("a", 0, 1.0, True, True), *rows])
    exclude = [] if labels != "click" else ["sale"]
    options: dict[str, Any] = {"tables": tables, "hash_size": hash_size, "exclude": exclude}
    whole = aggregate(table, labels, **options)
    bounds = sorted({0, *(min(e, len(table)) for e in ends), len(table)})
    parts = [
        aggregate(
            table.slice(a, b - a), labels, schema=whole.schema, period=str(a), **{**options, "exclude": []}
        )
        for a, b in itertools.pairwise(bounds)
    ]
    assert merge(parts).equals(whole)
    assert whole.rows == len(table)


def test_parts_of_a_split_are_disjoint_and_add_up_to_the_whole() -> None:
    n = 2000
    table = pa.table({"row": [f"r{i}" for i in range(n)], "x": [i % 3 for i in range(n)], "y": [0, 1] * 1000})
    schema = aggregate(table, "y", min_modality_count=1, categorical=["row"]).schema
    parts = aggregate_split(table, "y", schema=schema, split={"valid": 0.2, "test": 0.1}, seed=5).parts
    assert list(parts) == ["train", "valid", "test"]
    each = np.array([d.table("row").counts for d in parts.values()])
    assert (each.sum(axis=0) == 1).all(), "a record is in two parts, or in none"
    assert merge(parts.values()).equals(aggregate(table, "y", schema=schema))
    # Shares within four standard deviations of a binomial.
    for part, share in (("valid", 0.2), ("test", 0.1)):
        assert abs(parts[part].rows - n * share) < 4 * np.sqrt(n * share * (1 - share))
    assert parts["valid"].split == {"part": "valid", "seed": 5, "shares": {"valid": 0.2, "test": 0.1}}


def test_a_split_depends_on_the_seed_and_the_record_alone(rich: Any, tmp_path: Path) -> None:
    def split(data: Any, seed: int = 0) -> dict[str, AggregatedData]:
        found = aggregate_split(data, ["order", "sum"], split={"valid": 0.3}, seed=seed).parts
        return {part: without_types(d) for part, d in found.items()}

    rich = rich.slice(0, 200)
    first = split(rich)
    others = [split(rich.to_reader(max_chunksize=size)) for size in (7, 64)]
    others += [
        split(BACKENDS[name](rich, tmp_path)) for name in ("records.csv.gz", "folder", "records.parquet")
    ]
    for other in others:
        assert all(first[part].equals(other[part]) for part in first)
    assert not split(rich, seed=1)["valid"].equals(first["valid"])


def test_the_schema_is_learnt_on_the_training_part_only() -> None:
    n = 500
    table = pa.table({"row": [f"r{i:03d}" for i in range(n)], "v": np.arange(n) * 1.5, "y": [0, 1] * 250})
    result = aggregate_split(
        table, "y", min_modality_count=1, split={"valid": 0.4}, seed=3, features=["row", "v"]
    )
    training = assign(0, n, 3, {"valid": 0.4}) == 0
    row, v = result.train.schema.features
    assert isinstance(row, Categorical)
    assert list(row.values) == [f"r{i:03d}" for i in np.flatnonzero(training)]
    assert isinstance(v, Binned)
    assert (v.low, v.high) == (table["v"].to_numpy()[training].min(), table["v"].to_numpy()[training].max())
    # A record of the other part has a row that the schema never saw: counted, and told.
    assert result.unknown == {"row": int((~training).sum())}
    assert result.parts["valid"].table("row", "v").counts.sum() == 0
    assert result.parts["valid"].table("row", "v").unknown[0] == (~training).sum()


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**80])
def test_records_are_assigned_evenly_whatever_the_seed(seed: int) -> None:
    part = assign(0, 100_000, seed, {"a": 0.25, "b": 0.5})
    # Five standard deviations of a binomial share of 100,000 records.
    np.testing.assert_allclose(np.bincount(part) / 1e5, [0.25, 0.25, 0.5], atol=5 * 0.0016)
    np.testing.assert_array_equal(part[1000:1010], assign(1000, 10, seed, {"a": 0.25, "b": 0.5}))


@pytest.mark.parametrize(
    "text",
    [
        "0.2",
        "valid",
        "valid=",
        "valid=2",
        "valid=0",
        "valid=-1",
        "valid=nan",
        "a=0.5,b=0.5",
        "=0.2",
        "a b=0.1",
        "train=0.2",
        "a/b=0.1",
        "v=0.1,v=0.2",
        "v=0.1,",
    ],
)
def test_a_split_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_split(text)


def test_a_part_may_be_called_encoding() -> None:
    table = pa.table({"x": ["a", "b"] * 100, "y": [0, 1] * 100})
    parts = aggregate_split(table, "y", split={"encoding": 0.5}).parts
    assert set(parts) == {"train", "encoding"}


def test_a_part_that_gets_no_record_is_refused() -> None:
    with pytest.raises(InputError, match="no record fell into part 'valid' of the split"):
        aggregate_split(pa.table({"x": ["a"] * 3, "y": [0, 1, 1]}), "y", split={"valid": 1e-9})


# --- hashing, encoding, given schemas --------------------------------------------------------------


def test_large_tables_are_hashed_and_small_ones_are_not(rich: Any) -> None:
    plain = aggregate(rich, ["order", "sum"], tables="pairs,select*count*größe")
    hashed = aggregate(rich, ["order", "sum"], tables="pairs,select*count*größe", hash_size=40)
    for scope, table in hashed.tables.items():
        expected = plain.tables[scope]
        assert (not table.cells.apart) == (expected.n_cells > 40)
        if table.cells.apart:
            np.testing.assert_array_equal(table.counts, expected.counts)
            continue
        codes = np.array(np.unravel_index(np.arange(expected.n_cells), expected.counts.shape))
        buckets = hashed_cells(codes.astype(np.uint16), 40)
        for found, wanted in ((table.counts, expected.counts), *zip(table.sums, expected.sums, strict=True)):
            assert found.tolist() == np.bincount(buckets, wanted.ravel(), minlength=40).tolist()


def test_a_hashed_table_keeps_unknown_values_apart() -> None:
    schema = aggregate(pa.table({"a": ["p", "q"] * 4, "b": [0, 1, 2, 3] * 2, "y": [0, 1] * 4}), "y").schema
    strange = pa.table({"a": ["p", "?", "q"], "b": [0, 1, 9], "y": [1, 1, 0]})
    (table,) = aggregate(strange, "y", schema=schema, hash_size=3).tables.values()
    assert table.cells.buckets
    assert table.counts.sum() == 1
    assert table.unknown.tolist() == [2, 1]


def test_values_never_seen_are_counted_and_told_and_no_error(toy: Any) -> None:
    schema = aggregate(toy, "y").schema
    strange = pa.table({"x1": [1, 3, 3], "x2": ["A", "Z", None], "x3": ["a", "a", "a"], "y": [1, 0, 1]})
    result = aggregate_split(strange, "y", schema=schema)
    assert result.unknown == {"x1": 2, "x2": 2}
    assert result.train.rows == 3
    table = result.train.tables["x1", "x2"]
    assert (table.counts.sum(), table.unknown.tolist(), table.total) == (1, [2, 1], 3)


def test_target_encodings_are_learnt_on_records_that_are_in_no_table() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    site = rng.integers(0, 300, n)
    y = rng.random(n) < np.where(site % 2, 0.1, 0.7)
    table = pa.table({"site": [f"s{s}" for s in site], "x": rng.integers(0, 3, n), "y": y})
    options: dict[str, Any] = {"target_encode": ["site"], "encoding_share": 0.5, "encoding_modalities": 12}
    result = aggregate_split(table, "y", seed=4, split={"valid": 0.2}, **options)
    part = assign(0, n, 4, {"valid": 0.2, "held out": 0.5})
    assert result.train.rows == (part == 0).sum()
    assert result.parts["valid"].rows == (part == 1).sum()
    assert set(result.parts) == {"train", "valid"}
    feature = result.train.schema.feature("site")
    assert isinstance(feature, Encoded)
    held_out = {f"s{s}" for s in site[part == 2]}
    assert set(feature.values) == held_out
    assert 2 < feature.n_modalities <= 12
    # The training tables count the training records by the codes that were learnt elsewhere.
    codes = feature.encode(table["site"])[part == 0]
    np.testing.assert_array_equal(
        result.train.table("site").counts, np.bincount(codes, minlength=feature.n_modalities)
    )
    # The rates of the groups tell good sites from bad ones.
    rates = result.train.table("site").sums[0] / np.maximum(result.train.table("site").counts, 1)
    assert rates[1:].max() - rates[1:].min() > 0.4
    assert result.notes[0].kind == "encoded"
    # Given as a schema, the encoding is used as it is, and no record is held out any more.
    again = aggregate(table, "y", schema=result.train.schema)
    assert again.rows == n


def test_a_schema_is_given_as_a_file_or_as_other_tables(
    rich: Any, rich_data: AggregatedData, tmp_path: Path
) -> None:
    save(rich_data, tmp_path / "old.agg")
    save_schema(rich_data.schema, tmp_path / "schema.json")
    half = rich.slice(0, 300)
    expected = aggregate(half, ["order", "sum"], schema=rich_data.schema)
    assert aggregate(half, ["order", "sum"], schema=str(tmp_path / "schema.json")).equals(expected)
    alike = aggregate(half, ["order", "sum"], schema=tmp_path / "old.agg")
    assert set(alike.tables) == set(rich_data.tables) > set(expected.tables)
    assert alike.select(tables=expected.tables).equals(expected)
    rest = aggregate(rich.slice(300), ["order", "sum"], schema=tmp_path / "old.agg", tables="singles,pairs")
    first = aggregate(half, ["order", "sum"], schema=tmp_path / "old.agg", tables="singles,pairs")
    assert (first + rest).equals(rich_data)


def test_a_given_schema_can_be_narrowed(rich: Any, rich_data: AggregatedData) -> None:
    data = aggregate(rich, "order", schema=rich_data.schema, features=["select", "count"])
    assert data.schema.names == ("select", "count")
    data = aggregate(rich, "order", schema=rich_data.schema, exclude=["*o*", "select"])
    assert data.schema.names == ("l'été", "größe")


# --- columns and labels ----------------------------------------------------------------------------


def test_columns_are_chosen_by_name_or_pattern(rich: Any) -> None:
    data = aggregate(rich, "order", features=["select", "count", "sum"])
    assert data.schema.names == ("select", "count", "sum")
    data = aggregate(rich, "order", exclude=["*o*", "sum"])
    assert data.schema.names == ("select", "l'été", "größe")


def test_several_labels_are_counted_at_once() -> None:
    table = pa.table({"x": ["a", "a", "b"], "click": [1, 0, 1], "sale": ["no", "no", "yes"]})
    data = aggregate(table, ["click", "sale"], positive=[None, "yes"])
    assert data.positives == (2, 1)
    assert data.table("x").counts.tolist() == [2, 1]
    assert data.table("x").sums.tolist() == [[1, 1], [0, 1]]


def test_ten_labels_are_counted_as_well_as_one() -> None:
    rng = np.random.default_rng(0)
    columns = {f"y{k}": rng.integers(0, 2, 50) for k in range(10)}
    table = pa.table({"x": rng.integers(0, 3, 50), **columns})
    data = aggregate(table, list(columns))
    assert data.positives == tuple(int(c.sum()) for c in columns.values())
    x = table["x"].to_numpy()
    expected = [[int(c[x == v].sum()) for v in range(3)] for c in columns.values()]
    assert data.table("x").sums.tolist() == expected


def test_one_feature_has_a_table_of_its_own() -> None:
    data = aggregate({"x": ["a", "b", "a"], "y": [1, 0, 0]}, "y")
    assert list(data.tables) == [("x",)]


def test_cells_that_are_seen_are_refused_where_they_do_not_fit_and_no_others_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = tuple(map(str, range(32_000)))
    features = tuple(Categorical(name=n, values=values, missing=False) for n in ("a", "b"))
    schema = Schema(features, (Label("y"),))
    table = pa.table({"a": values, "b": values, "y": [0, 1] * 16_000})
    monkeypatch.setenv("AGGLEARN_MEMORY", "500KiB")
    with pytest.raises(TooLargeError) as caught:
        aggregate(table, "y", schema=schema)
    message = str(caught.value)
    # 32,000 cells seen of a billion: two counters, a count and a sum, eight bytes each.
    assert "32,000 cells (the largest table is a × b" in message
    assert "would need 1000.0 KiB of memory, and 500.0 KiB may be used" in message
    assert "max_modalities" in message
    assert "hash_size" in message
    assert aggregate(table, "y", schema=schema, hash_size=1000).table("a", "b").cells.buckets
    monkeypatch.setenv("AGGLEARN_MEMORY", "2MiB")
    assert aggregate(table, "y", schema=schema).table("a", "b").n_cells == 32_001


def test_the_parts_of_a_split_must_fit_in_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table(
        {"a": [f"v{i % 60}" for i in range(300)], "b": [i % 61 for i in range(300)], "y": [0, 1] * 150}
    )
    # 61 × 62 places of two counters, a count and a sum: 118 KiB, and three times that in three parts.
    monkeypatch.setenv("AGGLEARN_MEMORY", "200KiB")
    schema = aggregate(table, "y", categorical=["b"]).schema
    with pytest.raises(TooLargeError, match=r"would need 354\.6 KiB of memory"):
        aggregate_split(table, "y", schema=schema, split={"valid": 0.3, "test": 0.3})


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("1000", 1000),
        ("8GiB", 8 << 30),
        ("1.5 GB", 1_500_000_000),
        ("500MB", 500_000_000),
        ("500m", 500 << 20),
        ("1e9", 10**9),
    ],
)
def test_the_limit_of_memory_is_written_as_people_write_it(
    text: str, n_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGGLEARN_MEMORY", text)
    assert memory.limit() == n_bytes


@pytest.mark.parametrize("text", ["lots", "1.2.3GB", "-1", "GB", "5 XB"])
def test_a_limit_of_memory_that_is_no_size_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGGLEARN_MEMORY", text)
    with pytest.raises(InputError, match="is not a size: write one like 8GiB or 500MB"):
        memory.limit()


def test_without_a_limit_half_of_the_free_memory_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGGLEARN_MEMORY", raising=False)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 1 << 28 <= memory.limit() <= max(total // 2, 1 << 28)


@pytest.mark.parametrize("data", [3, None, [1, 2], object(), {"x": [1], "y": [1, 2]}, "", []])
def test_what_is_no_set_of_records_is_refused(data: Any) -> None:
    with pytest.raises(InputError):
        aggregate(data, "y")


def test_a_frame_with_mixed_types_names_the_column() -> None:
    pd: Any = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": pd.Series([1, "a", 2.5], dtype=object), "y": [0, 1, 1]})
    with pytest.raises(InputError, match=r"column 'x' mixes types.*cast it to one type"):
        aggregate(frame, "y")


def test_a_frame_with_a_name_twice_names_the_column() -> None:
    pd: Any = pytest.importorskip("pandas")
    for names in (["x", "x", "y"], [0, "0", "y"]):
        frame = pd.DataFrame([[1, 2, 0], [1, 2, 1]])
        frame.columns = pd.Index(names)
        with pytest.raises(InputError, match=f"column '{names[0]}' stands twice"):
            aggregate(frame, "y")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], [2]]),
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([b"a", b"b"]),
        pa.array([b"a", b"b"], pa.binary(1)),
        pa.array([b"a", b"b"]).dictionary_encode(),
        pa.array([(1, 2, 3), (1, 2, 3)], pa.month_day_nano_interval()),
    ],
    ids=lambda c: str(c.type),
)
@pytest.mark.parametrize("name", ["pyarrow", "records.parquet", "records.arrow", "reader"])
def test_columns_that_are_no_scalars_are_refused_and_can_be_left_out(
    column: Any, name: str, tmp_path: Path
) -> None:
    table = pa.table({"bad": column, "x": [1, 2], "y": [0, 1]})
    if name == "records.parquet" and "interval" in str(column.type):
        pytest.skip("Parquet cannot hold an interval")
    with pytest.raises(InputError, match=r"column 'bad' has type.*leave it out with exclude"):
        aggregate(BACKENDS[name](table, tmp_path), "y")
    assert aggregate(BACKENDS[name](table, tmp_path), "y", exclude=["bad"]).rows == 2


def test_a_reader_is_read_once_and_leaves_nothing_behind(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert aggregate(toy.to_reader(), "y").rows == 5
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 400_000
    names = [f"c{i}" for i in range(8)]
    schema = pa.schema([*((name, pa.int32()) for name in names), ("y", pa.int8())])
    with pq.ParquetWriter(tmp_path / "x.parquet", schema) as writer:
        for _ in range(8):
            columns = [rng.integers(0, 50, n // 8).astype(np.int32) for _ in names]
            writer.write_table(
                pa.table([*columns, rng.integers(0, 2, n // 8).astype(np.int8)], schema=schema)
            )
    monkeypatch.setattr(files, "BATCH_ROWS", 10_000)
    monkeypatch.setattr(kept, "_MOST", 1 << 20)  # bytes kept for the second reading, of any number of records
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    seen: list[int] = []
    original = files.FileSource.batches

    def watched(self: Any, columns: Any) -> Any:
        for batch in original(self, columns):
            seen.append(pool.bytes_allocated() - before)
            yield batch

    monkeypatch.setattr(files.FileSource, "batches", watched)
    assert aggregate(tmp_path / "x.parquet", "y").rows == n
    # All columns would take 33 bytes a record, 13 MB; a row group takes an eighth of that.
    assert max(seen) < 33 * n / 3


def test_few_records_are_read_from_a_file_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x,y\n" + "a,1\nb,0\n" * 50)
    read = []
    original = files.FileSource.batches

    def watched(self: Any, columns: Any) -> Any:
        read.append(columns)
        return original(self, columns)

    monkeypatch.setattr(files.FileSource, "batches", watched)
    once = aggregate(tmp_path / "in.csv", "y")
    assert len(read) == 1
    monkeypatch.setattr(kept, "_MOST", 0)
    assert aggregate(tmp_path / "in.csv", "y").equals(once)
    assert len(read) == 3
