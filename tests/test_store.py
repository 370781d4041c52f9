"""Files on disk: exact round trips, no half-written folders, and plain words about damage."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from agglearn.errors import StoreError
from agglearn.runtime.files import write_manifest, write_text
from agglearn.schema.features import Binned, Categorical, Cut, Encoded
from agglearn.schema.schema import Label, Schema
from agglearn.tables import format as tables_format
from agglearn.tables.cells import HashedCells
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load, load_schema, save, save_schema
from agglearn.tables.noise import Noise
from agglearn.tables.table import Table

Make = Callable[..., AggregatedData]
SOURCE = Path(tables_format.__file__).parents[1]


def odd_data(seed: int = 0) -> AggregatedData:
    """Tables with everything that is hard to write: names, kinds, noise, buckets, gaps."""
    rng = np.random.default_rng(seed)
    features = (
        Categorical(name="count", values=("", "a/b", 'q"', "(missing)", "é\n"), missing=True, other=True),
        Categorical(name="bucket", values=("1", "2"), value_type="integer", missing=False),
        Binned(name="select *", cuts=(Cut(0.1), Cut(0.1, after=True)), low=-1, high=1, missing=True),
        Encoded(name="../é", groups=("never seen", "g"), values=("x",), codes=(1,), missing=False),
    )
    schema = Schema(features, (Label("count_", ">50K"), Label("SUM")))
    tables: dict[tuple[str, ...], Table] = {}

    def add(*scope: str, **options: Any) -> None:
        shape = tuple(schema.feature(n).n_modalities for n in scope)
        shape = options.pop("shape", shape)
        counts = rng.integers(0, 3, shape)
        numbers = np.stack([counts, np.minimum(counts, 1), counts])
        if "noise" in options or "measured" in options:
            numbers = numbers + rng.normal(size=numbers.shape)
        if "measured" in options:
            options["measured"] = rng.random(shape) < 0.5
            numbers *= options["measured"]
        tables[scope] = Table(scope, numbers[0], numbers[1:], **options)

    add("count")
    add("bucket", "select *", unknown=np.array([2**53 + 1, 1, 0]))
    add("count", "bucket", "select *", "../é", cells=HashedCells(17), shape=(17,))
    add("count", "select *", noise=Noise("gaussian", 1 / 3), unknown=np.array([0.1, -2.5, 1e-300]))
    add("bucket", "../é", noise=Noise("laplace", 12345.678901234567), measured=True)
    add("select *", "../é", measured=True)
    return AggregatedData(
        schema=schema,
        tables=tables,
        rows=2**53 + 1,
        positives=(5, 0.1),
        absent="suppressed",
        floor=10.5,
        split={"part": "valid", "seed": 3, "shares": {"valid": 0.2}},
    )


# --- round trips -----------------------------------------------------------------------------------


def test_what_is_written_is_read_again_exactly(tmp_path: Path) -> None:
    data = odd_data()
    save(data, tmp_path / "odd.agg")
    back = load(tmp_path / "odd.agg")
    assert back.equals(data)
    assert back.split == data.split
    assert list(back.tables) == list(data.tables)
    for scope, table in data.tables.items():
        assert back.tables[scope].counts.dtype == table.counts.dtype
        assert back.tables[scope].sums.shape == table.sums.shape


def test_every_table_is_a_parquet_file_that_names_its_cells(tmp_path: Path, random_tables: Make) -> None:
    data = random_tables(cards=(3, 4), labels=("count", "y"))
    save(data, tmp_path / "x.agg")
    (path,) = (tmp_path / "x.agg" / "tables").iterdir()
    rows = pq.read_table(path)
    assert rows.column_names == ["f0", "f1", "count_", "count", "y"]
    table = data.tables["f0", "f1"]
    for row in rows.to_pylist():
        cell = int(row["f0"].removeprefix("v")), int(row["f1"].removeprefix("v"))
        assert [row["count_"], row["count"], row["y"]] == [table.counts[cell], *table.sums[:, *cell]]
    assert sum(rows["count_"].to_pylist()) == data.rows


def test_empty_cells_take_no_room(tmp_path: Path, random_tables: Make) -> None:
    data = random_tables(cards=(100, 100), rows=10)
    save(data, tmp_path / "x.agg")
    (path,) = (tmp_path / "x.agg" / "tables").iterdir()
    assert pq.read_metadata(path).num_rows <= 10
    assert load(tmp_path / "x.agg").equals(data)


def test_a_schema_is_read_from_a_file_or_from_tables(tmp_path: Path) -> None:
    data = odd_data()
    save(data, tmp_path / "odd.agg")
    save_schema(data.schema, tmp_path / "schema.json")
    assert load_schema(tmp_path / "odd.agg") == data.schema
    assert load_schema(tmp_path / "schema.json") == data.schema


def test_writing_again_replaces_what_was_there(tmp_path: Path, random_tables: Make) -> None:
    target = tmp_path / "x.agg"
    save(random_tables(1, cards=(2, 2, 2)), target)
    save(random_tables(2, cards=(2, 2)), target)
    assert load(target).equals(random_tables(2, cards=(2, 2)))
    assert [p.name for p in tmp_path.iterdir()] == ["x.agg"]
    assert len(list((target / "tables").iterdir())) == 1


@pytest.mark.parametrize("name", ["[x]*.agg", "two words.agg", "é'\".agg", ".hidden.agg", "x.agg.1.tmp.agg"])
def test_a_folder_may_have_any_name(tmp_path: Path, random_tables: Make, name: str) -> None:
    leftover = tmp_path / f".{name}.{dead_pid()}.tmp"
    leftover.mkdir()
    for seed in (1, 2):
        save(random_tables(seed), tmp_path / name)
        assert load(tmp_path / name).equals(random_tables(seed))
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_folders_on_the_way_are_made(tmp_path: Path, random_tables: Make) -> None:
    save(random_tables(), tmp_path / "a" / "b" / "x.agg")
    assert load(tmp_path / "a" / "b" / "x.agg").rows == 500


def test_a_link_is_written_through(tmp_path: Path, random_tables: Make) -> None:
    link = tmp_path / "link.agg"
    link.symlink_to(tmp_path / "real.agg")
    for seed in (1, 2):
        save(random_tables(seed), link)
        assert link.is_symlink()
        assert load(tmp_path / "real.agg").equals(random_tables(seed))
    assert {p.name for p in tmp_path.iterdir()} == {"link.agg", "real.agg"}


# --- nothing half-written --------------------------------------------------------------------------


def dead_pid() -> int:
    """The number of a process that is gone."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_a_write_that_fails_leaves_the_old_and_nothing_else(
    tmp_path: Path, random_tables: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x.agg"
    save(random_tables(1), target)

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables_format, "write_manifest", full)
    with pytest.raises(StoreError, match=r"x\.agg: cannot write there \(No space left on device\)"):
        save(random_tables(2), target)
    assert load(target).equals(random_tables(1))
    assert [p.name for p in tmp_path.iterdir()] == ["x.agg"]


_WRITER = """
import os, signal, sys, time
import numpy as np
from agglearn.runtime.files import write_manifest, write_text
from agglearn.tables.format import load, load_schema, save, save_schema
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Table

names = [f"f{i}" for i in range(4)]
features = tuple(Categorical(name=n, values=("0", "1"), missing=False) for n in names)
schema = Schema(features, (Label("y"),))

def data(version):
    counts = np.full((2, 2), version)
    tables = {(a, b): Table((a, b), counts, counts[None]) for a in names for b in names if a < b}
    return AggregatedData(schema, tables, 4 * version, (4 * version,))

target, version, found_before = sys.argv[1], 0, False
save(data(version), os.path.dirname(target) + "/../warm")
for delay in map(float, sys.argv[2:]):
    said, says = os.pipe()
    writer = os.fork()
    if not writer:
        while True:
            version += 1
            save(data(version), target)
            os.write(says, b"%d " % version)
    time.sleep(delay)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    os.close(says)
    words = os.read(said, 1 << 20).split()
    version = int(words[-1]) if words else version
    found = None
    if words or found_before:
        tables = load(target)  # raises unless it is whole
        found = int(tables.rows) // 4
        assert all((t.counts == found).all() for t in tables.tables.values())
        found_before = True
    print(version, found)
    version += 1
sys.stdout.flush()
os._exit(0)  # Arrow's threads do not survive a fork, and leaving by the front door may wait for them
"""


def test_a_writer_killed_at_any_moment_leaves_the_old_tables_or_the_new_ones(
    tmp_path: Path, random_tables: Make
) -> None:
    target = tmp_path / "here" / "x.agg"
    draw = random.Random(0)
    delays = [f"{draw.uniform(0, 0.15):.4f}" for _ in range(20)]
    command = [sys.executable, "-c", _WRITER, str(target), *delays]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert killed.returncode == 0, killed.stderr
    lines = [line.split() for line in killed.stdout.splitlines()]
    assert len(lines) == 20
    earlier = "None"
    for last, found in lines:
        # The last that was finished, the one after it, or what an earlier run left; none before the first.
        assert found == earlier or int(found) - int(last) in (0, 1)
        earlier = found
    assert any(found != "None" for _, found in lines)
    save(random_tables(), target)
    assert [p.name for p in target.parent.iterdir()] == ["x.agg"], "the next write sweeps leftovers"
    assert load(target).equals(random_tables())


def test_leftovers_of_a_process_that_had_our_number_are_swept(tmp_path: Path, random_tables: Make) -> None:
    # In a container every run may have the same process number.
    (tmp_path / f".x.agg.{os.getpid()}.tmp" / "tables").mkdir(parents=True)
    save(random_tables(), tmp_path / "x.agg")
    assert [p.name for p in tmp_path.iterdir()] == ["x.agg"]


def test_what_another_living_process_writes_is_left_alone(tmp_path: Path, random_tables: Make) -> None:
    other = tmp_path / f".x.agg.{os.getppid()}.tmp"
    other.mkdir()
    save(random_tables(), tmp_path / "x.agg")
    assert other.exists()


def test_sweeping_leftovers_follows_no_link(tmp_path: Path, random_tables: Make) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (tmp_path / f".x.agg.{dead_pid()}.tmp").symlink_to(precious)
    save(random_tables(), tmp_path / "x.agg")
    assert (precious / "file").exists()


def test_nothing_foreign_is_overwritten(tmp_path: Path, random_tables: Make) -> None:
    empty, other, file = tmp_path / "empty.agg", tmp_path / "other.agg", tmp_path / "file.agg"
    empty.mkdir()
    other.mkdir()
    (other / "manifest.json").write_text('{"format": "someone else"}')
    file.write_text("precious")
    link = tmp_path / "link.agg"
    link.symlink_to(other)
    before = sorted(p.name for p in tmp_path.rglob("*"))
    for target in (empty, other, file, link):
        real = target.resolve().name
        with pytest.raises(StoreError, match=f"{real} exists and is not ours to overwrite"):
            save(random_tables(), target)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before
    assert file.read_text() == "precious"


@pytest.mark.parametrize("place", ["file/x.agg", "/proc/x.agg", "/dev/null/x.agg", "y" * 300 + ".agg"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, random_tables: Make, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"\.agg: cannot write there \([A-Z]"):
        save(random_tables(), tmp_path / place)
    with pytest.raises(StoreError, match=r"\.agg: cannot write there \([A-Z]"):
        write_text(tmp_path / place, "x")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


# --- damage ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, random_tables: Make) -> Path:
    save(random_tables(), tmp_path / "x.agg")
    return tmp_path / "x.agg"


def first_table(folder: Path) -> Path:
    return min((folder / "tables").iterdir())


def truncate(folder: Path) -> None:
    path = first_table(folder)
    path.write_bytes(path.read_bytes()[:-7])


def flip_a_bit(folder: Path) -> None:
    path = first_table(folder)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def swap_tables(folder: Path) -> None:
    a, b, *_ = sorted((folder / "tables").iterdir())
    a.rename(folder / "t")
    b.rename(a)
    (folder / "t").rename(b)


def edit(change: Callable[[dict[str, Any]], object], *, sign: bool = False) -> Callable[[Path], None]:
    """Change the manifest, and perhaps its checksum with it, as someone who means it would."""

    def damage(folder: Path) -> None:
        path = folder / "manifest.json"
        document = json.loads(path.read_text())
        change(document)
        if sign:
            write_manifest(folder, {k: v for k, v in document.items() if k != "sha256"})
        else:
            path.write_text(json.dumps(document))

    return damage


def replace_manifest(text: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "manifest.json").write_bytes(text)


def put(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Put something else in the place of the first table."""

    def damage(folder: Path) -> None:
        path = first_table(folder)
        path.unlink()
        make(path)

    return damage


def become_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("f0,f1,count\n")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated table": (truncate, r"0000-f0-f1\.parquet is damaged or was changed"),
    "flipped bit": (flip_a_bit, r"0000-f0-f1\.parquet is damaged or was changed"),
    "swapped tables": (swap_tables, r"0000-f0-f1\.parquet is damaged or was changed"),
    "missing table": (lambda f: first_table(f).unlink(), r"0000-f0-f1\.parquet is missing"),
    "table is a folder": (
        put(lambda path: path.mkdir()),
        r"0000-f0-f1\.parquet is missing",
    ),
    "table is a link elsewhere": (
        put(lambda path: path.symlink_to("/etc/passwd")),
        r"0000-f0-f1\.parquet is damaged or was changed",
    ),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), r"x\.agg is not a folder of agglearn\.tables"),
    "manifest is empty": (replace_manifest(b""), r"manifest\.json is not JSON"),
    "manifest is cut": (replace_manifest(b'{"format": "aggl'), r"manifest\.json is not JSON"),
    "manifest is binary": (replace_manifest(b"\xff\xfe\x00"), r"manifest\.json is not JSON"),
    "manifest is a list": (replace_manifest(b"[]"), r"manifest\.json is not a JSON object"),
    "manifest is deep": (replace_manifest(b"[" * 100_000), r"manifest\.json is not JSON"),
    "rows edited": (edit(lambda d: d.update(rows=1)), r"manifest\.json was changed"),
    "table dropped": (edit(lambda d: d["tables"].pop()), r"manifest\.json was changed"),
    "newer version": (edit(lambda d: d.update(version=99)), r"x\.agg: format version 99, .* reads 1"),
    "no version": (edit(lambda d: d.pop("version")), r"x\.agg: format version None"),
    "another format": (
        edit(lambda d: d.update(format="agglearn.model")),
        r"x\.agg: expected agglearn\.tables, found 'agglearn\.model'",
    ),
    "foreign folder": (
        replace_manifest(b'{"name": "app"}'),
        r"x\.agg: expected agglearn\.tables, found None",
    ),
    "a file": (become_a_file, r"x\.agg is not a folder"),
    "gone": (shutil.rmtree, r"x\.agg does not exist"),
    "signed, no tables": (edit(lambda d: d.pop("tables"), sign=True), r"x\.agg.*damaged"),
    "signed, tables are text": (edit(lambda d: d.update(tables="abc"), sign=True), r"x\.agg.*damaged"),
    "signed, no schema": (edit(lambda d: d.update(schema={}), sign=True), r"x\.agg.*not a schema"),
    "signed, other features": (
        edit(lambda d: d["tables"][0].update(features=["f0", "f2"]), sign=True),
        r"x\.agg.*damaged",
    ),
    "signed, unknown feature": (
        edit(lambda d: d["tables"][0].update(features=["f0", "zzz"]), sign=True),
        r"x\.agg.*'zzz'",
    ),
    "signed, no modality": (
        edit(lambda d: d["schema"]["features"][0]["values"].pop(), sign=True),
        r"x\.agg.*damaged",
    ),
    "signed, odd absent": (edit(lambda d: d.update(absent="maybe"), sign=True), r"x\.agg.*'maybe'"),
    "signed, odd noise": (
        edit(lambda d: d["tables"][0].update(noise="cauchy:1"), sign=True),
        r"x\.agg.*cauchy",
    ),
    "signed, path outside": (
        edit(lambda d: d["tables"][0].update(file="../../../../etc/passwd"), sign=True),
        r"x\.agg.*(damaged|missing)",
    ),
    "signed, too many labels": (
        edit(lambda d: d["schema"]["labels"].append({"name": "z"}), sign=True),
        r"x\.agg.*",
    ),
    "signed, negative buckets": (
        edit(lambda d: d["tables"][0].update(buckets=-1), sign=True),
        r"x\.agg.*damaged",
    ),
    "signed, rows are text": (edit(lambda d: d.update(rows="many"), sign=True), r"x\.agg.*damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told_in_one_line_that_names_the_place(folder: Path, damage: str) -> None:
    break_it, message = DAMAGES[damage]
    break_it(folder)
    with pytest.raises(StoreError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("damage", ["a file", "gone", "no manifest", "newer version", "rows edited"])
def test_damage_is_one_line_on_the_command_line_too(folder: Path, run_cli: Any, damage: str) -> None:
    break_it, message = DAMAGES[damage]
    break_it(folder)
    run = run_cli("check", folder)
    assert run.code == 2
    assert re.fullmatch(f"agglearn: .*{message}.*\n", run.err)
    assert run.out == ""


def test_loading_never_runs_code() -> None:
    unsafe = re.compile(r"\b(pickle|marshal|shelve|joblib|dill|eval|exec)\b|allow_pickle|np\.load\b")
    for path in SOURCE.rglob("*.py"):
        code = re.sub(r'""".*?"""|#[^\n]*', "", path.read_text(), flags=re.DOTALL)
        assert not unsafe.search(code), f"{path} uses {unsafe.search(code)}"


def test_the_folder_survives_a_copy(folder: Path, tmp_path: Path, random_tables: Make) -> None:
    shutil.copytree(folder, tmp_path / "copy.agg")
    assert load(tmp_path / "copy.agg").equals(random_tables())


def test_a_writer_killed_between_its_two_renames_leaves_the_old_tables(
    tmp_path: Path, random_tables: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x.agg"
    save(random_tables(), target)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    target.rename(tmp_path / f".x.agg.old.{dead.pid}.tmp")  # where it steps aside for the new one
    (tmp_path / f".x.agg.{dead.pid}.tmp").mkdir()  # which was whole, but did not get its place
    assert load(target).equals(random_tables())
    target.rename(tmp_path / f".x.agg.old.{dead.pid}.tmp")
    save(random_tables(seed=5), target)
    assert load(target).equals(random_tables(seed=5))
    assert [p.name for p in tmp_path.iterdir()] == ["x.agg"]
