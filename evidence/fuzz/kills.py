"""Every verb that writes, killed at every call it makes to the file system.

Each verb writes over a good output of its own kind. Wherever it is killed, what can be read under that name
afterwards is the old one or the new one, whole; the same command then succeeds, and leaves nothing beside it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evidence.fuzz.trial import run

_KILLED = 128 + 9


@dataclass(frozen=True)
class Verb:
    """A verb that writes: what makes its first output, and the command that writes over it."""

    name: str
    first: tuple[str, ...]
    again: tuple[str, ...]
    target: str


_FIT = ("--chains", "20", "--iterations", "2", "--threads", "1", "--tolerance", "0")
_CHECKPOINT = ("--checkpoint-every", "0")

VERBS = (
    Verb(
        "aggregate",
        ("aggregate", "a.csv", "--label", "y", "-o", "t.agg"),
        ("aggregate", "b.csv", "--label", "y", "-o", "t.agg"),
        "t.agg",
    ),
    Verb("merge", ("merge", "a.agg", "-o", "t.agg"), ("merge", "a.agg", "b.agg", "-o", "t.agg"), "t.agg"),
    Verb(
        "receive",
        ("receive", "a-table.csv", "--label", "y", "-o", "t.agg"),
        ("receive", "b-table.csv", "--label", "y", "-o", "t.agg"),
        "t.agg",
    ),
    Verb(
        "fit", ("fit", "a.agg", "-o", "t.model", *_FIT), ("fit", "b.agg", "-o", "t.model", *_FIT), "t.model"
    ),
    Verb(
        "checkpoint",
        ("fit", "a.agg", "-o", "t.model", *_FIT, *_CHECKPOINT, "--resume", "run"),
        ("fit", "a.agg", "-o", "t.model", *_FIT, *_CHECKPOINT, "--resume", "run"),
        "t.model",
    ),
    Verb(
        "predict",
        ("predict", "a.model", "a.csv", "-o", "t.parquet"),
        ("predict", "a.model", "b.csv", "-o", "t.parquet"),
        "t.parquet",
    ),
    Verb(
        "intervals",
        ("predict", "a.model", "a.csv", "-o", "t.parquet"),
        ("predict", "looked-at.model", "b.csv", "--interval", "0.9", "--threads", "1", "-o", "t.parquet"),
        "t.parquet",
    ),
    Verb(
        "sample",
        ("sample", "a.model", "-n", "50", "-o", "t.csv"),
        ("sample", "a.model", "-n", "60", "-o", "t.csv"),
        "t.csv",
    ),
)


def prepare(folder: Path) -> None:
    """Records, tables and a model for the verbs to work on."""
    for name, shift in (("a", 0), ("b", 1)):
        rows = [f"{i % 3},{(i + shift) % 4},{(i // 2 + shift) % 2}" for i in range(60)]
        (folder / f"{name}.csv").write_text("x1,x2,y\n" + "\n".join(rows) + "\n")
        (folder / f"{name}-table.csv").write_text(f"x1,count,y\nu,{10 + shift},4\nv,20,5\n")
    made = run(["aggregate", "a.csv", "--label", "y", "-o", "a.agg"], folder)
    again = run(["aggregate", "b.csv", "--label", "y", "--schema", "a.agg", "-o", "b.agg"], folder)
    fitted = run(["fit", "a.agg", "-o", "a.model", *_FIT], folder)
    # Intervals ask for a model whose predictions were looked at while it was trained.
    longer = run(["fit", "a.agg", "-o", "looked-at.model", *_FIT, "--iterations", "20"], folder)
    done = (made, again, fitted, longer)
    assert [one.code for one in done] == [0] * len(done), done


def fingerprint(path: Path) -> str:
    """Of a file, or of all files in a folder but those that tell times."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and file.name != "history.json":
            digest.update(file.relative_to(path.parent).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()


def trials(
    prepared: Path, verb: Verb, work: Path, *, without_exchange: bool = False, every: int = 1
) -> Iterator[list[str]]:
    """Kill a verb at one call after the other, and give what was wrong each time, until it ends unharmed."""
    old, new = _fingerprints(prepared, verb, work)
    call = 0
    while True:
        folder = _begin(prepared, verb, work)
        outcome = run(verb.again, folder, kill_at=call, without_exchange=without_exchange)
        if outcome.code != _KILLED:
            yield outcome.faults
            return
        yield _judge(folder, verb, {old, new}, new, call, without_exchange)
        call += every


def _fingerprints(prepared: Path, verb: Verb, work: Path) -> tuple[str, str]:
    folder = _begin(prepared, verb, work)
    old = fingerprint(folder / verb.target)
    outcome = run(verb.again, folder)
    assert outcome.code == 0, outcome
    return old, fingerprint(folder / verb.target)


def _begin(prepared: Path, verb: Verb, work: Path) -> Path:
    """A folder in which the first output stands."""
    kept = work / f"{verb.name}-first"
    if not kept.exists():
        shutil.copytree(prepared, kept)
        outcome = run(verb.first, kept)
        assert outcome.code == 0, outcome
    folder = work / "now"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder)
    if verb.name == "checkpoint":  # the run begins anew, and goes on from where it is killed
        shutil.rmtree(folder / "run")
    return folder


def _judge(
    folder: Path, verb: Verb, either: set[str], new: str, call: int, without_exchange: bool
) -> list[str]:
    faults = []
    if verb.target.endswith((".agg", ".model")):
        from agglearn.errors import AgglearnError
        from agglearn.opening import load

        try:
            load(folder / verb.target)
        except AgglearnError as error:
            faults.append(f"{verb.name}, call {call}: {error}")
    if not (folder / verb.target).exists() or fingerprint(folder / verb.target) not in either:
        faults.append(f"{verb.name}, call {call}: neither the old nor the new output")
    outcome = run(verb.again, folder, without_exchange=without_exchange)
    faults += [f"{verb.name} after call {call}: {fault}" for fault in outcome.faults]
    if outcome.code != 0 or fingerprint(folder / verb.target) != new:
        faults.append(f"{verb.name} after call {call}: not the new output ({outcome.err.strip()})")
    left = [p for p in folder.rglob(".*") if p.name.endswith(".tmp")]
    if left:
        faults.append(f"{verb.name} after call {call}: left {left[0].name}")
    return faults
