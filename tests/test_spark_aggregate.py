"""Records on a Spark cluster become the tables of one machine, bit by bit, however they are divided."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import agglearn
from agglearn.aggregation.api import Aggregation, aggregate, aggregate_split
from agglearn.cli import app
from agglearn.errors import AgglearnError, InputError, SchemaError
from agglearn.records.sources import open_source
from agglearn.records.spread import SparkFiles, SparkFrame
from agglearn.spark import fold
from agglearn.spark.inputs import open_input, shared_path
from agglearn.tables.format import load
from tests.servers import an_executor_killed, spark_executors

ODD = ["plain", "", " b", "nul\0in it", "nul\0", "🙂", "e\u0301", "é", "007", "7", None]
OPTIONS: dict[str, Any] = {"categorical": ["moment", "local"], "max_modalities": 8}


def odd_records(n: int = 2500, seed: int = 0) -> Any:
    """Columns of every kind that Spark and Parquet both have."""
    rng = np.random.default_rng(seed)
    start = dt.datetime(2024, 3, 30, 22, tzinfo=dt.UTC)  # across a change of clocks in many zones
    hours = [start + dt.timedelta(hours=int(h)) for h in rng.integers(0, 6, n)]
    return pa.table(
        {
            "text": pa.array([ODD[i] for i in rng.integers(0, len(ODD), n)], pa.string()),
            "user": [f"u{z % 300}" for z in rng.zipf(1.3, n)],
            "price": pa.array([Decimal(int(i)) / 4 for i in rng.integers(0, 30, n)], pa.decimal128(10, 2)),
            "moment": pa.array(hours, pa.timestamp("us", "UTC")),
            "local": pa.array([h.replace(tzinfo=None) for h in hours], pa.timestamp("us")),
            "day": [dt.date(2024, 2, 27) + dt.timedelta(int(i)) for i in rng.integers(0, 4, n)],
            "size": pa.array(np.where(rng.random(n) < 0.6, 0.0, rng.normal(size=n)).astype(np.float32)),
            "gaps": [float("nan") if i % 9 == 0 else None if i % 7 == 0 else i % 50 / 2 for i in range(n)],
            "a.dot`and": pa.array(rng.integers(-40, 40, n), pa.int16()),
            "flag": [None if u < 0.1 else bool(u < 0.5) for u in rng.random(n)],
            "click": rng.integers(0, 2, n),
        }
    )


def frame_of(spark: Any, records: Any) -> Any:
    """Records as Spark has them: it takes a time without a zone for one of the session's unless told."""
    from pyspark.sql.functions import col

    return spark.createDataFrame(records).withColumn("local", col("local").cast("timestamp_ntz"))


def assert_same(one: Aggregation, other: Aggregation) -> None:
    assert one.parts.keys() == other.parts.keys()
    for name, data in one.parts.items():
        assert data.schema == other.parts[name].schema
        assert data.equals(other.parts[name])
    assert one.notes == other.notes
    assert one.unknown == other.unknown


@pytest.fixture(scope="module")
def records() -> Any:
    return odd_records()


@pytest.fixture(scope="module")
def local(records: Any) -> Aggregation:
    return aggregate_split(records, "click", **OPTIONS)


# --- frames ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 2, 3, 7])
def test_a_frame_gives_the_tables_of_one_machine_for_any_partitions(
    spark: Any, records: Any, local: Aggregation, partitions: int
) -> None:
    frame = frame_of(spark, records).repartition(partitions)
    assert_same(aggregate_split(frame, "click", **OPTIONS), local)


def test_partitions_may_be_skewed_or_empty(spark: Any, records: Any, local: Aggregation) -> None:
    # Three values, seven partitions: most are empty, and one has half of the records.
    frame = frame_of(spark, records).repartition(7, "flag")
    assert_same(aggregate_split(nw.from_native(frame), "click", **OPTIONS), local)


def test_what_many_tasks_hold_is_summed_in_a_tree(
    spark: Any, records: Any, local: Aggregation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "tasks_of", lambda session: None)  # a cluster that does not say how many
    frame = frame_of(spark, records).repartition(18)
    assert aggregate(frame, "click", schema=local.train.schema).equals(local.train)


def test_a_split_and_target_encodings_are_those_of_one_machine(spark: Any, records: Any) -> None:
    options: dict[str, Any] = {**OPTIONS, "split": {"valid": 0.3}, "target_encode": ["user"], "seed": 5}
    expected = aggregate_split(records, "click", **options)
    frame = frame_of(spark, records)  # several partitions, in the order of the records
    assert_same(aggregate_split(frame, "click", **options), expected)


def test_a_frame_that_changes_between_passes_is_not_divided(spark: Any, records: Any) -> None:
    source = open_source(spark.createDataFrame(records.select(["user", "click"])))
    vars(source)["_counts"] = np.array([7, 9])  # what another reading would have found
    with pytest.raises(InputError, match="gives other partitions when it is read again"):
        aggregate_split(source, "click", split={"valid": 0.3})


def test_a_frame_of_whole_files_is_read_as_the_files_are(spark: Any, records: Any, tmp_path: Path) -> None:
    plain = records.drop_columns(["moment", "local"])
    for k in range(3):
        pq.write_table(plain.slice(900 * k, 900), tmp_path / f"{k}.parquet")
    frame = spark.read.parquet(str(tmp_path))
    assert isinstance(open_source(frame), SparkFiles)
    options: dict[str, Any] = {"split": {"valid": 0.3}, "seed": 5, "max_modalities": 8}
    assert_same(
        aggregate_split(frame, "click", **options), aggregate_split(str(tmp_path), "click", **options)
    )
    words = spark.read.schema("user string, click string").parquet(str(tmp_path))
    for other in (frame.filter("click = 1"), frame.select("user", "click"), frame.limit(5), words):
        assert isinstance(open_source(other), SparkFrame)
    pq.write_table(plain.drop_columns(["user"]), tmp_path / "3.parquet")
    assert isinstance(open_source(spark.read.parquet(str(tmp_path))), SparkFrame)


def _slowly(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for start in range(0, batch.num_rows, 100):
            time.sleep(0.15)
            yield batch.slice(start, 100)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning")
def test_an_executor_that_is_killed_changes_nothing(spark: Any, records: Any) -> None:
    records = records.drop_columns(["local", "a.dot`and"])  # a name that mapInArrow itself does not take
    expected = aggregate(records, "click")
    _slowly.__module__ = "__main__"  # executors do not have the tests: it is sent along
    frame = spark.createDataFrame(records).repartition(4)
    frame = frame.mapInArrow(_slowly, frame.schema)
    before = set(spark_executors())
    with an_executor_killed(spark, after=0.5) as killed:
        found = aggregate(frame, "click", schema=expected.schema)
    assert killed
    assert killed[0] in before
    assert killed[0] not in spark_executors()
    assert found.equals(expected)


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        ({}, 2),
        ({"spark.executor.instances": "10", "spark.executor.cores": "8"}, 80),
        ({"spark.cores.max": "64", "spark.task.cpus": "4"}, 16),
        ({"spark.task.cpus": "4"}, 1),
        ({"spark.dynamicAllocation.enabled": "true"}, None),
    ],
)
def test_there_is_a_task_for_each_that_can_run(settings: dict[str, str], tasks: int | None) -> None:
    context = SimpleNamespace(defaultParallelism=2, getConf=lambda: settings)  # of two cores
    session = SimpleNamespace(sparkContext=context)
    assert fold.tasks_of(session) == tasks
    assert fold.tasks_of(object()) is None


# --- files and tables ------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, records: Any) -> Path:
    """Two files of several row groups; the second, of more records, would come first by size."""
    pq.write_table(records.slice(0, 700), tmp_path / "a.parquet", row_group_size=200)
    pq.write_table(records.slice(700), tmp_path / "b.parquet", row_group_size=500)
    return tmp_path


def test_files_give_the_tables_of_one_machine(spark: Any, folder: Path) -> None:
    options: dict[str, Any] = {
        **OPTIONS,
        "split": {"valid": 0.2, "test": 0.1},
        "target_encode": ["user"],
        "hash_size": 50,
        "tables": "pairs,text*user*day",
    }
    expected = aggregate_split(folder, "click", **options)
    assert any(t.cells.buckets for t in expected.train.tables.values())
    assert_same(aggregate_split(f"spark:{folder}", "click", **options), expected)


def test_a_table_of_the_catalogue_gives_the_tables_of_one_machine(
    spark: Any, records: Any, local: Aggregation, tmp_path: Path
) -> None:
    frame_of(spark, records).createOrReplaceTempView("clicks")
    written = tmp_path / "on spark.agg"
    done = CliRunner().invoke(
        app,
        [
            *("aggregate", "spark:clicks", "--label", "click", "--categorical", "moment,local"),
            *("--max-modalities", "8", "-o", str(written), "--json"),
        ],
    )
    assert done.exit_code == 0, done.output
    assert load(written).equals(local.train)


def test_a_column_may_change_its_type_from_file_to_file(spark: Any, tmp_path: Path) -> None:
    whole = pa.table({"x": [1, 2, 5, 2**40], "code": ["7", "7", "b", "b"], "y": [0, 1, 0, 1]})
    broken = pa.table({"x": [0.5, 2.0, 5.0, 1.0], "code": [7, 8, 9, 7], "y": [1, 1, 0, 0]})
    pq.write_table(whole, tmp_path / "a.parquet")
    pq.write_table(broken, tmp_path / "b.parquet")
    options: dict[str, Any] = {"categorical": ["x", "code"]}
    expected = aggregate_split(tmp_path, "y", **options)
    assert_same(aggregate_split(f"spark:{tmp_path}", "y", **options), expected)


def test_a_column_that_some_files_lack_is_refused_as_on_one_machine(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2], "y": [0, 1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1, 2], "z": [1, 2], "y": [0, 1]}), tmp_path / "b.parquet")
    for inputs in (str(tmp_path), f"spark:{tmp_path}"):
        with pytest.raises(InputError, match="have different columns: only one has 'z'"):
            aggregate(inputs, "y")


def test_folders_named_by_values_are_columns_as_spark_has_them(spark: Any, tmp_path: Path) -> None:
    for day in ("mon", "tue"):
        (tmp_path / "log" / f"day={day}").mkdir(parents=True)
        pq.write_table(
            pa.table({"x": ["a", "b"], "y": [0, 1]}), tmp_path / "log" / f"day={day}" / "0.parquet"
        )
    assert shared_path(spark, f"{tmp_path}/log") is None
    assert open_input(spark, f"{tmp_path}/log").columns == ["x", "y", "day"]


# --- records that are needed here ------------------------------------------------------------------


def test_a_frame_is_read_batch_by_batch_in_its_order(spark: Any, records: Any) -> None:
    source = open_source(spark.createDataFrame(records))
    batches = list(source.batches(["user", "moment", "text"]))
    assert pa.Table.from_batches(batches).equals(records.select(["user", "moment", "text"]))


def test_a_hybrid_fit_takes_its_records_from_spark(spark: Any, records: Any, local: Aggregation) -> None:
    settings = agglearn.FitSettings(chains=200, iterations=4, lambda_theta=10.0)
    here = agglearn.fit(local.train, settings, records=records)
    there = agglearn.fit(local.train, settings, records=frame_of(spark, records))
    np.testing.assert_array_equal(there.field.theta, here.field.theta)
    np.testing.assert_array_equal(there.field.mu, here.field.mu)


# --- what cannot be used ---------------------------------------------------------------------------


def test_a_label_that_cannot_be_used_is_one_line_that_names_the_record(spark: Any) -> None:
    records = pa.table({"a": ["x", "y", "x"], "y": ["0", "1", "maybe"]})
    frame = spark.createDataFrame(records).repartition(1)
    with pytest.raises(InputError, match=r"'maybe' in record \d of partition 0 of the frame, neither 0/1"):
        aggregate(frame, "y")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.range(0).selectExpr("'x' AS a", "1 AS y"), "there are no records to aggregate"),
        (lambda s: s.range(2).selectExpr("array(1) AS a", "id AS y"), "'a' has type list"),
        (lambda s: s.range(2).selectExpr("id AS a", "id AS y"), "label 'z' is not in the records"),
        (lambda s: s.range(2).selectExpr("id AS a", "id AS a", "id AS z"), "column 'a' stands twice"),
        (lambda s: s.readStream.format("rate").load().withColumnRenamed("value", "z"), "have no end"),
        (lambda s: "spark:no_such_table", "Spark knows no table 'no_such_table'"),
        (lambda s: "spark:/no/such/folder", "/no/such/folder does not exist"),
        (lambda s: "spark:hdfs://nowhere.invalid:1/x.parquet", "Spark could not read the records"),
        (lambda s: "spark:", "spark: names nothing"),
        (lambda s: "spark:/data/log.csv", "is neither Parquet nor Delta"),
        (lambda s: ["spark:a", "b.csv"], "what Spark reads is one table or one path"),
    ],
)
def test_what_cannot_be_read_is_one_line(spark: Any, make: Callable[[Any], Any], message: str) -> None:
    with pytest.raises((InputError, SchemaError), match=message) as caught:
        aggregate(make(spark), "y" if "no records" in message or "type list" in message else "z")
    assert isinstance(caught.value, AgglearnError)
    assert "\n" not in str(caught.value)


def test_a_delta_table_without_delta_says_what_is_missing(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(InputError, match="is a Delta table, and this Spark has no Delta"):
        aggregate(f"spark:{tmp_path}", "y")
