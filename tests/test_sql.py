"""The queries run on real servers, and what they give is received as the very tables of aggregate()."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from agglearn.aggregation.api import aggregate
from agglearn.cli import app
from agglearn.errors import InputError
from agglearn.receive import read_tables, receive_tables
from agglearn.schema.features import Binned, Categorical, Cut, Encoded
from agglearn.schema.schema import Label, Schema
from agglearn.sql.dialects import DIALECTS
from agglearn.sql.queries import write_queries
from agglearn.tables.format import save_schema
from agglearn.tables.scopes import parse_scopes
from tests.servers import copy_to_postgresql

psycopg = pytest.importorskip("psycopg")

Server: TypeAlias = Callable[[Any, str], Callable[[str, Path], Path]]
"""Given records and a name, make a table of them; then run a query and write what it gives to a file."""


# --- servers ---------------------------------------------------------------------------------------


@pytest.fixture
def on_postgresql(postgresql: Any) -> Server:
    def load(records: Any, table: str) -> Callable[[str, Path], Path]:
        copy_to_postgresql(postgresql, records, table)

        def run(text: str, target: Path) -> Path:
            path = target.with_suffix(".csv")
            with postgresql.cursor() as cursor, path.open("wb") as file:
                command = f"COPY ({text.rstrip().removesuffix(';')}) TO STDOUT (FORMAT csv, HEADER)"
                with cursor.copy(command) as copy:
                    for block in copy:
                        file.write(block)
            return path

        return run

    return load


def _on_duckdb(ending: str) -> Server:
    def load(records: Any, table: str) -> Callable[[str, Path], Path]:
        connection = duckdb.connect()
        connection.register("source", records)
        name = table.replace('"', '""')
        connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM source')

        def run(text: str, target: Path) -> Path:
            path = target.with_suffix(ending)
            connection.execute(f"COPY ({text.rstrip().removesuffix(';')}) TO '{path}'")
            return path

        return run

    return load


KINDS = ["duckdb to CSV", "duckdb to Parquet", "postgresql to CSV"]
AT_ONCE = [kind.replace(" to ", " at once to ") for kind in KINDS]


@pytest.fixture(params=[*KINDS, *AT_ONCE])
def server(request: pytest.FixtureRequest) -> tuple[str, Server]:
    dialect, _, kind = request.param.partition(" to ")
    if dialect.startswith("postgresql"):
        return dialect, request.getfixturevalue("on_postgresql")
    return dialect, _on_duckdb(f".{kind.lower()}")


def through_sql(
    server: tuple[str, Server], records: Any, schema: Schema, folder: Path, **options: Any
) -> tuple[list[Path], Schema]:
    """Run the queries of a schema over records, a file each."""
    dialect, load = server
    if dialect.endswith(" at once"):
        dialect, options = dialect.removesuffix(" at once"), {**options, "one_query": True}
    run = load(records, "the records")
    scopes = parse_scopes(options.pop("tables", "singles,pairs"), schema)
    written = write_queries(schema, scopes, dialect, "the records", **options)
    return [run(query.text, folder / query.name) for query in written], schema


# --- records ---------------------------------------------------------------------------------------


def odd_records(n: int = 600, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)

    def some(values: list[Any], share: float = 0.15) -> list[Any]:
        return [None if u < share else v for u, v in zip(rng.random(n), values, strict=True)]

    moment = dt.datetime(2024, 1, 1, 10, 30)
    return pa.table(
        {
            "select": some([f"v{z % 60}" for z in rng.zipf(1.4, n)]),
            'a "quoted" name': [
                ["NA", "it's", "back\\slash", "(other)", ""][i] for i in rng.integers(0, 5, n)
            ],
            "größe × 2": pa.array(np.where(rng.random(n) < 0.6, 0.0, rng.normal(size=n))),
            "single": pa.array(some(rng.normal(size=n).tolist()), pa.float32()),
            "age; DROP TABLE": pa.array(some(rng.integers(17, 90, n).tolist())),
            "gaps": pa.array([float("nan") if i % 9 == 0 else i % 4 / 2 for i in range(n)]),
            "flag": some((rng.random(n) < 0.5).tolist()),
            "day": some([dt.date(2024, 2, 27) + dt.timedelta(int(i)) for i in rng.integers(0, 9, n)]),
            "time": [dt.time(10, 30, 0, 500_000 * int(i)) for i in rng.integers(0, 2, n)],
            "moment": pa.array(
                some([moment + dt.timedelta(seconds=0.25 * int(i)) for i in rng.integers(0, 9, n)])
            ),
            "count": [f"line\nbreak {i}" for i in rng.integers(0, 3, n)],
            "label one": [" yes" if u < 0.3 else "no" for u in rng.random(n)],
            "label two": rng.random(n) < 0.5,
        }
    )


LABELS: dict[str, Any] = {"label": ["label one", "label two"], "positive": ["yes", None]}
OPTIONS: dict[str, Any] = {"categorical": ["gaps"], "max_modalities": 6, "bins": 5}


def test_queries_give_the_tables_of_aggregate(server: tuple[str, Server], tmp_path: Path) -> None:
    records = odd_records()
    expected = aggregate(records, **LABELS, **OPTIONS, tables="singles,pairs")
    files, schema = through_sql(server, records, expected.schema, tmp_path)
    received = read_tables(files, schema=schema)
    assert received.unknown == {}
    assert received.data.equals(expected)


def test_records_the_schema_does_not_know_come_back_as_unknown(
    server: tuple[str, Server], tmp_path: Path
) -> None:
    records = odd_records()
    learnt = aggregate(records.slice(0, 12), **LABELS, **OPTIONS, tables="singles").schema
    expected = aggregate(records, **LABELS, schema=learnt, tables="singles,pairs")
    assert max(t.unknown[0] for t in expected.tables.values()) > 0
    files, schema = through_sql(server, records, learnt, tmp_path)
    assert receive_tables(files, schema=schema).equals(expected)


def test_a_target_encoding_is_applied_by_the_server(server: tuple[str, Server], tmp_path: Path) -> None:
    records = odd_records()
    encoded = Encoded(
        name="select",
        groups=("never seen", "rare; it's", "common"),
        values=tuple(f"v{i}" for i in range(40)),
        codes=tuple(i % 3 for i in range(40)),
        missing=True,
    )
    flag = Categorical(name="flag", values=("false", "true"), value_type="boolean", missing=False)
    schema = Schema((encoded, flag), (Label("label two"),))
    expected = aggregate(records, "label two", schema=schema)
    files, schema = through_sql(server, records, schema, tmp_path, tables="pairs")
    assert receive_tables(files, schema=schema).equals(expected)


def test_cells_below_the_least_count_are_left_out(server: tuple[str, Server], tmp_path: Path) -> None:
    records = odd_records()
    whole = aggregate(records, **LABELS, **OPTIONS)
    files, schema = through_sql(server, records, whole.schema, tmp_path, tables="pairs", min_count=7)
    data = receive_tables(files, schema=schema, floor=7)
    assert data.absent == "suppressed"
    for scope, table in whole.tables.items():
        kept = table.counts >= 7
        got = data.tables[scope]
        np.testing.assert_array_equal(kept if got.measured is None and kept.all() else got.measured, kept)
        np.testing.assert_array_equal(got.counts, np.where(kept, table.counts, 0))
        np.testing.assert_array_equal(got.sums, np.where(kept, table.sums, 0))


def test_hashed_tables_are_folded_when_received(server: tuple[str, Server], tmp_path: Path) -> None:
    records = odd_records()
    expected = aggregate(records, **LABELS, **OPTIONS, hash_size=20)
    assert any(t.cells.buckets for t in expected.tables.values())
    files, schema = through_sql(server, records, expected.schema, tmp_path, tables="pairs", hash_size=20)
    assert receive_tables(files, schema=schema, hash_size=20).equals(expected)


def test_a_record_without_a_usable_label_makes_the_table_unusable(
    server: tuple[str, Server], tmp_path: Path
) -> None:
    feature = Categorical(name="a", values=("x", "z"), missing=False)
    schema = Schema((feature,), (Label("y"),))
    for labels in (["1", None, "0"], ["1", "maybe", "0"]):
        records = pa.table({"a": ["x", "x", "z"], "y": labels})
        files, _ = through_sql(server, records, schema, tmp_path, tables="singles")
        with pytest.raises(InputError, match="column 'y' has no value in row"):
            receive_tables(files, schema=schema)


@pytest.mark.parametrize("column", [[1, 0, 1], [1.0, 0.0, 1.0], [True, False, True], ["True", " 0", "1 "]])
def test_labels_of_any_type_are_summed(server: tuple[str, Server], column: Any, tmp_path: Path) -> None:
    schema = Schema((Categorical(name="a", values=("x", "z"), missing=False),), (Label("y"),))
    records = pa.table({"a": ["x", "x", "z"], "y": column})
    files, _ = through_sql(server, records, schema, tmp_path, tables="singles")
    data = receive_tables(files, schema=schema)
    assert data.table("a").counts.tolist() == [2, 1]
    assert data.table("a").sums[0].tolist() == [1, 1]


def test_a_query_asks_for_no_more_tables_than_a_database_takes() -> None:
    names = [f"f{i}" for i in range(30)]
    schema = Schema(tuple(Categorical(name=n, values=("a",), missing=False) for n in names), (Label("y"),))
    scopes = parse_scopes("pairs", schema)
    [whole] = write_queries(schema, scopes, "duckdb", "t", one_query=True)
    assert whole.scopes == tuple(scopes)
    assert whole.text.count("GROUP BY") == len(scopes) == 435
    queries = write_queries(schema, scopes, "bigquery", "t", one_query=True)
    assert [len(q.scopes) for q in queries] == [100, 100, 100, 100, 35]
    assert [scope for q in queries for scope in q.scopes] == scopes
    assert len({q.name for q in queries}) == 5


def test_features_may_be_called_as_the_columns_of_one_query_are(tmp_path: Path) -> None:
    records = pa.table({"feature_1": ["a", "b"], "value": ["u", None], "count": ["c", "c"], "y": [0, 1]})
    expected = aggregate(records, "y", tables="singles,pairs")
    server = ("duckdb at once", _on_duckdb(".parquet"))
    [file], schema = through_sql(server, records, expected.schema, tmp_path)
    assert receive_tables(file, schema=schema).equals(expected)


def test_the_verb_prints_one_query_for_all_tables(tmp_path: Path) -> None:
    schema = Schema(tuple(Categorical(name=n, values=("a",), missing=False) for n in "abc"), (Label("y"),))
    save_schema(schema, tmp_path / "s.json")
    done = CliRunner().invoke(app, ["sql", str(tmp_path / "s.json"), "--table", "t", "--one-query", "--json"])
    assert done.exit_code == 0, done.output
    [query] = json.loads(done.stdout)["queries"]
    assert query["tables"] == [["a", "b"], ["a", "c"], ["b", "c"]]
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (a TEXT, b TEXT, c TEXT, y INT)")
    assert connection.execute(query["text"]).fetchall() == []


@settings(max_examples=25, deadline=None)
@given(
    edges=st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=4, unique=True),
    after=st.lists(st.booleans(), min_size=4, max_size=4),
    integers=st.booleans(),
)
def test_bins_break_exactly_at_the_cuts(
    edges: list[float], after: list[bool], integers: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A value at a cut, or a hair to either side of it, falls where the stream puts it."""
    edges = sorted({round(e) + 0.0 if integers else e + 0.0 for e in edges})
    cuts = tuple(Cut(e, a) for e, a in zip(edges, after, strict=False))
    near = [v for e in edges for v in (e, np.nextafter(e, np.inf), np.nextafter(e, -np.inf))]
    records = pa.table({"x": [float(v) for v in near], "y": [i % 2 for i in range(len(near))]})
    feature = Binned(name="x", cuts=cuts, low=-1e6, high=1e6, integer=integers, missing=False)
    schema = Schema((feature,), (Label("y"),))
    folder = tmp_path_factory.mktemp("bins")
    files, _ = through_sql(("duckdb", _on_duckdb(".csv")), records, schema, folder, tables="singles")
    expected = aggregate(records, "y", schema=schema, tables="singles")
    assert receive_tables(files, schema=schema).equals(expected)


# --- text ------------------------------------------------------------------------------------------


def small_schema() -> Schema:
    return Schema(
        (
            Categorical(name='se`l"ect', values=("it's", "a\\b\n"), other=True, missing=True),
            Binned(name="age", cuts=(Cut(0.0, after=True), Cut(0.1)), low=0, high=9, missing=False),
            Categorical(name="day", values=("2024-01-31",), value_type="date", missing=True),
        ),
        (Label("click", positive="it's"),),
    )


QUOTED = {
    "duckdb": ('"se`l""ect"', "'it''s'", "'a\\b\n'", '"db"."my.table"'),
    "postgresql": ('"se`l""ect"', "'it''s'", "'a\\b\n'", '"db"."my.table"'),
    "bigquery": ('`se\\`l"ect`', "'it\\'s'", "'a\\\\b\\n'", "`db`.`my.table`"),
    "snowflake": ('"se`l""ect"', "'it''s'", "'a\\\\b\n'", '"db"."my.table"'),
    "spark": ('`se``l"ect`', "'it\\'s'", "'a\\\\b\\n'", "`db`.`my.table`"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_names_and_values_are_quoted_as_the_dialect_wants(dialect: str) -> None:
    schema = small_schema()
    [query] = write_queries(schema, [schema.names], dialect, 'db."my.table"')
    name, apostrophe, backslash, table = QUOTED[dialect]
    assert f"CAST({name} AS" in query.text
    assert f"IN ({apostrophe}, {backslash})" in query.text
    assert f"= {apostrophe} THEN 1" in query.text
    assert f"FROM {table}\n" in query.text


def test_a_query_reads_well() -> None:
    schema = Schema(
        (
            Binned(name="age", cuts=(Cut(0.0, after=True), Cut(2.5)), low=0, high=9, missing=True),
            Categorical(name="job", values=("cook", "smith"), missing=False),
        ),
        (Label("click"), Label("income", positive=">50K")),
    )
    [query] = write_queries(
        schema, [("age", "job")], "postgresql", "public.people", hash_size=4, min_count=10
    )
    assert query.name == "0000-age-job"
    assert query.scopes == (("age", "job"),)
    assert (
        query.text
        == """\
-- age × job: 4 × 2 cells
-- Plain values: agglearn receive --hash-size 4 folds the rows into buckets.
WITH coded_records AS (
  SELECT
    CASE
      WHEN "age" IS NULL OR CAST("age" AS double precision) = 'NaN' THEN '(missing)'
      WHEN "age" <= 0 THEN '≤ 0'
      WHEN "age" < 2.5e0 THEN '(0, 2.5)'
      ELSE '≥ 2.5'
    END AS "age",
    CAST("job" AS text) AS "job",
    CASE
      WHEN TRIM(CAST("click" AS text)) IN ('true', '1', '1.0', 'True', 'TRUE') THEN 1
      WHEN TRIM(CAST("click" AS text)) IN ('false', '0', '0.0', 'False', 'FALSE') THEN 0
    END AS "click",
    CASE
      WHEN TRIM(CAST("income" AS text)) = '>50K' THEN 1
      WHEN "income" IS NOT NULL THEN 0
    END AS "income"
  FROM "public"."people"
)
SELECT
  "age",
  "job",
  COUNT(*) AS "count",
  CASE WHEN COUNT("click") = COUNT(*) THEN SUM("click") END AS "click",
  CASE WHEN COUNT("income") = COUNT(*) THEN SUM("income") END AS "income"
FROM coded_records
GROUP BY "age", "job"
HAVING COUNT(*) >= 10;
"""
    )


def test_a_line_break_in_a_name_does_not_end_the_comment() -> None:
    schema = Schema((Categorical(name="a\nDROP TABLE b", values=("x",), missing=False),), (Label("y"),))
    [query] = write_queries(schema, [schema.names], "duckdb", "t")
    assert query.text.splitlines()[0] == "-- a DROP TABLE b: 1 cells"


def test_the_count_makes_way_for_a_feature_of_that_name_in_any_case() -> None:
    schema = Schema((Categorical(name="Count", values=("x",), missing=False),), (Label("y"),))
    [query] = write_queries(schema, [schema.names], "bigquery", "t")
    assert "COUNT(*) AS `count_`" in query.text


def test_no_line_is_too_long_to_read() -> None:
    values = tuple(f"a value of some length {i}" for i in range(500))
    schema = Schema((Categorical(name="a", values=values, other=True, missing=True),), (Label("y"),))
    [query] = write_queries(schema, [("a",)], "duckdb", "t")
    assert max(len(line) for line in query.text.splitlines()) <= 110


@pytest.mark.parametrize("table", ["", "a..b", ".a", "a.", 'a"b', "a. b", " a", '"a'])
def test_a_source_table_that_is_no_name_is_refused(table: str) -> None:
    schema = small_schema()
    with pytest.raises(InputError, match="source table"):
        write_queries(schema, [schema.names], "duckdb", table)


@pytest.mark.parametrize(
    ("table", "quoted"),
    [
        ("t", '"t"'),
        ("a.b.c", '"a"."b"."c"'),
        ("my-project.set.t", '"my-project"."set"."t"'),
        ('"with ""quotes"".".t', '"with ""quotes""."."t"'),
        ("`a.b`.c", '"a.b"."c"'),
        ("two words", '"two words"'),
    ],
)
def test_each_part_of_a_source_table_is_quoted(table: str, quoted: str) -> None:
    schema = small_schema()
    assert f"FROM {quoted}\n" in write_queries(schema, [schema.names], "duckdb", table)[0].text


def test_an_unknown_dialect_or_a_senseless_least_count_is_refused() -> None:
    schema = small_schema()
    with pytest.raises(InputError, match="'oracle' is not one of duckdb, postgresql"):
        write_queries(schema, [schema.names], "oracle", "t")
    with pytest.raises(InputError, match="min_count=0"):
        write_queries(schema, [schema.names], "duckdb", "t", min_count=0)
