"""Clean rooms give many tables in one file; each layout is read as the tables themselves are, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import agglearn
from agglearn.errors import AgglearnError
from agglearn.receive import receive_tables
from agglearn.tables.noise import Noise
from tests.conftest import Cli

PAIRS = "GROUPING SETS ((a, b), (a, c), (b, c))"
ALL = "GROUPING SETS ((a, b), (a, c), (b, c), (a), (b), (c), ())"
WITH_TRIPLE = "GROUPING SETS ((a, b, c), (a, b), (a, c), (b, c))"


@pytest.fixture(scope="module")
def room() -> Any:
    """A database with records, some of which lack a value of a."""
    a = ["x", "y", "z", "x", None, "y"] * 10
    b = [str(i % 4) for i in range(60)]
    c = ["u", "v", "u"] * 20
    connection = duckdb.connect()
    connection.register("held", pa.table({"a": a, "b": b, "c": c, "y": [0, 1, 1, 0, 1] * 12}))
    connection.execute("CREATE TABLE records AS SELECT * FROM held")
    connection.execute("CREATE TABLE whole AS SELECT * FROM held WHERE a IS NOT NULL")
    return connection


def expected(room: Any, table: str) -> agglearn.AggregatedData:
    return agglearn.aggregate(room.table(table), "y")


def same_pairs(found: agglearn.AggregatedData, wanted: agglearn.AggregatedData) -> bool:
    """Whether the pairs are the same, however the features are ordered."""
    for scope in (("a", "b"), ("a", "c"), ("b", "c")):
        left, right = found.table(*scope), wanted.table(*scope)
        if left.counts.tolist() != right.counts.tolist() or left.sums.tolist() != right.sums.tolist():
            return False
    return True


Write = Callable[[str], Path]


@pytest.fixture(params=["csv", "parquet"])
def write(request: pytest.FixtureRequest, room: Any, tmp_path: Path) -> Write:
    """Write the result of a query as a file."""

    def make(query: str) -> Path:
        path = tmp_path / f"result.{request.param}"
        relation = room.sql(query)
        relation.write_csv(str(path)) if request.param == "csv" else relation.write_parquet(str(path))
        return path

    return make


@pytest.mark.parametrize("sets", [PAIRS, ALL, WITH_TRIPLE])
def test_grouping_sets_are_told_apart_by_their_empty_values(sets: str, write: Write, room: Any) -> None:
    path = write(f"SELECT a, b, c, COUNT(*) AS count, SUM(y) AS y FROM whole GROUP BY {sets}")
    found = receive_tables(path, label="y")
    assert same_pairs(found, expected(room, "whole"))
    assert (("a", "b", "c") in found.tables) == (sets == WITH_TRIPLE)
    assert found.rows == 50


@pytest.mark.parametrize("sets", [PAIRS, ALL])
def test_a_grouping_id_also_tells_missing_values(sets: str, write: Write, room: Any) -> None:
    path = write(
        f"SELECT a, b, c, GROUPING_ID(a, b, c) AS grouping_id, COUNT(*) AS n, SUM(y) AS y FROM records "
        f"GROUP BY {sets}"
    )
    found = receive_tables(path, label="y")
    assert found.schema.feature("a").missing
    assert same_pairs(found, expected(room, "records"))


def test_a_long_file_names_the_features_of_each_row(write: Write, room: Any) -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    parts = [
        f"SELECT '{f}' AS feature_1, CAST({f} AS VARCHAR) AS value_1, '{g}' AS feature_2, {g} AS value_2, "
        f"COUNT(*) AS count, SUM(y) AS y FROM records GROUP BY ALL"
        for f, g in pairs
    ]
    found = receive_tables(write(" UNION ALL ".join(parts)), label="y")
    assert found.schema.names == ("a", "b", "c")
    assert same_pairs(found, expected(room, "records"))


def test_a_long_file_may_hold_tables_of_one_feature_beside_others(tmp_path: Path) -> None:
    rows = "feature1,value1,feature2,value2,count,y\na,x,,,3,1\na,z,,,2,0\na,x,b,u,3,1\na,z,b,u,2,0\n"
    (tmp_path / "t.csv").write_text(rows)
    found = receive_tables(tmp_path / "t.csv", label="y")
    assert set(found.tables) == {("a",), ("a", "b")}
    assert found.table("a").counts.tolist() == [3, 2]


@pytest.mark.parametrize("between", ["*", " × ", ", ", " x "])
def test_a_column_may_name_the_table_of_each_row(between: str, write: Write, room: Any) -> None:
    parts = [
        f"SELECT '{f}{between}{g}' AS \"table\", {f if 'a' in (f, g) else 'NULL'} AS a, "
        f"{'b' if 'b' in (f, g) else 'NULL'} AS b, {'c' if 'c' in (f, g) else 'NULL'} AS c, "
        "COUNT(*) AS count, SUM(y) AS y FROM records GROUP BY ALL"
        for f, g in [("a", "b"), ("a", "c"), ("b", "c")]
    ]
    found = receive_tables(write(" UNION ALL ".join(parts)), label="y")
    assert same_pairs(found, expected(room, "records"))


def test_a_feature_may_be_called_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("table,seat,count,y\n1,a,3,1\n2,b,4,1\n")
    assert receive_tables(tmp_path / "t.csv", label="y").schema.names == ("table", "seat")


def test_a_few_missing_values_are_missing_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,count,y\nx,u,30,9\nz,u,40,8\n,u,3,1\nz,,2,1\n")
    found = receive_tables(tmp_path / "t.csv", label="y")
    assert list(found.tables) == [("a", "b")]
    assert found.schema.feature("a").modalities == ("x", "z", "(missing)")


def test_withheld_cells_do_not_hide_grouping_sets(write: Write, room: Any) -> None:
    path = write(
        f"SELECT a, b, c, COUNT(*) AS count, SUM(y) AS y FROM whole GROUP BY {PAIRS} HAVING COUNT(*) > 2"
    )
    found = receive_tables(path, label="y", floor=3, noise=Noise("gaussian", 0.5))
    assert set(found.tables) == {("a", "b"), ("a", "c"), ("b", "c")}


REFUSED = {
    "who knows": ("a,b,count,y\nx,u,30,9\nz,u,40,8\n,u,61,15\nz,,2,1\n", "add a column grouping_id"),
    "an id that disagrees": ("a,b,grouping_id,count,y\nx,u,1,3,1\n", "row 1 has a value of 'b'"),
    "an id that is none": ("a,b,grouping_id,count,y\nx,u,9,3,1\n", "must hold GROUPING_ID"),
    "a pair twice": (
        "feature_1,value_1,feature_2,value_2,count,y\na,x,b,u,3,1\nb,u,a,x,3,1\n",
        "one table as a × b and as b × a",
    ),
    "a feature twice": ("feature_1,value_1,feature_2,value_2,count,y\na,x,a,u,3,1\n", "'a' twice in one row"),
    "totals only": ("feature_1,value_1,count,y\n,,3,1\n", "no rows of a table with a feature"),
    "a rate": ("feature_1,value_1,count,y\na,x,3,0.5\n", "it looks like a rate"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_told_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(AgglearnError, match=message) as raised:
        receive_tables(tmp_path / "t.csv", label="y")
    assert "\n" not in str(raised.value)


def test_the_command_line_reads_them_too(tmp_path: Path, run_cli: Cli) -> None:
    rows = "feature_1,value_1,feature_2,value_2,count,y\na,x,b,u,3,1\na,z,b,v,2,0\n"
    (tmp_path / "t.csv").write_text(rows)
    run = run_cli("receive", tmp_path / "t.csv", "--label", "y", "-o", tmp_path / "t.agg", "--json")
    assert (run.code, run.json["tables"], run.json["rows"]) == (0, 1, 5)
