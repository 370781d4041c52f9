"""A fit and its predictions on a Spark cluster have the bits of one machine, whatever happens there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from agglearn import AggregatedData, Model, aggregate, aggregate_split, fit, save
from agglearn.errors import AgglearnError, InputError, StoreError
from agglearn.field.engines.spark import BLOCKS, SHARDS, SparkEngine
from agglearn.field.problem import Problem, make_problem
from agglearn.model.format import load_model
from agglearn.spark.inputs import write_frame
from agglearn.train import loop
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.remote import RemoteCheckpoints, checkpoints_in
from agglearn.train.settings import FitSettings, TrainingSettings
from agglearn.train.state import FitState
from tests.conftest import Cli
from tests.records import make_records
from tests.servers import an_executor_killed, spark_executors

# An odd number of chains; iterations enough for a look at the predictions and a growth.
LOCAL = FitSettings(chains=1501, iterations=16, seed=3)
SPARK = replace(LOCAL, engine="spark")


@pytest.fixture(scope="module")
def tables() -> AggregatedData:
    return aggregate(make_records(3000), "bought", positive="yes", exclude=["id"])


@pytest.fixture(scope="module")
def problem(tables: AggregatedData) -> Problem:
    return make_problem(tables)


@pytest.fixture(scope="module")
def model(tables: AggregatedData) -> Model:
    return fit(tables, LOCAL)


@pytest.fixture
def blocks(spark: Any) -> Iterator[Callable[[int], None]]:
    """Set how many blocks chains are dealt out to."""
    yield lambda n: spark.conf.set(BLOCKS, str(n))
    spark.conf.unset(BLOCKS)


@pytest.fixture
def shards(spark: Any) -> Iterator[Callable[[int], None]]:
    """Set how many shards weights and tallies go in."""
    yield lambda n: spark.conf.set(SHARDS, str(n))
    spark.conf.unset(SHARDS)


def same(one: loop.Fit, other: loop.Fit) -> None:
    """Weights, chains and history are the same, bit for bit, times apart."""
    for a, b in ((one.field.mu, other.field.mu), (one.field.theta, other.field.theta)):
        np.testing.assert_array_equal(a, b)
    assert one.field.intercept == other.field.intercept
    np.testing.assert_array_equal(one.engine.chains, other.engine.chains)
    histories = [[replace(entry, seconds=0.0) for entry in f.state.history] for f in (one, other)]
    assert histories[0] == histories[1]


@pytest.mark.parametrize(("n", "iterations"), [(1, 11), (2, 31), (3, 16), (7, 16)])
def test_a_fit_in_any_number_of_blocks_is_that_of_one_machine(
    n: int, iterations: int, problem: Problem, blocks: Callable[[int], None]
) -> None:
    blocks(n)
    settings = replace(LOCAL, iterations=iterations)  # with 31 of them chains grow twice
    same(loop.fit(problem, settings), loop.fit(problem, replace(settings, engine="spark")))


@pytest.mark.parametrize(("n", "of"), [(3, 2), (2, 5)])
def test_a_fit_whose_weights_and_tallies_go_in_shards_is_that_of_one_machine(
    n: int, of: int, problem: Problem, blocks: Callable[[int], None], shards: Callable[[int], None]
) -> None:
    blocks(n)
    shards(of)
    few = replace(LOCAL, iterations=11)  # with one look at the predictions
    fitted = loop.fit(problem, replace(few, engine="spark"))
    assert isinstance(fitted.engine, SparkEngine)
    assert fitted.engine.shards == of
    same(loop.fit(problem, few), fitted)


@pytest.mark.parametrize(
    "training",
    [
        TrainingSettings(law="apart", growth=1),
        TrainingSettings(marginal_label=False, exact_up_to=4, lag=1.0, growth=1),
    ],
    ids=["apart", "drawn labels and proposals"],
)
def test_every_kind_of_law_and_draw_is_that_of_one_machine(
    training: TrainingSettings, problem: Problem, blocks: Callable[[int], None]
) -> None:
    blocks(2)
    few = replace(LOCAL, iterations=4, training=training)
    same(loop.fit(problem, few), loop.fit(problem, replace(few, engine="spark")))


def test_held_out_scores_during_a_fit_are_those_of_one_machine(blocks: Callable[[int], None]) -> None:
    blocks(3)
    parts = aggregate_split(
        make_records(3000), "bought", positive="yes", exclude=["id"], split={"valid": 0.3}
    ).parts
    train = make_problem(parts["train"])
    valid = make_problem(parts["valid"]).over(train.layout)
    few = replace(LOCAL, iterations=1, lambda_theta=4.0, training=TrainingSettings(growth=1))
    one = loop.fit(train, few, valid=valid)
    assert one.state.history[-1].valid_nllh is not None
    same(one, loop.fit(train, replace(few, engine="spark"), valid=valid))


def test_a_population_that_is_spread_says_what_one_in_one_place_says(
    problem: Problem, blocks: Callable[[int], None]
) -> None:
    blocks(3)
    few = replace(LOCAL, iterations=1, training=TrainingSettings(growth=1))
    here = loop.fit(problem, few).engine.population(None)  # type: ignore[arg-type]
    engine = loop.fit(problem, replace(few, engine="spark")).engine
    there = engine.population(None)  # type: ignore[arg-type]
    weights = np.random.default_rng(0).normal(size=here.layout.n_cells)
    for one, other in zip((here, *here.halves()), (there, *there.halves()), strict=True):
        ours, theirs = (law.map(np.exp, law.scores(weights, 0.5)) for law in (one, other))
        assert one.size == other.size
        assert one.mean(ours) == other.mean(theirs)
        assert one.moments(ours) == other.moments(theirs)
        np.testing.assert_array_equal(one.shares(), other.shares())
        np.testing.assert_array_equal(one.cells(ours), other.cells(theirs))
        for most in (100, 10_000):
            np.testing.assert_array_equal(one.some(most), other.some(most))


def test_blocks_are_sent_the_last_move_and_stand_where_they_stood_when_asked_again(
    problem: Problem, blocks: Callable[[int], None]
) -> None:
    blocks(2)
    few = replace(SPARK, iterations=6, training=TrainingSettings(growth=1))
    engine, mu0, state = loop.begin(problem, few)
    assert isinstance(engine, SparkEngine)
    before: list[tuple[Any, Any]] = []
    for _ in loop.iterate(engine, mu0, problem, few, state):
        if state.iteration == 2:
            population = engine.population()
            before.append((population, population.shares()))
    assert [move.iteration for move in engine._latest(engine._trail).moves] == [5]
    assert len(engine._trail.moves) == 6
    population, shares = before[0]  # of blocks that no executor has beside it any more
    np.testing.assert_array_equal(population.shares(), shares)
    assert (engine.population().shares() != shares).any()


def _executors() -> list[int]:
    """Process numbers of the executors of this process's cluster."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        driver = next((w for w in words if w.startswith(b"spark://CoarseGrainedScheduler@")), None)
        if driver is not None and driver.endswith(f":{_driver_port()}".encode()):
            found.append(int(folder.name))
    return found


def _driver_port() -> str:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    return str(session.sparkContext.getConf().get("spark.driver.port"))


def test_an_executor_that_is_killed_takes_nothing_with_it(
    problem: Problem, blocks: Callable[[int], None]
) -> None:
    blocks(3)
    killed: list[int] = []

    def kill_one(state: FitState) -> None:
        if state.iteration in (3, 9):
            victim = _executors()[0]
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    fitted = loop.fit(problem, SPARK, on_iteration=kill_one)
    assert len(set(killed)) == 2
    same(loop.fit(problem, LOCAL), fitted)


def test_blocks_that_are_lost_come_back_from_where_they_were_kept(
    problem: Problem, blocks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks(2)
    monkeypatch.setattr("agglearn.field.engines.spark._MOST_MOVES", 3)
    kept = []
    keep = SparkEngine._keep

    def watched(engine: SparkEngine) -> str:
        kept.append(keep(engine))
        return kept[-1]

    monkeypatch.setattr(SparkEngine, "_keep", watched)

    def lose(state: FitState) -> None:
        if state.iteration == 8:
            os.kill(_executors()[0], signal.SIGKILL)

    few = replace(LOCAL, iterations=10)
    fitted = loop.fit(problem, replace(few, engine="spark"), on_iteration=lose)
    assert len(kept) >= 3
    assert isinstance(fitted.engine, SparkEngine)
    there = {path.name for path in Path(kept[-1].removeprefix("file:")).parent.iterdir()}
    # The last state, and the one that blocks were dealt out from: Spark reads it again where it loses them.
    assert there == {Path(folder).name for folder in (kept[-1], fitted.engine._dealt_from) if folder}
    same(loop.fit(problem, few), fitted)


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Say which executors there seem to be: one that another test killed may come back at any time."""
    names = ["one"]
    monkeypatch.setattr(SparkEngine, "_at_work", lambda engine: {(names[-1], 1)})
    return names.append


def test_a_run_goes_on_from_its_checkpoints_with_the_same_bits(
    problem: Problem, blocks: Callable[[int], None], executors: Callable[[str], None], tmp_path: Path
) -> None:
    class StopError(Exception):
        pass

    def stop(state: FitState) -> None:
        if state.iteration == 7:
            raise StopError

    blocks(2)
    few = replace(SPARK, iterations=9)
    with pytest.raises(StopError):
        loop.fit(problem, few, checkpoints=Checkpoints(tmp_path, every=0.0), on_iteration=stop)
    assert len(list((tmp_path / "blocks").iterdir())) == 2  # those of the two checkpoints
    blocks(3)  # another number in the session: the run goes on with its own
    resumed = loop.fit(problem, few, checkpoints=Checkpoints(tmp_path, every=0.0))
    same(loop.fit(problem, replace(few, engine="local")), resumed)
    # Those of the two checkpoints, and the one that blocks were dealt out from.
    assert len(list((tmp_path / "blocks").iterdir())) == 3


def test_blocks_are_dealt_out_anew_where_an_executor_came_and_what_they_were_dealt_from_stays(
    problem: Problem, blocks: Callable[[int], None], executors: Callable[[str], None], tmp_path: Path
) -> None:
    blocks(2)
    there = []

    def come(state: FitState) -> None:
        if state.iteration == 3:
            executors("another")
        there.append(len(list((tmp_path / "blocks").iterdir())) if state.iteration > 1 else 0)

    few = replace(LOCAL, iterations=7)
    checkpoints = Checkpoints(tmp_path, every=0.0)
    fitted = loop.fit(problem, replace(few, engine="spark"), checkpoints=checkpoints, on_iteration=come)
    assert isinstance(fitted.engine, SparkEngine)
    assert str(fitted.engine._dealt_from).endswith("-000003")
    # Those of the last two checkpoints; from the fifth on, the one of the third beside them.
    assert there == [0, 1, 2, 2, 2, 3, 3]
    same(loop.fit(problem, few), fitted)


def test_chains_that_are_gone_are_told_of(
    problem: Problem, blocks: Callable[[int], None], tmp_path: Path
) -> None:
    blocks(1)
    few = replace(SPARK, iterations=1)
    loop.fit(problem, few, checkpoints=Checkpoints(tmp_path, every=0.0))
    shutil.rmtree(tmp_path / "blocks")
    with pytest.raises(StoreError, match="are gone"):
        loop.fit(problem, few, checkpoints=Checkpoints(tmp_path))


def test_what_the_engine_cannot_do_is_refused_in_one_line(spark: Any, tables: AggregatedData) -> None:
    for setting, what in ((BLOCKS, "blocks"), (SHARDS, "shards")):
        spark.conf.set(setting, "many")
        try:
            with pytest.raises(InputError, match=f"is not a number of {what}"):
                fit(tables, SPARK)
        finally:
            spark.conf.unset(setting)


def test_penalties_chosen_on_held_out_tables_are_those_of_one_machine(
    blocks: Callable[[int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks(2)
    monkeypatch.setattr("agglearn.train.select.course._SEGMENT", 2)  # iterations at a neighbour
    monkeypatch.setattr("agglearn.train.select.choose._MOST_WORK", 20.0)
    parts = aggregate_split(
        make_records(2000), "bought", positive="yes", exclude=["id"], split={"valid": 0.3}
    ).parts
    few = FitSettings(
        chains=301, iterations=3, lambda_theta="auto", training=TrainingSettings(prior="single", growth=1)
    )
    here = fit(parts["train"], few, valid=parts["valid"])
    there = fit(
        parts["train"],
        replace(few, engine="spark"),
        valid=parts["valid"],
        checkpoints=Checkpoints(tmp_path),
    )
    assert here.record.choice is not None
    assert len(here.record.choice.path) > 1
    assert here.record.choice == there.record.choice
    np.testing.assert_array_equal(here.field.theta, there.field.theta)
    assert not list(tmp_path.glob("fold-*"))


def test_unlabelled_records_may_be_a_spark_frame_beside_either_engine(
    spark: Any, tables: AggregatedData, blocks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks(2)
    monkeypatch.setattr("agglearn.field.engines.mixture._SURE", -3.0)  # trust records, whatever they tell
    records = make_records(400, seed=5)
    few = replace(LOCAL, iterations=12)  # with a look at what the records are worth
    frame = spark.createDataFrame(records).coalesce(1)
    one, other, third = (
        fit(tables, how, records=given)
        for how, given in ((few, records), (few, frame), (replace(few, engine="spark"), frame))
    )
    assert one.record.used["records"]["share"] > 0
    for model in (other, third):
        np.testing.assert_array_equal(one.field.theta, model.field.theta)
        np.testing.assert_array_equal(one.chains, model.chains)
        assert model.record.used["records"] == one.record.used["records"]


def test_records_that_do_not_fit_into_memory_are_refused_with_their_size(
    spark: Any, tables: AggregatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agglearn.runtime.memory.limit", lambda: 10_000)
    frame = spark.createDataFrame(make_records(400)).coalesce(1)
    with pytest.raises(AgglearnError, match="400 records in memory"):
        fit(tables, LOCAL, records=frame)


def test_checkpoints_may_be_on_any_file_system_that_spark_knows(
    spark: Any, tables: AggregatedData, blocks: Callable[[int], None], run_cli: Cli, tmp_path: Path
) -> None:
    class StopError(Exception):
        pass

    def stop(state: FitState) -> None:
        if state.iteration == 5:
            raise StopError

    blocks(2)
    uri = (tmp_path / "elsewhere").as_uri()
    assert isinstance(checkpoints_in(uri), RemoteCheckpoints)
    assert isinstance(checkpoints_in(str(tmp_path / "here")), Checkpoints)
    few = replace(SPARK, iterations=7)
    problem = make_problem(tables)
    with pytest.raises(StopError):
        loop.fit(problem, few, checkpoints=checkpoints_in(uri, every=0.0), on_iteration=stop)
    found = sorted(path.name for path in (tmp_path / "elsewhere").iterdir())
    assert found == ["blocks", "iteration-000003", "iteration-000004"]
    with pytest.raises(StoreError, match=f"{uri}/iteration-000004 is of a run with"):
        loop.fit(problem, replace(few, seed=9), checkpoints=checkpoints_in(uri))
    begun: list[int] = []
    resumed = loop.fit(
        problem,
        few,
        checkpoints=checkpoints_in(uri, every=0.0),
        on_iteration=lambda state: begun.append(state.iteration),
    )
    assert begun == [5, 6, 7]
    same(loop.fit(problem, replace(few, engine="local")), resumed)
    save(tables, tmp_path / "t.agg")
    words = ["fit", tmp_path / "t.agg", "-o", tmp_path / "m.model", "--engine", "spark"]
    refused = run_cli(*words, "--checkpoint", uri)
    assert refused.code == 2
    assert f"{uri} is not empty: go on with --resume {uri}" in refused.err
    unknown = run_cli(*words, "--checkpoint", "nosuch://host/folder")
    assert unknown.code == 2
    assert "nosuch://host/folder: Spark cannot use this folder" in unknown.err
    assert unknown.err.count("\n") == 1


# --- predictions -----------------------------------------------------------------------------------


def _frame(spark: Any, records: Any, partitions: int) -> Any:
    return spark.createDataFrame(records).repartition(partitions)


def test_a_frame_is_scored_as_records_in_one_place(spark: Any, model: Model, tmp_path: Path) -> None:
    records = make_records(700)
    expected = _scores(model, records)
    for partitions in (1, 7):
        scored = model.transform(_frame(spark, records, partitions))
        assert scored.columns == [*records.column_names, "probability"]
        found = {row["id"]: row["probability"] for row in scored.collect()}
        assert found == expected


def _scores(model: Model, records: Any) -> dict[Any, float]:
    from scipy.special import expit

    from agglearn.model.predict import score_batches
    from agglearn.records.sources import open_source

    found: dict[Any, float] = {}
    for batch, log_odds, _ in score_batches(model, open_source(records), ["id"]):
        found |= dict(zip(batch.column("id").to_pylist(), expit(log_odds).tolist(), strict=True))
    return found


def test_a_stream_is_scored_as_a_table(spark: Any, model: Model, tmp_path: Path) -> None:
    records = make_records(300)
    (tmp_path / "in").mkdir()
    pq.write_table(records.slice(0, 200), tmp_path / "in" / "1.parquet")
    pq.write_table(records.slice(200), tmp_path / "in" / "2.parquet")
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    stream = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
    writing = (
        model.transform(stream)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "log"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert writing.awaitTermination(60)
    written = pq.read_table(tmp_path / "out", partitioning=None).to_pydict()
    found = dict(zip(written["id"], written["probability"], strict=True))
    assert found == _scores(model, records)


def _slowly(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for start in range(0, batch.num_rows, 50):
            time.sleep(0.15)
            yield batch.slice(start, 50)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning")
def test_an_executor_that_is_killed_changes_no_prediction(spark: Any, model: Model, tmp_path: Path) -> None:
    _slowly.__module__ = "__main__"  # executors do not have the tests: it is sent along
    records = make_records(1200)
    frame = _frame(spark, records, 4)
    frame = frame.mapInArrow(_slowly, frame.schema)
    before = set(spark_executors())
    with an_executor_killed(spark, after=0.3) as killed:
        write_frame(model.transform(frame).select("id", "probability"), str(tmp_path / "scores.parquet"))
    assert killed[0] in before
    written = pq.read_table(tmp_path / "scores.parquet").to_pydict()
    assert len(written["id"]) == records.num_rows
    assert dict(zip(written["id"], written["probability"], strict=True)) == _scores(model, records)


def test_records_drawn_on_a_cluster_are_those_drawn_on_one_machine(
    spark: Any, model: Model, run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agglearn.model.draw._BLOCK", 400)  # four blocks of chains, in two tasks
    save(model, tmp_path / "m.model")
    words = ["sample", tmp_path / "m.model", "-n", 4000, "--seed", 7, "--json"]  # in three rounds
    assert run_cli(*words, "-o", tmp_path / "here.parquet").code == 0
    done = run_cli(*words, "-o", f"spark:{tmp_path}/there.parquet")
    assert done.code == 0, done.err
    assert done.json["rows"] == 4000
    here, there = (_rows(tmp_path / f"{name}.parquet") for name in ("here", "there"))
    assert here == there
    assert run_cli(*words, "-o", tmp_path / "x.csv", "--master", "yarn").code == 2


def _rows(path: Path) -> list[str]:
    return sorted(map(repr, pq.read_table(path).to_pylist()))


def test_frames_that_do_not_fit_are_refused(spark: Any, model: Model) -> None:
    records = make_records(10)
    with pytest.raises(InputError, match="transform takes a Spark DataFrame"):
        model.transform(records)
    frame = _frame(spark, records, 1)
    first = model.schema.names[0]
    with pytest.raises(Exception, match=first):
        model.transform(frame.drop(first))
    with pytest.raises(InputError, match="have a column 'probability' already"):
        model.transform(frame.withColumnRenamed("id", "probability"))


def test_the_command_line_fits_predicts_and_evaluates_on_spark(
    spark: Any, tables: AggregatedData, model: Model, run_cli: Cli, tmp_path: Path
) -> None:
    from pyspark.sql import functions as sql

    records = make_records(500)
    pq.write_table(records, tmp_path / "records.parquet")
    save(tables, tmp_path / "t.agg")
    settings = ["--chains", 1501, "--iterations", 3, "--seed", 3, "--json"]
    done = run_cli("fit", tmp_path / "t.agg", "-o", tmp_path / "s.model", "--engine", "spark", *settings)
    assert done.code == 0, done.err
    assert run_cli("fit", tmp_path / "t.agg", "-o", tmp_path / "l.model", *settings).code == 0
    one, other = load_model(tmp_path / "s.model"), load_model(tmp_path / "l.model")
    np.testing.assert_array_equal(one.field.theta, other.field.theta)
    np.testing.assert_array_equal(one.chains, other.chains)
    asked = (tmp_path / "s.model", f"spark:{tmp_path}/records.parquet")
    done = run_cli("predict", *asked, "-o", f"spark:{tmp_path}/scores", "--keep", "id", "--json")
    assert done.code == 0, done.err
    assert done.json["rows"] == 500
    written = pq.read_table(tmp_path / "scores").to_pydict()
    assert dict(zip(written["id"], written["probability"], strict=True)) == _scores(one, records)
    again = run_cli("predict", *asked, "-o", f"spark:{tmp_path}/scores")
    assert again.code == 2
    assert "exists already" in again.err
    words = spark.read.parquet(f"{tmp_path}/records.parquet").withColumn("age", sql.lit("old"))
    words.write.parquet(f"{tmp_path}/words.parquet")
    name = "words.parquet"  # of values that the model does not know
    there = run_cli(
        "predict", tmp_path / "s.model", f"spark:{tmp_path}/{name}", "-o", f"spark:{tmp_path}/w", "--json"
    )
    here = run_cli("predict", tmp_path / "s.model", tmp_path / name, "-o", tmp_path / "w.csv", "--json")
    assert there.json["unknown"] == here.json["unknown"] == {"age": 500}
    assert run_cli("predict", *asked, "-o", tmp_path / "scores.csv").code == 2
    found = run_cli("evaluate", *asked, "--json")
    here = run_cli("evaluate", tmp_path / "s.model", tmp_path / "records.parquet", "--json")
    assert found.json["nllh"] == here.json["nllh"]
    nothing = run_cli(
        "predict", tmp_path / "s.model", tmp_path / "records.parquet", "-o", "x", "--master", "yarn"
    )
    assert nothing.code == 2
    assert "nothing here does" in nothing.err


_KILLED = """
import os, signal, sys
from pathlib import Path
from agglearn import load
from agglearn.spark.session import open_session
from agglearn.field.problem import make_problem
from agglearn.train import loop
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.settings import FitSettings

open_session("local[2]")
def kill(state):
    if state.iteration == 6:
        os.kill(os.getpid(), signal.SIGKILL)
loop.fit(
    make_problem(load(sys.argv[1])), FitSettings(**eval(sys.argv[3])),
    checkpoints=Checkpoints(Path(sys.argv[2]), every=0.0), on_iteration=kill,
)
"""


def test_a_driver_that_was_killed_is_resumed_with_the_same_bits(
    spark: Any, tables: AggregatedData, problem: Problem, tmp_path: Path
) -> None:
    save(tables, tmp_path / "t.agg")
    how = {"chains": 1501, "iterations": 8, "seed": 3}
    words = [str(tmp_path / "t.agg"), str(tmp_path / "kept"), json.dumps({**how, "engine": "spark"})]
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    settings = FitSettings(**how)  # type: ignore[arg-type]
    begun: list[int] = []
    resumed = loop.fit(
        problem,
        replace(settings, engine="spark"),
        checkpoints=Checkpoints(tmp_path / "kept"),
        on_iteration=lambda state: begun.append(state.iteration),
    )
    assert begun[0] in (6, 7)
    same(loop.fit(problem, settings), resumed)
