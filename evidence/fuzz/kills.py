"""Every verb that writes, killed at every call it makes to the file system, and at moments after them.

Each verb writes over a good output of its own kind. Wherever it is killed, what can be read under that name
afterwards is the old one or the new one, whole; the same command then succeeds, and leaves nothing beside it.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evidence.fuzz.trial import run

_KILLED = (128 + 9, 128 + 14)  # at a call, or by an alarm that no one handles
_SOON = 0.005  # seconds after a call within which the next is usually made


@dataclass(frozen=True)
class Verb:
    """A verb that writes: what makes its first output, and the command that writes over it."""

    name: str
    first: tuple[str, ...]
    again: tuple[str, ...]
    target: str


_FITTED = "--chains 20 --iterations 2 --threads 1 --tolerance 0"
_FIT = tuple(_FITTED.split())
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
    commands = (
        "aggregate a.csv --label y -o a.agg",
        "aggregate b.csv --label y --schema a.agg -o b.agg",
        "merge a.agg b.agg -o both.agg",
        "aggregate a.csv --label y --schema a.agg --hash-size 5 -o hashed.agg",
        "aggregate a.csv --label y --schema a.agg --period 2026-01-01 -o first.agg",
        "aggregate b.csv --label y --schema a.agg --period 2026-01-02 -o second.agg",
        "noise b.agg --epsilon 1 --delta 1e-6 --assume-public-schema --processes 1 -o private.agg",
        "schema edit a.agg -o schema.json",
        f"fit a.agg -o a.model {_FITTED}",
        f"fit a.agg -o a.model {_FITTED} --iterations 3 --checkpoint begun --checkpoint-every 0",
        # Intervals ask for a model whose predictions were looked at while it was trained.
        f"fit a.agg -o looked-at.model {_FITTED} --iterations 20",
    )
    for command in commands:
        outcome = run(command.split(), folder)
        assert outcome.code == 0, (command, outcome)


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
    trial = _Trial(prepared, verb, work, without_exchange)
    call = 0
    while (faults := trial.kill(call)) is not None:
        yield faults
        call += every


def moments(prepared: Path, verb: Verb, work: Path, *, kills: int, rng: random.Random) -> Iterator[list[str]]:
    """Kill a verb so many times at moments that follow one of its calls, whatever it is then doing."""
    trial = _Trial(prepared, verb, work, without_exchange=False)
    calls = 1
    while trial.runs_past(calls):
        calls *= 2
    done = 0
    while done < kills:
        faults = trial.kill(rng.randrange(calls), after=rng.random() * _SOON)
        if faults is not None:
            done += 1
            yield faults


class _Trial:
    """A verb, with what its old and its new output are."""

    def __init__(self, prepared: Path, verb: Verb, work: Path, without_exchange: bool) -> None:
        self.prepared, self.verb, self.work, self.without_exchange = prepared, verb, work, without_exchange
        self.old, self.new = _fingerprints(prepared, verb, work)

    def runs_past(self, call: int) -> bool:
        """Whether it makes more calls than that."""
        return self._run(call, 0.0)[1] in _KILLED

    def kill(self, call: int, after: float = 0.0) -> list[str] | None:
        """Kill it at a call, or some seconds after it; what was wrong, or None where it had ended."""
        folder, code, found = self._run(call, after)
        if code not in _KILLED:
            assert not found, found
            return None
        when = f"call {call}" + (f" and {1000 * after:.1f} ms" if after else "")
        return _judge(folder, self.verb, {self.old, self.new}, self.new, when, self.without_exchange)

    def _run(self, call: int, after: float) -> tuple[Path, int, list[str]]:
        folder = _begin(self.prepared, self.verb, self.work)
        without = self.without_exchange
        outcome = run(self.verb.again, folder, kill_at=call, kill_after=after, without_exchange=without)
        return folder, outcome.code, outcome.faults


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
    folder: Path, verb: Verb, either: set[str], new: str, when: str, without_exchange: bool
) -> list[str]:
    faults = []
    if verb.target.endswith((".agg", ".model")):
        from agglearn.errors import AgglearnError
        from agglearn.opening import load

        try:
            load(folder / verb.target)
        except AgglearnError as error:
            faults.append(f"{verb.name}, {when}: {error}")
    if not (folder / verb.target).exists() or fingerprint(folder / verb.target) not in either:
        faults.append(f"{verb.name}, {when}: neither the old nor the new output")
    outcome = run(verb.again, folder, without_exchange=without_exchange)
    faults += [f"{verb.name} after {when}: {fault}" for fault in outcome.faults]
    if outcome.code != 0 or fingerprint(folder / verb.target) != new:
        faults.append(f"{verb.name} after {when}: not the new output ({outcome.err.strip()})")
    left = [p for p in folder.rglob(".*") if p.name.endswith(".tmp")]
    if left:
        faults.append(f"{verb.name} after {when}: left {left[0].name}")
    return faults
