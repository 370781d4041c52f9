"""The data verbs as a user types them."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agglearn.aggregation.api import aggregate
from agglearn.tables.data import merge
from agglearn.tables.format import load, save

GOOD = "x1,x2,x3,y\n1,B,a,1\n2,A,b,1\n1,B,b,0\n2,B,a,1\n1,A,b,0\n"
ADULT = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income"
)


@pytest.fixture
def toy_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy records as a CSV file in a folder of their own, which is where we stand."""
    monkeypatch.chdir(tmp_path)
    Path("toy.csv").write_text(GOOD)
    return Path("toy.csv")


def query(sql: str) -> list[Any]:
    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()


# --- aggregate -------------------------------------------------------------------------------------


def test_aggregate_writes_the_tables_and_says_what_it_did(toy_file: Path, toy: Any, run_cli: Any) -> None:
    run = run_cli("aggregate", toy_file, "--label", "y", "-o", "toy.agg")
    assert run.code == 0
    assert load("toy.agg").equals(aggregate(toy, "y"))
    lines = run.out.splitlines()
    assert lines[0] == "  column  kind         modalities  why"
    assert lines[1] == "  x1      categorical           2  2 distinct integers (a quantity? --numeric x1)"
    assert lines[2] == "  x2      categorical           2  text"
    assert lines[-1] == "toy.agg: 5 records (60.00% y) in 3 tables, 12 cells"
    assert "records a second" in run.err


def test_json_is_one_object_on_stdout_and_nothing_else(toy_file: Path, run_process: Any) -> None:
    run = run_process("aggregate", toy_file, "--label", "y", "-o", "toy.agg", "--json")
    assert (run.code, run.err) == (0, "")
    assert run.out.count("\n") == 1
    assert (run.json["tables"], run.json["cells"], run.json["rows"]) == (3, 12, 5)
    assert run.json["parts"] == {"train": {"path": "toy.agg", "rows": 5, "positives": {"y": 3}}}
    assert run.json["columns"][1] == {
        "name": "x2",
        "kind": "categorical",
        "modalities": 2,
        "missing": 0,
        "why": "text",
    }


def test_parts_of_a_split_are_written_beside(toy_file: Path, run_cli: Any) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a},{b},{y}" for a, b, y in zip(*rng.integers(0, [[5], [3], [2]], (3, 1000)), strict=True)]
    Path("in.csv").write_text("\n".join(["a,b,y", *rows]))
    run = run_cli(
        "aggregate",
        "in.csv",
        "--label",
        "y",
        "-o",
        "out.agg",
        "--split",
        "valid=0.2,test=0.1",
        "--seed",
        "7",
        "--json",
    )
    assert run.code == 0, run.err
    parts = {
        part: load(f"out{ending}.agg")
        for part, ending in (("train", ""), ("valid", ".valid"), ("test", ".test"))
    }
    assert {part: d.rows for part, d in parts.items()} == {p: d["rows"] for p, d in run.json["parts"].items()}
    assert run.json["rows"] == 1000
    whole = aggregate("in.csv", "y", schema=parts["train"].schema)
    assert merge(parts.values()).equals(whole)
    assert parts["test"].split == {"part": "test", "seed": 7, "shares": {"valid": 0.2, "test": 0.1}}


def test_options_reach_the_tables(toy_file: Path, run_cli: Any) -> None:
    rng = np.random.default_rng(0)
    n = 400
    pq.write_table(
        pa.table(
            {
                "age": rng.integers(18, 90, n),
                "income": np.round(rng.gamma(2, 1000, n), 2),
                "site": [f"s{z}" for z in rng.zipf(1.5, n) % 50],
                "kind": rng.integers(0, 40, n),
                "junk": ["x"] * n,
                "click": rng.choice(["yes", "no"], n),
            }
        ),
        "in.parquet",
    )
    run = run_cli(
        *("aggregate", "in.parquet", "--label", "click", "--positive", "yes", "-o", "out.agg", "--json"),
        *("--exclude", "ju*", "--edges", "age=30,50", "--bins", 4, "--binning", "width"),
        *("--max-modalities", 10, "--categorical", "kind"),
        *("--tables", "singles,age*site*kind", "--hash-size", 100),
    )
    assert run.code == 0, run.err
    data = load("out.agg")
    assert data.schema.names == ("age", "income", "site", "kind")
    assert data.schema.cards == (3, 4, 11, 11)
    assert list(data.tables) == [("age",), ("income",), ("site",), ("kind",), ("age", "site", "kind")]
    assert data.tables["age", "site", "kind"].cells.buckets
    assert data.tables["age", "site", "kind"].n_cells == 100
    again = run_cli(
        "aggregate",
        "in.parquet",
        "--label",
        "click",
        "--positive",
        "yes",
        "-o",
        "b.agg",
        "--schema",
        "out.agg",
    )
    assert again.code == 0
    assert load("b.agg").schema == data.schema


def test_unknown_values_are_told_and_counted(toy_file: Path, run_cli: Any) -> None:
    run_cli("aggregate", toy_file, "--label", "y", "-o", "old.agg")
    Path("new.csv").write_text(GOOD.replace("2,A,b,1", "7,Z,b,1"))
    run = run_cli("aggregate", "new.csv", "--label", "y", "-o", "new.agg", "--schema", "old.agg")
    assert run.code == 0
    for name in ("x1", "x2"):
        assert f"records have a value of {name} that the schema does not know, which has no cell" in run.err
    run = run_cli("check", "new.agg")
    assert run.code == 0
    assert "up to 1 records have an unknown value" in run.out


def test_a_table_of_a_database_is_an_input(toy_file: Path, run_cli: Any, toy: Any) -> None:
    with duckdb.connect("shop.duckdb") as connection:
        connection.from_arrow(toy).create("visits")
    run = run_cli("aggregate", "shop.duckdb:visits", "--label", "y", "-o", "toy.agg", "--json")
    assert run.code == 0, run.err
    assert load("toy.agg").equals(aggregate(toy, "y"))


def test_several_files_and_globs_are_one_input(toy_file: Path, run_cli: Any) -> None:
    head, *rows = GOOD.splitlines(keepends=True)
    for i, row in enumerate(rows):
        Path(f"part{i}.csv").write_text(head + row)
    run = run_cli("aggregate", "part[0-2].csv", "part3.csv", "part4.csv", "--label", "y", "-o", "out.agg")
    assert run.code == 0
    assert load("out.agg").equals(aggregate("toy.csv", "y"))


def test_writing_over_tables_of_ours_is_allowed(toy_file: Path, run_cli: Any) -> None:
    for _ in range(2):
        assert run_cli("aggregate", toy_file, "--label", "y", "-o", "toy.agg").code == 0
    assert sorted(os.listdir()) == ["toy.agg", "toy.csv"]


def test_an_output_that_cannot_be_written_is_told_before_any_work(
    toy_file: Path, run_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*args: Any, **options: Any) -> None:
        pytest.fail("the records were read first")

    monkeypatch.setattr("agglearn.aggregation.api.aggregate_split", work)
    run = run_cli("aggregate", toy_file, "--label", "y", "-o", "toy.csv/out.agg")
    assert (run.code, run.err) == (2, "agglearn: toy.csv/out.agg: cannot write there (Not a directory)\n")


# --- merge -----------------------------------------------------------------------------------------


def test_merge_adds_up_tables_of_one_schema(toy_file: Path, toy: Any, run_cli: Any) -> None:
    whole = aggregate(toy, "y")
    for i in range(5):
        save(aggregate(toy.slice(i, 1), "y", schema=whole.schema), f"{i}.agg")
    run = run_cli("merge", *(f"{i}.agg" for i in range(5)), "-o", "all.agg", "--json")
    assert run.code == 0
    said = run.json
    parts = said.pop("parts")
    assert [(part["name"], part["records"], part["weight"]) for part in parts] == [
        (str(i), 1, 1) for i in range(5)
    ]
    assert said == {"path": "all.agg", "tables": 3, "cells": 12, "rows": 5, "positives": {"y": 3}}
    assert load("all.agg").equals(whole)


# --- the program itself ----------------------------------------------------------------------------


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['agglearn', '--help']\n"
        "from agglearn.cli import run\n"
        "try: run()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "heavy = {'numba', 'pyarrow', 'numpy', 'sklearn', 'scipy', 'narwhals', 'pandas', 'polars'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    times = []
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        times.append(time.perf_counter() - began)
        assert done.stderr == "[]\n"
        assert "aggregate" in done.stdout
    # Half a second is the promise on an idle machine, so the quickest of a few is what counts.
    assert min(times) < 0.5


@pytest.mark.parametrize("verb", ["", "aggregate", "check", "merge"])
def test_every_verb_explains_itself(verb: str, run_cli: Any) -> None:
    run = run_cli(*[v for v in [verb] if v], "--help")
    assert (run.code, run.err) == (0, "")
    assert "Usage: agglearn" in run.out


def test_the_version_is_told(run_cli: Any) -> None:
    from agglearn import __version__

    assert run_cli("--version").out == f"agglearn {__version__}\n"


def test_progress_is_silent_when_nobody_watches(
    toy_file: Path, run_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_process("aggregate", toy_file, "--label", "y", "-o", "toy.agg")
    (line,) = run.err.splitlines()
    assert line.endswith("records a second")
    assert "\x1b" not in run.err + run.out


def test_progress_shows_the_rate_to_a_person_who_waits() -> None:
    code = (
        "import time\n"
        "from agglearn.runtime.progress import meter\n"
        "with meter('counting', 30) as advance:\n"
        "    for _ in range(30): time.sleep(0.05); advance(1)\n"
        "with meter('quick', 1) as advance: advance(1)\n"
    )
    ours, theirs = pty.openpty()
    run = subprocess.Popen([sys.executable, "-c", code], stderr=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert run.wait() == 0
    assert run.stdout is not None
    assert run.stdout.read() == b"", "progress goes to stderr"
    run.stdout.close()
    assert b"counting" in shown
    assert b"rows, " in shown
    assert b"/s" in shown
    assert b"quick" not in shown, "under a second there is nothing to show"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_that_closes_early_makes_no_noise(toy_file: Path, unbuffered: str) -> None:
    program = Path(sys.executable).with_name("agglearn")
    done = subprocess.run(
        ["bash", "-c", f"{program} --help | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert done.stderr == ""
    assert done.returncode in (0, 1)  # 0 where all was written before the other end closed


def test_an_interrupt_is_one_line(monkeypatch: pytest.MonkeyPatch, run_cli: Any, toy_file: Path) -> None:
    def stop(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agglearn.tables.format.load", stop)
    run = run_cli("check", "toy.agg")
    assert (run.code, run.err) == (130, "agglearn: interrupted\n")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device", "/data/x"), "/data/x: No space left on device"),
        (MemoryError(), "out of memory"),
    ],
)
def test_what_the_machine_lacks_is_one_line(
    monkeypatch: pytest.MonkeyPatch, run_cli: Any, toy_file: Path, error: BaseException, message: str
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr("agglearn.tables.format.load", fail)
    run = run_cli("check", "toy.agg")
    assert run.code == 2
    assert run.err.startswith(f"agglearn: {message}")
    assert run.err.count("\n") == 1


@pytest.mark.parametrize("encoding", ["utf8", "shift_jis"])
def test_a_program_that_ends_before_its_file_ends_cleanly(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x,y\n" + "日,1\nb,0\n" * 300_000, encoding=encoding)
    code = (
        "import os, sys\n"
        "from agglearn.records import files, sources\n"
        "files._CSV_BLOCK = 1 << 14\n"
        "for _ in range(6):\n"
        "    if not os.fork():\n"
        "        source = sources.open_source(sys.argv[1], sources.ReadOptions(encoding=sys.argv[2]))\n"
        "        batches = source.batches(['x', 'y'])\n"
        "        next(batches)\n"
        "        sys.exit(3)\n"
        "    print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "in.csv"), encoding]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["3"] * 6, done.stderr


# --- Adult -----------------------------------------------------------------------------------------


def test_adult_from_records_to_tables_that_duckdb_reads(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_process: Any, run_cli: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = gzip.decompress((shared_data / "adult.data.gz").read_bytes()).decode()
    records = [line.split(", ") for line in raw.splitlines() if line]
    Path("adult.csv").write_text("\n".join(",".join(r) for r in [[ADULT], *records]) + "\n")

    run = run_process("aggregate", "adult.csv", "--label", "income", "--positive", ">50K", "-o", "adult.agg")
    assert run.code == 0, run.err
    assert "adult.agg: 32,561 records (24.08% income) in 91 tables" in run.out
    heading, *rows = run.out.splitlines()[:-1]
    assert heading.split() == ["column", "kind", "modalities", "why"]
    shown = {line.split()[0]: line for line in rows if line[2] != " "}
    assert set(shown) == set(ADULT.split(",")[:-1])
    assert "numeric" in shown["age"]
    assert "codes? --categorical age" in shown["age"]
    assert "numeric" in shown["capital-gain"]
    assert "categorical" in shown["education"]

    run = run_cli("check", "adult.agg", "--json")
    assert run.code == 0
    assert run.json["ok"] is True
    assert (run.json["rows"], run.json["tables"]) == (32_561, 91)
    assert run.json["positives"] == {"income": 7841}

    manifest = json.loads(Path("adult.agg/manifest.json").read_text())
    assert len(manifest["tables"]) == 91
    sums = query(
        """SELECT filename, sum("count")::BIGINT, sum(income)::BIGINT FROM
           read_parquet('adult.agg/tables/*.parquet', filename = true, union_by_name = true) GROUP BY 1"""
    )
    assert len(sums) == 91
    assert {(n, positives) for _, n, positives in sums} == {(32_561, 7841)}

    # Most have no capital gain: they are alone in the first bin, as counted here by hand.
    zeros = [r for r in records if r[10] == "0"]
    gain = load("adult.agg").table("capital-gain")
    assert (gain.counts[0], gain.sums[0][0]) == (len(zeros), sum(r[14] == ">50K" for r in zeros))
    education = query(
        """SELECT education, sex, count(*), count(*) FILTER (income = '>50K') FROM 'adult.csv' GROUP BY ALL"""
    )
    (entry,) = [t for t in manifest["tables"] if set(t["features"]) == {"education", "sex"}]
    ours = query(f"""SELECT education, sex, "count", income FROM 'adult.agg/{entry["file"]}'""")
    assert sorted(ours) == sorted(education)
