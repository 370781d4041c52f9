"""GROUP BY push-down gives what streaming gives, and only rows of tables come back."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agglearn.aggregation import pushdown as lazy
from agglearn.aggregation.api import aggregate, aggregate_split
from agglearn.aggregation.database import open_database_table, split_database_input
from agglearn.errors import InputError, MissingExtraError, TooLargeError
from agglearn.records import survey
from agglearn.schema.features import Binned, Categorical, Cut, Encoded
from agglearn.schema.schema import Label, Schema
from agglearn.tables.scopes import parse_scopes

Engine: TypeAlias = Callable[[Any], Any]


def as_duckdb(table: Any) -> Any:
    connection = duckdb.connect()
    relation = connection.from_arrow(table)
    relation.create("records")
    return connection.table("records")


def as_polars(table: Any) -> Any:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.lazy()


def as_narwhals(table: Any) -> Any:
    return nw.from_native(as_polars(table))


ENGINES = {"duckdb": as_duckdb, "polars": as_polars, "narwhals": as_narwhals}


@pytest.fixture(params=list(ENGINES.values()), ids=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Engine:
    made: Engine = request.param
    return made


def odd_records(n: int = 3000, seed: int = 0) -> Any:
    """Columns of every kind, under names that a careless query would trip over."""
    rng = np.random.default_rng(seed)

    def some(values: list[Any], share: float = 0.1) -> list[Any]:
        return [None if u < share else v for u, v in zip(rng.random(n), values, strict=True)]

    day = dt.date(2024, 2, 27)
    amounts = np.where(rng.random(n) < 0.7, 0.0, rng.gamma(2.0, 10.0, n))
    return pa.table(
        {
            "select": some([f"v{z % 400}" for z in rng.zipf(1.4, n)]),
            'na"me with; spaces': some([f"it's {i} \\ %" for i in rng.integers(0, 5, n)]),
            "größe": pa.array(amounts, pa.float32()),
            "age": pa.array(some(rng.integers(17, 90, n).tolist()), pa.int16()),
            "gaps": pa.array([float("nan") if i % 9 == 0 else float(i % 4) for i in range(n)]),
            "rate": pa.array(some(np.round(rng.random(n), 1).tolist())),
            "flag": some((rng.random(n) < 0.5).tolist()),
            "day": some([day + dt.timedelta(int(i)) for i in rng.integers(0, 30, n)]),
            "moment": pa.array(
                [dt.datetime(2024, 1, 1) + dt.timedelta(minutes=30 * int(i)) for i in rng.integers(0, 30, n)],
                pa.timestamp("us"),
            ),
            "enum": pa.array(some([f"e{i}" for i in rng.integers(0, 4, n)])).dictionary_encode(),
            "click": rng.integers(0, 2, n),
            "sale": rng.random(n) < 0.2,
        }
    )


OPTIONS: dict[str, Any] = {"categorical": ["gaps", "rate", "day"], "max_modalities": 20}


def test_the_papers_toy_tables_come_out_cell_by_cell(engine: Engine, toy: Any) -> None:
    data = aggregate(engine(toy), "y")
    # The paper's Table 2, corrected by its Table 1: (1,B) is 2/1, (2,B) is 1/1, (2,a) is 1/1.
    table = data.table("x1", "x2")
    assert table.counts.tolist() == [[1, 2], [1, 1]]
    assert table.sums[0].tolist() == [[0, 1], [1, 1]]
    table = data.table("x1", "x3")
    assert table.counts.tolist() == [[1, 2], [1, 1]]
    assert table.sums[0].tolist() == [[1, 0], [1, 1]]
    table = data.table("x2", "x3")
    assert table.counts.tolist() == [[0, 2], [2, 1]]
    assert table.sums[0].tolist() == [[0, 1], [2, 0]]


def test_a_lazy_frame_gives_the_schema_and_the_tables_of_the_stream(engine: Engine) -> None:
    records = odd_records()
    streamed = aggregate_split(records, ["click", "sale"], **OPTIONS)
    pushed = aggregate_split(engine(records), ["click", "sale"], **OPTIONS)
    assert pushed.train.schema == streamed.train.schema
    assert pushed.notes == streamed.notes
    assert pushed.train.equals(streamed.train)
    assert pushed.unknown == streamed.unknown == {}


def test_values_a_schema_does_not_know_are_unknown_as_in_the_stream(engine: Engine) -> None:
    records = odd_records()
    schema = aggregate(records.slice(0, 40), ["click", "sale"], **OPTIONS, tables="singles").schema
    options: dict[str, Any] = {"schema": schema, "tables": "singles,select*flag*day"}
    streamed = aggregate_split(records, ["click", "sale"], **options)
    pushed = aggregate_split(engine(records), ["click", "sale"], **options)
    assert streamed.unknown  # 40 records do not have every value
    assert pushed.unknown == streamed.unknown
    assert pushed.train.equals(streamed.train)


def test_unknown_values_are_counted_for_features_that_are_in_no_table(engine: Engine) -> None:
    records = pa.table({"a": ["x", "y", "z"], "b": ["u", "u", "w"], "click": [1, 0, 1]})
    schema = Schema(
        (
            Categorical(name="a", values=("x",), missing=False),
            Categorical(name="b", values=("u",), missing=False),
        ),
        (Label("click"),),
    )
    result = aggregate_split(engine(records), "click", schema=schema, tables=[("b",)])
    assert result.unknown == {"a": 2, "b": 1}
    assert result.train.table("b").counts.tolist() == [2]
    assert result.train.table("b").unknown.tolist() == [1, 1]


def test_large_tables_are_hashed_to_the_buckets_of_the_stream(engine: Engine) -> None:
    records = odd_records()
    streamed = aggregate(records, "click", exclude=["sale"], hash_size=50, **OPTIONS)
    pushed = aggregate(engine(records), "click", exclude=["sale"], hash_size=50, **OPTIONS)
    assert any(t.cells.buckets for t in pushed.tables.values())
    assert not all(t.cells.buckets for t in pushed.tables.values())
    assert pushed.equals(streamed)


def wide_vocabulary(n: int) -> Schema:
    """Features whose values the engine must fold, each in another way."""
    return Schema(
        (
            Categorical(name="text", values=("t1", "t2"), other=True, missing=True),
            Categorical(name="strict", values=("t1", "t2"), missing=False),
            Categorical(name="number", values=("1", "2", "007"), missing=False),
            Categorical(name="real", values=("0.5", "1"), value_type="float", other=True, missing=True),
            Categorical(name="single", values=("0.5",), value_type="float", other=True, missing=True),
            Categorical(name="day", values=("2024-01-02",), value_type="date", other=True, missing=True),
            Categorical(name="moment", values=("2024-01-01 02:00:00",), value_type="timestamp", missing=True),
            Categorical(name="listed", values=("t3",), other=True, missing=True),
            Encoded(
                name="encoded",
                groups=("never seen", "few", "many"),
                values=tuple(f"t{i}" for i in range(n // 2)),
                codes=tuple(i % 3 for i in range(n // 2)),
                missing=True,
            ),
            Binned(name="digits", cuts=(Cut(2.0), Cut(5.0, after=True)), low=0, high=9, missing=True),
        ),
        (Label("click"),),
    )


def wide_records(n: int) -> Any:
    texts = [None if i % 10 == 9 else f"t{i}" for i in range(n)]
    reals = [None if i % 10 == 9 else float("nan") if i % 10 == 8 else i / 2 for i in range(n)]
    start = dt.datetime(2024, 1, 1)
    return pa.table(
        {
            "text": texts,
            "strict": texts,
            "number": list(range(n)),
            "real": reals,
            "single": pa.array(reals, pa.float32()),
            "day": [start.date() + dt.timedelta(i) for i in range(n)],
            "moment": pa.array([start + dt.timedelta(hours=i) for i in range(n)], pa.timestamp("us")),
            "listed": pa.array(texts).dictionary_encode(),
            "encoded": texts,
            "digits": ["?" if i % 7 == 0 else f" {i / 10}" for i in range(n)],
            "click": [i % 2 for i in range(n)],
        }
    )


def test_folding_in_the_engine_equals_folding_in_the_stream(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 90
    records, schema = wide_records(n), wide_vocabulary(n)
    streamed = aggregate_split(records, "click", schema=schema)
    came_back = rows_that_come_back(monkeypatch)
    pushed, unknown = lazy.count_tables_lazy(engine(records), schema, parse_scopes("pairs", schema))
    assert unknown == streamed.unknown
    assert pushed.equals(streamed.train)
    # The widest pair has (3+1)·(3+2) groups, where its raw values would make 90; only the numbers that
    # are text are asked for by themselves, once.
    *tables, texts = sorted(came_back)
    assert max(tables) <= 20
    assert texts == len(set(records["digits"].to_pylist()))


def rows_that_come_back(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    collected: list[int] = []
    collect = lazy._collect

    def spy(query: Any) -> Any:
        found = collect(query)
        collected.append(found.num_rows)
        return found

    monkeypatch.setattr(lazy, "_collect", spy)
    return collected


def test_a_survey_of_very_many_values_stays_small(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "KEPT", 100)
    rng = np.random.default_rng(1)
    n = 4000
    records = pa.table(
        {
            "amount": pa.array([None if i % 8 == 0 else x for i, x in enumerate(rng.lognormal(size=n))]),
            "user": [f"common{i % 3}" if i % 2 else None if i % 10 == 0 else f"u{i}" for i in range(n)],
            "click": rng.integers(0, 2, n),
        }
    )
    came_back = rows_that_come_back(monkeypatch)
    found = lazy.survey_lazy(engine(records), ["amount", "user"])
    assert max(came_back) <= 101
    assert all(not s.exact and s.rows == n for s in found.values())
    assert found["amount"].missing == 500
    assert found["user"].missing == 400
    texts, counts = found["user"].texts()
    assert dict(zip(texts, counts.tolist(), strict=True))["common0"] == 667
    # Fifty groups of neighbours of equal weight: each quantile is off by at most one group in 50.
    values, weights = found["amount"].some_numbers()
    present = np.sort(np.array([x for x in records["amount"].to_pylist() if x is not None]))
    ranks = np.searchsorted(present, values, side="right") / len(present)
    assert weights.sum() == len(present)
    np.testing.assert_allclose(ranks, np.cumsum(weights) / len(present), atol=1 / 50)


def test_the_label_is_read_as_the_stream_reads_it(engine: Engine) -> None:
    records = pa.table({"a": ["x", "y", "x"], "income": [" >50K", "<=50K", ">50K "]})
    data = aggregate(engine(records), "income", positive=">50K")
    assert data.table("a").sums[0].tolist() == [2, 0]
    assert data.positives == (2,)
    for column in ([1.0, 0.0, 1.0], ["true", "0", "True"], [True, False, True]):
        records = pa.table({"a": ["x", "y", "x"], "y": column})
        assert aggregate(engine(records), "y").table("a").sums[0].tolist() == [2, 0]


@pytest.mark.parametrize(
    ("column", "positive", "message"),
    [
        ([1, None, 0], None, "missing in 1 record"),
        ([1.0, float("nan"), 0.0], None, "missing in 1 record"),
        ([0, 1, 2], None, "'2' in the records, neither 0/1 nor true/false"),
        (["a", "b", "c"], "d", "no record has y = 'd'"),
        (pa.array([], pa.int64()), None, "no records"),
    ],
)
def test_a_label_that_cannot_be_used_is_refused(
    engine: Engine, column: Any, positive: str | None, message: str
) -> None:
    records = pa.table({"a": pa.array(["x", "y", "x"][: len(column)], pa.string()), "y": column})
    schema = Schema((Categorical(name="a", values=("x",), missing=False),), (Label("y", positive),))
    with pytest.raises(InputError, match=message):
        lazy.count_tables_lazy(engine(records), schema, [("a",)])


def test_the_records_of_duckdb_are_read_in_one_query(monkeypatch: pytest.MonkeyPatch) -> None:
    records = odd_records()
    expected = aggregate(records, "click", **OPTIONS)
    came_back = rows_that_come_back(monkeypatch)
    found = aggregate(as_duckdb(records), "click", schema=expected.schema)
    assert found.equals(expected)
    assert not came_back  # nothing was asked for table by table


def test_an_error_in_the_records_of_duckdb_is_one_line() -> None:
    connection = duckdb.connect()
    schema = Schema((Categorical(name="a", values=("x",), missing=False),), (Label("y"),))
    relation = connection.sql("SELECT 'x' AS a, IF(range = 2, 'maybe', '1') AS y FROM range(4)")
    with pytest.raises(InputError, match="'maybe' in record 3 of the relation"):
        aggregate(relation, "y", schema=schema)
    relation = connection.sql("SELECT 'x' AS a, CAST(IF(range = 9, 'no', '1') AS INT) AS y FROM range(20)")
    with pytest.raises(InputError, match=r"the engine could not run the query: .*'no'"):
        aggregate(relation, "y", schema=schema)


def test_a_column_that_is_not_there_or_cannot_be_used_is_named(engine: Engine) -> None:
    records = pa.table({"a": [["x"], ["y"]], "y": [0, 1]})
    with pytest.raises(InputError, match="'a' has type"):
        aggregate(engine(records), "y")
    with pytest.raises(InputError, match="'b' is not in the records"):
        lazy.survey_lazy(engine(records), ["b"])
    with pytest.raises(InputError, match="label 'z' is not in the records"):
        aggregate(engine(records), "z")


def test_cells_that_are_seen_must_fit_and_those_that_could_be_need_not(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = tuple(str(i) for i in range(1000))
    schema = Schema(tuple(Categorical(name=n, values=values, missing=False) for n in "ab"), (Label("y"),))
    frame = engine(pa.table({"a": values, "b": values, "y": [0, 1] * 500}))
    monkeypatch.setenv("AGGLEARN_MEMORY", "60KB")
    data, _ = lazy.count_tables_lazy(frame, schema, [("a", "b")])
    assert data.tables["a", "b"].n_cells == 1001
    monkeypatch.setenv("AGGLEARN_MEMORY", "20KB")
    with pytest.raises(TooLargeError, match="a × b with 1,000"):
        lazy.count_tables_lazy(frame, schema, [("a", "b")])


def test_what_the_engine_cannot_do_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    odd_records(100).to_pandas().to_parquet(path)
    frame = pl.scan_parquet(path)
    frame.collect_schema()
    path.unlink()
    with pytest.raises(InputError, match="the engine could not run the query"):
        aggregate(frame, "click")


def test_a_split_of_a_lazy_frame_is_refused(engine: Engine, toy: Any) -> None:
    with pytest.raises(InputError, match="no record numbers to split by"):
        aggregate_split(engine(toy), "y", split={"valid": 0.5})


records_of_anything = st.lists(
    st.tuples(
        st.sampled_from(["a", "A", "", " b", None, "(missing)", "(other)", "7", "é"]),
        st.sampled_from([0, -3, 7, 2**40, None]),
        st.sampled_from([0.0, -0.0, 0.1, 7.0, float("nan"), float("inf"), None]),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=30, deadline=None)
@given(records_of_anything, st.integers(2, 5), st.sampled_from(["duckdb", "polars"]))
def test_any_records_give_the_tables_of_the_stream(rows: list[tuple[Any, ...]], most: int, name: str) -> None:
    columns = [list(c) for c in zip(*rows, strict=True)]
    records = pa.table(
        {
            "text": pa.array(columns[0], pa.string()),
            "whole": pa.array(columns[1], pa.int64()),
            "real": pa.array(columns[2], pa.float64()),
            "y": pa.array(columns[3]),
        }
    )
    features = [n for n in ("text", "whole", "real") if records[n].null_count < len(rows)]
    # A column of NaN alone has no value either, and both ways refuse it.
    features = [n for n in features if n != "real" or any(x == x and x is not None for x in columns[2])]
    if not features:
        return
    options: dict[str, Any] = {
        "features": features,
        "categorical": [n for n in features if n == "real"],
        "max_modalities": most,
        "tables": "pairs",  # which pairs cannot tell is asked of records that come by, not of a lazy frame
    }
    streamed = aggregate_split(records, "y", **options)
    pushed = aggregate_split(ENGINES[name](records), "y", **options)
    assert pushed.train.equals(streamed.train)
    assert pushed.notes == streamed.notes


# --- what is lazy, and databases -------------------------------------------------------------------


def test_lazy_frames_are_told_from_records_at_hand(engine: Engine, toy: Any) -> None:
    assert lazy.is_lazy(engine(toy))
    reader = pa.RecordBatchReader.from_batches(toy.schema, toy.to_batches())
    for data in (toy, toy.to_pandas(), pl.from_arrow(toy), "toy.csv", ["toy.csv"], {"a": [1]}, reader, 5):
        assert not lazy.is_lazy(data)


def test_asking_whether_data_are_lazy_imports_no_engine() -> None:
    code = (
        "import sys; from agglearn.aggregation.pushdown import is_lazy; is_lazy({}); is_lazy(object());"
        "print([m for m in ('duckdb', 'polars', 'pyspark', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "path", "table"),
    [
        ("ads.duckdb:events", "ads.duckdb", "events"),
        ("folder/ads.db:main.events", "folder/ads.db", "main.events"),
        (r"C:\data\ads.duckdb:events", r"C:\data\ads.duckdb", "events"),
        ("ads.DuckDB", "ads.DuckDB", None),
        ("ads.duckdb:a:b", "ads.duckdb", "a:b"),
    ],
)
def test_an_input_can_name_the_table_of_a_database(text: str, path: str, table: str | None) -> None:
    assert split_database_input(text) == (Path(path), table)


@pytest.mark.parametrize("text", ["ads.csv", "ads.duckdb.csv", "duckdb", "a:b", ".db"])
def test_other_inputs_name_no_database(text: str) -> None:
    assert split_database_input(text) is None


@pytest.fixture
def database(tmp_path: Path, toy: Any) -> Path:
    path = tmp_path / "toy.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("toy", toy)
        connection.execute('CREATE TABLE "odd ""name" AS SELECT * FROM toy')
        connection.execute("CREATE SCHEMA s; CREATE TABLE s.t AS SELECT 1 AS a, 0 AS y")
        connection.execute('CREATE VIEW v AS SELECT * FROM "odd ""name" WHERE x1 = 1')
    return path


def test_a_table_or_view_of_a_database_is_aggregated(database: Path, toy: Any) -> None:
    assert aggregate(open_database_table(database, 'odd "name'), "y").equals(aggregate(toy, "y"))
    assert aggregate(open_database_table(database, "v"), "y").rows == 3
    assert aggregate(open_database_table(database, "s.t"), "y", categorical=["a"]).rows == 1


def test_the_only_table_of_a_database_need_not_be_named(tmp_path: Path, toy: Any) -> None:
    path = tmp_path / "one.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.from_arrow(toy).create("records")
    assert aggregate(open_database_table(path), "y").rows == 5


@pytest.mark.parametrize(
    ("table", "message"), [("x", "has no table 'x': name one of"), (None, "has several tables")]
)
def test_a_table_that_is_not_in_the_database_is_refused(
    database: Path, table: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        open_database_table(database, table)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        open_database_table(tmp_path / "none.duckdb", "t")
    path = tmp_path / "text.duckdb"
    path.write_text("a,b\n1,2\n" * 1000)
    with pytest.raises(InputError, match="cannot be read as a DuckDB database"):
        open_database_table(path, "t")
    path = tmp_path / "empty.duckdb"
    duckdb.connect(str(path)).close()
    with pytest.raises(InputError, match="has no table in it"):
        open_database_table(path)


def test_without_duckdb_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"agglearn\[duckdb\]"):
        open_database_table(tmp_path / "a.duckdb", "t")
