"""Cases that try to break the command line, each told by a kind, a seed and a number alone.

- *folders*: tables and models that were damaged, with and without the checksums made to fit;
- *inputs*: records and tables of odd bytes, names, types and values;
- *options*: numbers that are too large, too small or none, words where numbers belong;
- *faults*: kills, an end by signal, memory that runs out, streams that are closed.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evidence.fuzz.damage import damage_folder
from evidence.fuzz.inputs import write_input
from evidence.fuzz.trial import Outcome, run

KINDS = ("folders", "inputs", "options", "faults")
MEMORY = 600_000_000  # what a case is told it may take, by AGGLEARN_MEMORY
_SLACK = 500_000_000  # Arrow's pools, a stack for each thread, code that is compiled in the case
_TIMEOUT = 60.0

_SMALL = ("--chains", "20", "--iterations", "3", "--threads", "1")
_ODD = (
    "0", "-1", "1", "2", "1e308", "1e-308", "nan", "inf", "-inf", "1000000000",
    str(10**20), "-" + str(10**20), "9" * 400,
    "", " ", "x", "é", "\udcff", "1,2", "=", "a=b", "0.5", "0.999999", "../x", "/dev/null",
    "/dev/full", ".", "rot13",
    "utf-16", "*", "\t", "auto", "gaussian:0", "gaussian:nan", "laplace:1e308", "rounding-to:5",
    "valid=0.2", "x1*x2",
)  # fmt: skip
_VERBS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "aggregate": (
        ("aggregate", "a.csv", "--label", "y", "-o", "new.agg"),
        (
            "--label", "--positive", "--features", "--exclude", "--tables", "--schema",
            "--categorical", "--numeric",
            "--bins", "--binning", "--edges", "--max-modalities", "--min-modality-count", "--hash-size",
            "--target-encode", "--encoding-share", "--encoding-modalities", "--split", "--seed",
            "--separator",
            "--encoding", "--missing", "-o",
        ),
    ),
    "receive": (
        ("receive", "a-table.csv", "--label", "y", "-o", "new.agg"),
        ("--format", "--label", "--schema", "--count", "--noise", "--floor", "--absent", "--rows",
         "--hash-size",
         "--max-modalities", "--separator", "--encoding", "--missing", "-o"),
    ),
    "check": (("check", "a.agg"), ("--json", "--nothing")),
    "merge": (("merge", "a.agg", "b.agg", "-o", "new.agg"), ("-o",)),
    "sql": (
        ("sql", "a.agg", "--table", "t"),
        ("--table", "--dialect", "--tables", "--hash-size", "--min-count", "-o"),
    ),
    "fit": (
        ("fit", "a.agg", "-o", "new.model", *_SMALL),
        ("--label", "--lambda-theta", "--lambda-mu", "--chains", "--iterations", "--engine", "--start",
         "--gradient",
         "--tolerance", "--valid", "--threads", "--seed", "--checkpoint", "--resume",
         "--checkpoint-every", "-o"),
    ),
    "evaluate": (
        ("evaluate", "a.model", "a.csv", "--threads", "1"),
        ("--threads", "--separator", "--encoding", "--missing"),
    ),
    "predict": (
        ("predict", "a.model", "a.csv", "-o", "new.csv", "--threads", "1"),
        ("--keep", "--threads", "--seed", "--separator", "--encoding", "--missing", "-o"),
    ),
    "sample": (
        ("sample", "a.model", "-n", "30", "-o", "new.csv", "--threads", "1"),
        ("-n", "--threads", "--seed", "-o"),
    ),
    "diagnose": (
        ("diagnose", "a.model", "a.agg", "--threads", "1", "--suggest", "0"),
        ("--check", "--suggest", "--cells", "--size", "--threads", "--seed"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A case that found something: which it was, what was run, and what was wrong."""

    kind: str
    number: int
    command: str
    fault: str


def try_case(kind: str, seed: int, number: int, prepared: Path, work: Path) -> tuple[Outcome, list[Finding]]:
    """Run one case in a fresh copy of what was prepared."""
    rng = random.Random(f"{kind} {seed} {number}")
    folder = work / "case"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared, folder)
    args, outcome, allowed = _KINDS[kind](folder, rng)
    faults = [f for f in outcome.faults if f != f"exit code {outcome.code}" or outcome.code not in allowed]
    if outcome.code not in allowed | {0, 2} and f"exit code {outcome.code}" not in faults:
        faults.append(f"exit code {outcome.code}")
    faults += _left(folder, outcome, kind)
    if kind != "faults" and outcome.memory > _base() + MEMORY + _SLACK:
        faults.append(f"{outcome.memory / 1e6:,.0f} MB of memory")
    command = " ".join(args)[:200]
    last = outcome.err.strip().splitlines()[-1:] or [""]
    return outcome, [Finding(kind, number, command, f"{fault}: {last[0][:200]}") for fault in faults]


def _base() -> int:
    """Bytes that a child has of its parent when it begins."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _left(folder: Path, outcome: Outcome, kind: str) -> list[str]:
    """What a run must not leave behind."""
    if kind == "faults" and outcome.code == 128 + 9:
        return []  # what a kill leaves is swept by the next; the kills have trials of their own
    left = [p for p in folder.rglob(".*") if p.name.endswith(".tmp")]
    if outcome.code == 2 and not left and kind != "faults":
        left = [p for p in folder.glob("new*") if p.suffix in (".agg", ".model", ".csv")]
    return [f"left {left[0].name} behind"] if left else []


_Result = tuple[list[str], Outcome, set[int]]


def _go(args: list[str], folder: Path, **how: object) -> _Result:
    environment = {"AGGLEARN_MEMORY": str(MEMORY)}
    return args, run(args, folder, timeout=_TIMEOUT, environment=environment, **how), set()  # type: ignore[arg-type]


def _folders(folder: Path, rng: random.Random) -> _Result:
    name = rng.choice(["a.agg", "a.model"])
    damage_folder(folder / name, rng)
    if name == "a.agg":
        verb = rng.choice(["check", "check", "merge", "sql", "fit"])
    else:
        verb = rng.choice(["predict", "predict", "evaluate", "sample", "diagnose"])
    return _go(list(_VERBS[verb][0]), folder)


def _inputs(folder: Path, rng: random.Random) -> _Result:
    name = write_input(folder, rng)
    verb = rng.choice(["aggregate", "aggregate", "receive", "predict", "evaluate"])
    args = {
        "aggregate": ["aggregate", name, "--label", "y", "-o", "new.agg"],
        "receive": ["receive", name, "--label", "y", "--count", rng.choice(["x2", "count"]), "-o", "new.agg"],
        "predict": ["predict", "a.model", name, "-o", "new.csv"],
        "evaluate": ["evaluate", "a.model", name],
    }[verb]
    if verb == "aggregate" and rng.random() < 0.3:
        args += ["--schema", "a.agg"]
    return _go(args, folder)


def _options(folder: Path, rng: random.Random) -> _Result:
    plain, names = _VERBS[rng.choice(list(_VERBS))]
    args = list(plain)
    for name in rng.sample(names, k=min(len(names), rng.choice([1, 1, 2]))):
        args += [name, rng.choice(_ODD)]
    return _go(args, folder)


def _faults(folder: Path, rng: random.Random) -> _Result:
    verb = rng.choice(["aggregate", "merge", "receive", "fit", "predict", "sample", "check", "evaluate"])
    args = list(_VERBS[verb][0])
    fault = rng.choice(["kill", "memory", "terminate", "stdout", "full"])
    if fault == "kill":
        done = _go(args, folder, kill_at=rng.randrange(40))
        return done[0], done[1], {128 + 9}
    if fault == "memory":
        return _go(args, folder, memory=rng.choice([50, 100, 200, 400, 800]) * 1_000_000)
    if fault == "terminate":
        done = _go(args, folder, end_after=rng.random() * 0.4)
        return done[0], done[1], {128 + 15}
    if fault == "stdout":
        return _go(args, folder, without_stdout=True)
    return _go(args, folder, stdout="/dev/full")


_KINDS: dict[str, Callable[[Path, random.Random], _Result]] = {
    "folders": _folders,
    "inputs": _inputs,
    "options": _options,
    "faults": _faults,
}
