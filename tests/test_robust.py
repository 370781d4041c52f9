"""What a hostile or a careless world does to the command line, case by case; the fuzzers try the rest."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import agglearn
from agglearn.errors import AgglearnError, InputError, StoreError, TooLargeError
from agglearn.runtime import compiled
from agglearn.runtime.options import BOUNDS, check_bounds
from evidence.fuzz.damage import forge
from evidence.fuzz.trial import run as try_run
from tests.conftest import REPOSITORY, Cli

RECORDS = "x1,x2,y\n" + "".join(f"{i % 3},{'ab'[i % 2]},{(i // 2) % 2}\n" for i in range(60))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with records, their tables and a model."""
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(RECORDS)
    data = agglearn.aggregate("a.csv", "y")
    agglearn.save(data, "a.agg")
    agglearn.save(agglearn.fit(data, agglearn.FitSettings(iterations=3, chains=20)), "a.model")
    return tmp_path


# --- what files declare ------------------------------------------------------------------------------


def change(folder: Path, **values: Any) -> None:
    """Change the manifest at paths such as ``tables__0__buckets``, and make the checksums fit."""
    document = json.loads((folder / "manifest.json").read_text())
    for path, value in values.items():
        *way, last = [int(p) if p.isdigit() else p for p in path.split("__")]
        place = document
        for step in way:
            place = place[step]
        place[last] = value
    (folder / "manifest.json").write_text(json.dumps(document))
    forge(folder)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"tables__0__file": "/etc/passwd"}, "not a file of its own"),
        ({"tables__0__file": "../a.csv"}, "not a file of its own"),
        ({"tables__0__buckets": 10**12, "tables__0__columns__axes": ["bucket"]}, "would need"),
        ({"rows": float("nan")}, "rows must be a finite number"),
        ({"rows": 10**400}, "not JSON"),
        ({"rows": True}, "rows must be a number"),
        ({"positives": []}, "positives must be a list of 1"),
        ({"schema__features__0__name": "\ud800"}, "not JSON"),
        ({"tables__0__integer": "yes"}, "integer must be true or false"),
        ({"tables__0__unknown": [0]}, "unknown must be a list of 2"),
    ],
)
def test_what_a_forged_manifest_declares_is_refused(values: Any, error: str, work: Path) -> None:
    change(work / "a.agg", **values)
    with pytest.raises(AgglearnError, match=error):
        agglearn.load("a.agg")


def test_a_count_that_is_no_number_is_refused_before_it_is_added_up(work: Path) -> None:
    [path] = (work / "a.agg" / "tables").glob("*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.set_column(2, "count", pa.array([float("nan")] * table.num_rows)), path)
    forge(work / "a.agg")
    with pytest.raises(StoreError, match="column 'count' must have"):
        agglearn.load("a.agg")


def test_a_few_bytes_that_stand_for_many_rows_are_not_unpacked(work: Path) -> None:
    [path] = (work / "a.agg" / "tables").glob("*.parquet")
    names = pq.read_schema(path).names
    many = pa.repeat(pa.scalar(0, pa.int64()), 5_000_000)
    pq.write_table(pa.table(dict.fromkeys(names, many)), path)
    forge(work / "a.agg")
    with pytest.raises(StoreError, match="has 5,000,000 rows, and the table has 6 cells"):
        agglearn.load("a.agg")


def test_weights_that_are_no_numbers_do_not_predict(work: Path) -> None:
    path = work / "a.model" / "field-theta.arrow"
    with pa.ipc.open_file(path) as reader:
        n = reader.read_all().num_rows
    column = pa.table({"theta": np.full(n, np.nan)})
    with pa.ipc.new_file(str(path), column.schema) as writer:
        writer.write_table(column)
    forge(work / "a.model")
    with pytest.raises(StoreError, match="theta must be finite numbers"):
        agglearn.load("a.model")


@pytest.mark.parametrize("kind", ["pipe", "device", "link"])
def test_what_is_not_a_file_is_not_even_opened(kind: str, work: Path) -> None:
    [path] = (work / "a.agg" / "tables").glob("*.parquet")
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else work / "a.csv")
    with pytest.raises(StoreError, match=r"is missing|not a file of its own"):
        agglearn.load("a.agg")


# --- memory and room ---------------------------------------------------------------------------------


def test_a_wide_input_is_refused_up_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGGLEARN_MEMORY", "500MB")
    records = {f"c{i:05d}": ["a", "b"] for i in range(3000)} | {"y": [0, 1]}
    with pytest.raises(TooLargeError, match=r"4,498,500 tables, all pairs of 3,000 features, would need"):
        agglearn.aggregate(records, "y")


def test_a_limit_of_the_process_is_a_limit(work: Path) -> None:
    outcome = try_run(["check", "a.agg"], work, memory=150_000_000)
    assert outcome.code in (0, 2)
    assert not outcome.faults


def test_a_report_is_refused_where_its_pictures_would_abort(work: Path) -> None:
    outcome = try_run(["report", "a.model", "-o", "r.html"], work, memory=2_000_000_000)
    assert (outcome.code, outcome.faults) == (2, [])
    assert "raise it with ulimit -v" in outcome.err


def test_without_a_folder_for_kernels_they_go_to_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba finds no place to write, as in an image that is read-only and has no home."""
    real, config = numba.njit, vars(numba.config)
    monkeypatch.setitem(config, "CACHE_DIR", "")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    def picky(cache: bool = False, **options: Any) -> Any:
        if cache and not config["CACHE_DIR"]:
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", picky)
    compiled._temporary_cache.cache_clear()
    with pytest.warns(compiled.NoCacheWarning, match="compiled kernels are kept in"):
        twice = compiled.njit()(lambda x: 2 * x)
    assert twice(3) == 6
    compiled._temporary_cache.cache_clear()
    monkeypatch.setitem(config, "CACHE_DIR", "")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/dev/null")
    with pytest.warns(compiled.NoCacheWarning, match="no folder for compiled kernels"):
        assert compiled.njit()(lambda x: 3 * x)(3) == 9
    compiled._temporary_cache.cache_clear()


@pytest.mark.parametrize("verb", ["check a.agg", "merge a.agg -o new.agg", "sql a.agg --table t"])
def test_a_small_command_loads_nothing_heavy(verb: str, work: Path) -> None:
    code = (
        f"import sys; sys.argv = ['agglearn', *{verb.split()!r}]\n"
        "from agglearn.cli import run\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        "heavy = ('numba', 'pandas', 'scipy', 'sklearn', 'narwhals')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stderr.splitlines()[-1] == "[]"


def test_tables_without_noise_are_made_without_pandas_or_optimisers(work: Path) -> None:
    pq.write_table(pa.table({"x1": [1, 2, 3] * 20, "x2": ["a", "b"] * 30, "y": [0, 1] * 30}), "r.parquet")
    for records in ("a.csv", "r.parquet"):
        code = (
            f"import sys; sys.argv = 'agglearn aggregate {records} --label y -o new.agg'.split()\n"
            "from agglearn.cli import run\n"
            "try:\n    run()\nexcept SystemExit:\n    pass\n"
            "heavy = ('pandas', 'pyarrow.dataset', 'sklearn', 'scipy.optimize')\n"
            "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
        )
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert done.stderr.splitlines()[-1] == "[]", done.stderr


def test_the_command_line_counts_without_scipys_algebra(work: Path) -> None:
    """To look for BLAS numba loads it, for a tenth of a second, and no kernel of ours asks for it."""
    code = (
        "import sys; sys.argv = 'agglearn aggregate a.csv --label y -o new.agg'.split()\n"
        "from agglearn.cli import run\nfrom agglearn.runtime.process import take_over\n"
        "take_over()\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        "asked = ('numba.np.arraymath', 'scipy.linalg')\n"
        "print([m for m in asked if m in sys.modules], file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stderr.splitlines()[-1] == "['numba.np.arraymath']"


# --- ordinary files and odd options ------------------------------------------------------------------


def test_columns_of_every_wrapping_are_read(tmp_path: Path) -> None:
    n = 40
    columns = {
        "id": pa.array([uuid.UUID(int=i % 3).bytes for i in range(n)], pa.uuid()),
        "told": pa.array(['{"a": 1}', '{"a": 2}'] * (n // 2), pa.json_(pa.string())),
        "view": pa.array(["u", "v"] * (n // 2), pa.string_view()),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([10, n], pa.int32()), pa.array(["p", "q"])),
        "y": pa.array([0, 1, 1, 0] * (n // 4)),
    }
    data = agglearn.aggregate(pa.table(columns), "y")
    assert data.schema.cards == (3, 2, 2, 2)
    kept = pa.table({name: columns[name] for name in ("id", "told", "y")})
    pq.write_table(kept, tmp_path / "t.parquet")
    assert agglearn.aggregate(tmp_path / "t.parquet", "y").schema.cards == (3, 2)
    viewed = pa.table({name: columns[name] for name in ("view", "y")})
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), viewed.schema) as writer:
        writer.write_table(viewed)
    models = ("naive_bayes",)
    assert agglearn.compare(tmp_path / "t.arrow", label="y", models=models).models


@pytest.mark.parametrize("name", BOUNDS)
def test_every_option_of_a_number_has_bounds(name: str) -> None:
    least, most = BOUNDS[name]
    check_bounds(**{name: least})
    for value in (most * 10 + 1, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="out of bounds"):
            check_bounds(**{name: value})


@pytest.mark.parametrize(
    "args",
    [
        "fit a.agg -o new.model --threads 1000000000",
        "fit a.agg -o new.model --lambda-theta 1e308",
        "fit a.agg -o new.model --iterations 100000000000000000000",
        "diagnose a.model a.agg --size 1000000000",
        "aggregate a.csv --label y -o new.agg --encoding rot13",
        "aggregate a.csv --label y -o new.agg --split valid=0.2 --seed 100000000000000000000",
        "sample a.model -n 100000000000000000000 -o new.csv",
        f"aggregate a.csv --label y -o new.agg --hash-size {'9' * 400}",
        f"aggregate a.csv --label y -o new.agg --hash-size -{'9' * 400}",
        "aggregate a.csv --label y -o new.agg --random-round 100000000000000000000",
        f"noise a.agg --round-to {'9' * 400} -o new.agg",
        f"compare a.csv --label y --models maxent --chains {'9' * 400}",
        "schema new --label y --categorical x1=a,\udcff -o new.json",
        "fit a.agg -o new.model --checkpoint new.model/run",
        "fit a.agg -o run/new.model --checkpoint run",
        "predict a.model records -o records/scores.csv",
    ],
)
def test_an_option_out_of_bounds_is_one_line(args: str, work: Path, run_cli: Cli) -> None:
    Path("records").mkdir()
    Path("records/a.csv").write_text(RECORDS)
    run = run_cli(*args.split())
    assert run.code == 2
    assert run.err.count("\n") == 1
    assert not list(work.glob("new*"))


# --- streams, signals, outputs -----------------------------------------------------------------------


def test_tables_written_below_the_records_are_not_read_as_records(work: Path, run_cli: Cli) -> None:
    Path("records").mkdir()
    Path("records/a.csv").write_text(RECORDS)
    for _ in range(2):
        run = run_cli("aggregate", "records", "--label", "y", "-o", "records/out.agg", "--json")
        assert (run.code, run.json["rows"]) == (0, 60)


def test_an_output_that_is_replaced_is_said(work: Path, run_cli: Cli) -> None:
    run = run_cli("fit", "a.agg", "-o", "a.model", "--chains", "20", "--iterations", "2")
    assert (run.code, "a.model exists and will be replaced" in run.err) == (0, True)


def test_a_sum_that_is_replaced_is_said(work: Path, run_cli: Cli) -> None:
    run_cli("merge", "a.agg", "-o", "sum.agg")
    assert "sum.agg exists and will be replaced" in run_cli("merge", "a.agg", "-o", "sum.agg").err


@pytest.mark.parametrize(
    "args",
    [
        "export a.model --format json -o a.model/manifest.json",
        "sample a.model -n 5 -o a.model/s.csv",
        "schema new --label y --categorical x1=a,b -o a.agg/manifest.json",
    ],
)
def test_no_output_goes_into_tables_or_a_model(args: str, work: Path, run_cli: Cli) -> None:
    run = run_cli(*args.split())
    assert (run.code, "name another output" in run.err) == (2, True)
    for name in ("a.agg", "a.model"):
        agglearn.load(name)


@pytest.mark.parametrize(
    "args",
    [
        "predict a.model a.csv -o",
        "sample a.model -n 5 -o",
        "export a.model --format json -o",
        "aggregate a.csv --label y -o",
    ],
)
def test_what_is_no_file_is_not_replaced_by_one(args: str, work: Path, run_cli: Cli) -> None:
    """By root `-o /dev/null` put a file in the device's place."""
    os.mkfifo("pipe.csv")
    Path("link.csv").symlink_to("pipe.csv")
    for name in ("pipe.csv", "link.csv"):
        run = run_cli(*args.split(), name)
        assert (run.code, ".csv" in run.err) == (2, True)
        assert stat.S_ISFIFO(os.stat("pipe.csv").st_mode)


@pytest.mark.parametrize("again", ["a.csv", "./a.csv", "link.csv"])
def test_a_file_that_is_named_twice_is_not_counted_twice(again: str, work: Path, run_cli: Cli) -> None:
    Path("link.csv").symlink_to("a.csv")
    run = run_cli("aggregate", "a.csv", again, "--label", "y", "-o", "new.agg")
    assert (run.code, "every record must be counted once" in run.err) == (2, True)


def test_a_pipe_of_records_is_refused_and_not_waited_for(work: Path) -> None:
    os.mkfifo("pipe.csv")
    outcome = try_run(["aggregate", "pipe.csv", "--label", "y", "-o", "new.agg"], work, timeout=30)
    assert (outcome.code, "is a pipe" in outcome.err) == (2, True)


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_an_output_whose_name_is_not_utf8_is_written(json: list[str], work: Path) -> None:
    name = os.fsdecode(b"\xff.agg")
    outcome = try_run(["aggregate", "a.csv", "--label", "y", "-o", name, *json], work)
    assert (outcome.code, outcome.faults) == (0, [])
    assert agglearn.load(work / name).schema.names == ("x1", "x2")


@pytest.mark.parametrize("ending", [b"csv", b"parquet"])
def test_an_input_whose_name_is_not_utf8_is_told_so(ending: bytes, work: Path, run_cli: Cli) -> None:
    name = os.fsdecode(b"\xff." + ending)
    (work / name).write_bytes((work / "a.csv").read_bytes())
    for args in (
        ("aggregate", name, "--label", "y", "-o", "n.agg"),
        ("predict", "a.model", name, "-o", "n.csv"),
    ):
        run = run_cli(*args)
        assert run.code == 2
        assert "a name that is not text in UTF-8" in run.err
        assert "encoding" not in run.err


def test_a_stdout_that_is_closed_or_knows_few_letters_does_no_harm(work: Path) -> None:
    command = [str(Path(sys.executable).with_name("agglearn")), "check", "a.agg"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    shell = f"{command[0]} check a.agg >&-"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_program_ends_when_its_work_is_done_whatever_threads_libraries_keep(work: Path) -> None:
    code = (
        "import atexit, sys, threading, time; sys.argv = ['agglearn', 'check', 'a.agg', '--json']\n"
        "from agglearn.cli import main\n"
        "atexit.register(lambda: print('tidied up', file=sys.stderr, flush=True))\n"
        "threading.Thread(target=time.sleep, args=(100,)).start()\n"
        "main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "tidied up\n")
    assert json.loads(done.stdout)["ok"]


def test_a_request_to_end_is_heeded_and_leaves_nothing(work: Path) -> None:
    program = str(Path(sys.executable).with_name("agglearn"))
    command = [program, "sample", "a.model", "-n", "1000000000", "-o", "s.csv"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    begun = time.monotonic()
    while not list(work.glob(".s.csv*")) and time.monotonic() < begun + 60:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"Traceback" not in err
    assert not list(work.glob(".s.csv*"))
