"""A number is one value however it is written, and so is an answer, wherever the records come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import agglearn
from agglearn.receive import read_tables
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.schema.values import key, of_one_kind, same_value, spellings
from agglearn.sql.queries import write_queries
from tests.conftest import Cli


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0", "0.0"),
        ("0", "-0"),
        ("0", "-0.00"),
        ("5", " 5.0 "),
        ("5", "5."),
        ("1000", "1e+03"),
        ("0.5", ".5"),
        ("0.5", "0.50"),
        ("1e-7", "1e-07"),
        ("0.1", "0.1000000000000000055"),
        ("100000000000000000000", "1e+20"),
        ("1", "True"),
        ("false", "FALSE"),
        ("false", "0.0"),
    ],
)
def test_writings_of_one_value_share_a_key(one: str, other: str) -> None:
    assert key(one) == key(other) is not None
    assert same_value(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("7", "007"),
        ("9007199254740993", "9007199254740992"),
        ("12e4", "120000"),  # a piece of a hash as likely as a number
        ("1_000", "1000"),
        ("inf", "1e+999"),
        ("yes", "true"),
        ("a", "A"),
    ],
)
def test_other_values_do_not(one: str, other: str) -> None:
    assert not same_value(one, other)


def test_texts_of_one_kind_get_one_form() -> None:
    assert of_one_kind(["0", "0.0", "10"]) == (["0", "0", "10"], "integer")
    assert of_one_kind(["0.50", "2"]) == (["0.5", "2"], "float")
    assert of_one_kind(["True", "FALSE", "1"]) == (["true", "false", "true"], "boolean")
    assert of_one_kind(["007", "1"]) is None
    assert of_one_kind(["1", "many"]) is None
    assert of_one_kind([]) is None
    assert spellings(["5"]) == ["5", "5.0"]


# --- wherever the records come from ------------------------------------------------------------------

LEVEL = [0.0, 1.0, None, 2.0, 1.0, 0.0, 7.0, None] * 5
TRUTH = [True, False, True, True, False, False, True, False] * 5
Y = [1, 0, 1, 0, 1, 0, 1, 0] * 5


def sources(folder: Path) -> dict[str, Any]:
    """The same records, by tools that write numbers with gaps and answers each in a way of its own."""
    table = pa.table({"level": pa.array(LEVEL), "truth": TRUTH, "y": Y})
    whole = pa.table({"level": pa.array(LEVEL).cast(pa.int64()), "truth": TRUTH, "y": Y})
    frame = table.to_pandas()
    frame.to_csv(folder / "pandas.csv", index=False)  # 0.0 and True
    pa.csv.write_csv(whole, folder / "arrow.csv")  # 0 and true
    numbers = frame.assign(truth=frame["truth"].astype(int), y=frame["y"].astype(float))
    numbers.to_csv(folder / "numbers.csv", index=False)  # 0.0, 1 and the label as 1.0
    pq.write_table(table, folder / "double.parquet")
    pq.write_table(whole, folder / "integer.parquet")
    connection = duckdb.connect()
    connection.register("records", table)
    decimal = "SELECT CAST(level AS DECIMAL(9, 2)) AS level, CAST(truth AS INTEGER) AS truth, y FROM records"
    return {
        "pandas.csv": folder / "pandas.csv",
        "arrow.csv": folder / "arrow.csv",
        "numbers.csv": folder / "numbers.csv",
        "double.parquet": folder / "double.parquet",
        "integer.parquet": folder / "integer.parquet",
        "pandas": frame,
        "pandas of objects": frame.astype({"level": object}),
        "polars": pl.from_arrow(whole),
        "lazy polars": pl.from_arrow(table).lazy(),  # type: ignore[union-attr]
        "duckdb of doubles": connection.sql("SELECT * FROM records"),
        "duckdb of decimals": connection.sql(decimal),
        "duckdb of text": connection.sql(
            "SELECT CAST(level AS VARCHAR) AS level, CAST(truth AS VARCHAR) AS truth, y FROM records"
        ),
    }


def counts(data: agglearn.AggregatedData) -> dict[str, list[int]]:
    """Records of each value, by the value's key."""
    table, other = data.table("level"), data.table("truth")
    level = dict(zip(data.schema.feature("level").modalities, table.counts.tolist(), strict=True))
    truth = [key(m) for m in data.schema.feature("truth").modalities]
    return {"level": [level[m] for m in ("0", "1", "2", "7", "(missing)")]} | {
        "truth": [n for _, n in sorted(zip(truth, other.counts.tolist(), strict=True))],
        "positive": other.sums[0].tolist() if truth[0] == "0" else other.sums[0].tolist()[::-1],
    }


EXPECTED = {"level": [10, 10, 5, 5, 10], "truth": [20, 20], "positive": [5, 15]}


def test_every_source_gives_the_same_tables(tmp_path: Path) -> None:
    for name, source in sources(tmp_path).items():
        learnt = agglearn.aggregate(source, "y", tables="singles")
        assert counts(learnt) == EXPECTED, name


def test_a_schema_learnt_from_one_source_reads_every_other(tmp_path: Path) -> None:
    found = sources(tmp_path)
    for first in ("pandas.csv", "numbers.csv", "double.parquet", "pandas"):
        schema = agglearn.aggregate(found[first], "y", tables="singles").schema
        for name, source in found.items():
            assert counts(agglearn.aggregate(source, "y", tables="singles", schema=schema)) == EXPECTED, (
                first,
                name,
            )


def test_a_model_knows_values_however_they_are_written(tmp_path: Path) -> None:
    found = sources(tmp_path)
    classifier = agglearn.MaxEntClassifier(iterations=10, chains=100)
    classifier.fit(agglearn.aggregate(found["pandas.csv"], "y"))
    told = [classifier.decision_function(s) for n, s in found.items() if not n.startswith(("duckdb", "lazy"))]
    for scores in told[1:]:
        np.testing.assert_array_equal(scores, told[0])


def test_folding_in_an_engine_knows_numbers_however_they_are_written() -> None:
    levels = [float(i % 40) for i in range(400)] + [0.0] * 400
    schema = Schema((Categorical("level", False, ("0", "1"), other=True),), (Label("y"),))
    connection = duckdb.connect()
    connection.register("records", pa.table({"level": levels, "y": [i % 2 for i in range(800)]}))
    for kind in ("DOUBLE", "DECIMAL(9, 3)", "BIGINT", "VARCHAR"):
        relation = connection.sql(f"SELECT CAST(level AS {kind}) AS level, y FROM records")
        found = agglearn.aggregate(relation, "y", schema=schema, tables="singles")
        assert found.table("level").counts.tolist() == [410, 10, 380], kind


def test_queries_know_numbers_however_the_database_has_them(tmp_path: Path) -> None:
    levels = [float(i % 40) for i in range(400)] + [0.0] * 400
    schema = Schema(
        (
            Categorical("level", False, ("0", "1"), value_type="integer", other=True),
            Categorical("truth", False, ("false", "true"), value_type="boolean", other=True),
        ),
        (Label("y"),),
    )
    connection = duckdb.connect()
    connection.register(
        "records", pa.table({"level": levels, "truth": [i % 2 == 0 for i in range(800)], "y": [0, 1] * 400})
    )
    for kind, truth in (("DOUBLE", "BOOLEAN"), ("BIGINT", "INTEGER"), ("VARCHAR", "DOUBLE")):
        connection.execute(
            f"CREATE OR REPLACE TABLE t AS SELECT CAST(level AS {kind}) AS level, "
            f"CAST(CAST(truth AS INTEGER) AS {truth}) AS truth, y FROM records"
        )
        [query] = write_queries(schema, [("level", "truth")], "duckdb", "t")
        connection.sql(query.text).write_csv(str(tmp_path / "result.csv"))
        received = read_tables(tmp_path / "result.csv", schema=schema)
        assert not received.unknown
        assert received.data.table("level").counts.tolist() == [410, 10, 380], kind
        assert received.data.table("truth").counts.tolist() == [400, 400, 0], truth


def test_a_schema_of_old_that_wrote_numbers_as_floats_reads_integers_too() -> None:
    """Version 1 kept the text of a file: 0.0 from one that pandas wrote."""
    old = {
        "features": [
            {"name": "level", "kind": "categorical", "missing": False, "values": ["0.0", "1.0", "7.5"],
             "value_type": "string", "other": False},
        ],
        "labels": [{"name": "y"}],
    }  # fmt: skip
    schema = Schema.from_json(old)
    assert schema.features[0].encode(pa.array([0, 1, 2])).tolist() == [0, 1, 3]
    assert schema.features[0].encode(pa.array([0.0, 1.0, 7.5])).tolist() == [0, 1, 2]
    assert schema.features[0].encode(pa.array(["0", "1.0", "7.50", "x"])).tolist() == [0, 1, 2, 3]
    assert schema.features[0].modalities == ("0.0", "1.0", "7.5")


def test_two_writings_that_a_schema_tells_apart_stay_apart() -> None:
    version = Categorical("version", False, ("1.1", "1.10", "2"))
    assert version.encode(pa.array(["1.1", "1.10", "2.0"])).tolist() == [0, 1, 2]


def test_the_label_is_one_value_however_written() -> None:
    records = {"x": ["a", "b", "a"], "y": ["1.0", "0.0", "1.0"]}
    assert agglearn.aggregate(records, "y").positives == (2,)
    records["y"] = ["2.0", "3.0", "2.0"]
    found = agglearn.aggregate(records, "y", positive="2")
    assert found.positives == (2,)
    assert found.schema.labels[0].negative == "3.0"


# --- nearly nothing is known -------------------------------------------------------------------------


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """Records whose colours are written in another language."""
    rows = [f"{'rouge' if i % 3 else 'bleu'},{i % 2},{i % 2},{i % 2}" for i in range(60)]
    (tmp_path / "strange.csv").write_text("colour,size,shape,y\n" + "\n".join(rows) + "\n")
    return tmp_path / "strange.csv"


def test_records_of_which_nearly_nothing_is_known_are_said_loudly(
    tmp_path: Path, strange: Path, run_cli: Cli
) -> None:
    colours = ["red", "blue", "red"] * 20
    others = {name: [0, 1, 1] * 20 for name in ("size", "shape", "y")}
    data = agglearn.aggregate({"colour": colours, **others}, "y")
    agglearn.save(data, tmp_path / "t.agg")
    agglearn.save(agglearn.fit(data, agglearn.FitSettings(iterations=5, chains=50)), tmp_path / "t.model")
    loud = "PROBLEM: all 60 records have a value of colour that the schema does not know"
    run = run_cli("evaluate", tmp_path / "t.model", strange)
    assert (run.code, loud in run.err) == (0, True)
    run = run_cli("predict", tmp_path / "t.model", strange, "-o", tmp_path / "p.csv", "--json")
    assert (run.code, loud in run.err) == (0, True)
    assert run.json["unknown"] == {"colour": 60}
    run = run_cli(
        "aggregate", strange, "--label", "y", "--schema", tmp_path / "t.agg", "-o", tmp_path / "s.agg"
    )
    assert (run.code, loud in run.err) == (0, True)
    run = run_cli("check", tmp_path / "s.agg")
    assert run.code == 2
    assert "PROBLEM: all 60 records have a value of colour" in run.out
    assert "value of size" not in run.out
    (tmp_path / "r.csv").write_text("colour,count,y\nrouge,30,10\nbleu,30,20\n")
    run = run_cli("receive", tmp_path / "r.csv", "--schema", tmp_path / "t.agg", "-o", tmp_path / "r.agg")
    assert (run.code, loud in run.err) == (0, True)
    with pytest.warns(UserWarning, match="all 60 records have a value of colour"):
        agglearn.MaxEntClassifier.load(tmp_path / "t.model").predict(strange)


def test_a_frame_of_pandas_with_gaps_is_predicted_like_its_file(tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": [0.0, np.nan, 1.0, 2.0] * 10, "y": [0, 1, 1, 0] * 10})
    frame.to_csv(tmp_path / "n.csv", index=False)
    schema = agglearn.aggregate(tmp_path / "n.csv", "y").schema
    assert schema.features[0].modalities == ("0", "1", "2", "(missing)")
    assert schema.features[0].encode(pa.array([0, 1, 2, None])).tolist() == [0, 1, 2, 3]
