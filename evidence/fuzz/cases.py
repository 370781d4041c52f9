"""Cases that try to break the command line, each told by a kind, a seed and a number alone.

- *folders*: tables, models, checkpoints and schemas that were damaged, with and without the checksums made
  to fit;
- *inputs*: records and tables of odd bytes, names, types and values;
- *options*: numbers that are too large, too small or none, words where numbers belong;
- *faults*: kills, an end by signal, memory that runs out, streams that are closed.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from agglearn.trust.kept import FOLDER
from evidence.fuzz.commands import COMMANDS, READERS, reading
from evidence.fuzz.damage import damage_document, damage_folder
from evidence.fuzz.inputs import write_input
from evidence.fuzz.trial import SIGNALLED, Outcome, run

KINDS = ("folders", "inputs", "options", "faults")
MEMORY = 600_000_000  # what a case is told it may take, by AGGLEARN_MEMORY
_LEAST = 100_000_000  # libraries that are loaded and code that is compiled in the case itself
_TIMEOUT = 300.0  # of a case that takes a second on a machine with nothing else to do
_FRESH = 50  # one case in so many begins with a new interpreter

_OURS = re.compile(rf"[^/]+\.(agg|model)/(?!\.?{FOLDER}\b)")  # beside what a model keeps of its own intervals
_ODD = (
    "0", "-1", "1", "2", "1e308", "1e-308", "nan", "inf", "-inf", "1000000000",
    str(10**20), "-" + str(10**20), "9" * 400,
    "", " ", "x", "é", "\udcff", "1,2", "=", "a=b", "0.5", "0.999999", "../x", "/dev/null",
    "/dev/full", ".", "rot13",
    "utf-16", "*", "\t", "auto", "gaussian:0", "gaussian:nan", "laplace:1e308", "rounding-to:5",
    "valid=0.2", "x1*x2", "x1", "x1=a,b", "x2=1,2", "x1,x2", "y", "a.csv", "a.agg", "a.model",
    "schema.json", "new.model", "new.agg/x.agg", "new.csv", "2026-01-01", "1d", "json", "all",
    "a.model/manifest.json", "a.agg/new.csv",
)  # fmt: skip


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
    case = Case(folder, rng, fresh=number % _FRESH == 0)
    outcome, allowed = _KINDS[kind](case)
    faults = [f for f in outcome.faults if f != f"exit code {outcome.code}" or outcome.code not in allowed]
    if outcome.code not in allowed | {0, 2} and f"exit code {outcome.code}" not in faults:
        faults.append(f"exit code {outcome.code}")
    faults += _left(case, outcome)
    if outcome.memory > _base() + MEMORY + _LEAST:
        faults.append(f"{outcome.memory / 1e6:,.0f} MB of memory")
    command = " ".join(case.args)[:200]
    last = outcome.err.strip().splitlines()[-1:] or [""]
    return outcome, [Finding(kind, number, command, f"{fault}: {last[0][:200]}") for fault in faults]


def _base() -> int:
    """Bytes that a child has of its parent when it begins."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Case:
    """A folder to run a command in, and what it looked like before."""

    def __init__(self, folder: Path, rng: random.Random, fresh: bool) -> None:
        self.folder, self.rng = folder, rng
        self.args: list[str] = []
        self.before: dict[str, tuple[int, int]] = {}
        self.told = True
        self._fresh = fresh

    def go(self, args: list[str], **how: object) -> Outcome:
        """Run a command."""
        self.args, self.before = args, self.look()
        self.told = "stdout" not in how
        environment = {"AGGLEARN_MEMORY": str(MEMORY)}
        # A kill at a call, and a limit on what is taken beyond the libraries, are put into a child.
        fresh = self._fresh and not {"kill_at", "memory"} & set(how)
        return run(
            args,
            self.folder,
            timeout=_TIMEOUT,
            environment=environment,
            fresh=fresh,
            **how,  # type: ignore[arg-type]
        )

    def look(self) -> dict[str, tuple[int, int]]:
        """All files, each with its size and time."""
        found = {}
        for path in self.folder.rglob("*"):
            told = path.lstat()
            found[str(path.relative_to(self.folder))] = (told.st_size, told.st_mtime_ns)
        return found


def _left(case: Case, outcome: Outcome) -> list[str]:
    """What a run must not leave behind: a part of an output, and after a mistake anything at all."""
    if outcome.code == SIGNALLED + 9:
        return []  # what a kill leaves is swept by the next; the kills have trials of their own
    after = case.look()
    new = sorted(set(after) - set(case.before))
    left = [name for name in new if name.endswith(".tmp")]
    faults = [f"left {left[0]} behind"] if left else []
    if outcome.code == 2 and not left and case.told:  # what could not be printed may have been done
        # A checkpoint is there for whoever fails later, and a folder's time tells of a file now gone.
        other = [n for n in case.before if after.get(n) != case.before[n] and not (case.folder / n).is_dir()]
        kept = ("--checkpoint", "--resume")
        touched = [] if any(name in case.args for name in kept) else [*new, *other]
        faults += [f"failed, and touched {touched[0]}"] if touched else []
    # Tables and models are written whole, as the output that was named, or not at all.
    named = {value for name, value in pairwise(case.args) if name == "-o"}
    changed = [n for n in sorted({*case.before, *after}) if after.get(n) != case.before.get(n)]
    ours = {n.partition("/")[0] for n in case.before if _OURS.match(n)} - named
    inside = [n for n in changed if _OURS.match(n) and n.partition("/")[0] in ours]
    faults += [f"changed {inside[0]}"] if inside else []
    outside = [path.name for path in case.folder.parent.iterdir() if path != case.folder]
    return faults + ([f"left {outside[0]} outside"] if outside else [])


_Result = tuple[Outcome, set[int]]


def _folders(case: Case) -> _Result:
    what = case.rng.choice(list(READERS))
    damage = damage_document if what == "schema.json" else damage_folder
    damage(case.folder / what, case.rng)
    return case.go(reading(case.rng.choice(READERS[what]), what)), set()


def _inputs(case: Case) -> _Result:
    rng = case.rng
    name = write_input(case.folder, rng)
    verb = rng.choice(["aggregate", "aggregate", "receive", "predict", "evaluate", "fit", "compare"])
    args = {
        "aggregate": ["aggregate", name, "--label", "y", "-o", "new.agg"],
        "receive": ["receive", name, "--label", "y", "--count", rng.choice(["x2", "count"]), "-o", "new.agg"],
        "predict": ["predict", "a.model", name, "-o", "new.csv"],
        "evaluate": ["evaluate", "a.model", name],
        "fit": [*COMMANDS["fit"].args, "--records", name],
        "compare": ["compare", name, *COMMANDS["compare"].args[2:]],
    }[verb]
    if verb == "aggregate" and rng.random() < 0.3:
        args += ["--schema", "a.agg"]
    return case.go(args), set()


def _options(case: Case) -> _Result:
    rng = case.rng
    command = COMMANDS[rng.choice(list(COMMANDS))]
    args = list(command.args)
    for name in rng.sample(command.options, k=min(len(command.options), rng.choice([1, 1, 2, 3]))):
        args += [name, rng.choice(_ODD)]
    if rng.random() < 0.3:
        args.append(rng.choice(command.flags))
    return case.go(args), set()


def _faults(case: Case) -> _Result:
    rng = case.rng
    args = list(COMMANDS[rng.choice(list(COMMANDS))].args)
    fault = rng.choice(["kill", "memory", "terminate", "stdout", "full"])
    if fault == "kill":
        return case.go(args, kill_at=rng.randrange(40)), {SIGNALLED + 9}
    if fault == "memory":
        return case.go(args, memory=rng.choice([50, 100, 200, 400, 800]) * 1_000_000), set()
    if fault == "terminate":
        return case.go(args, end_after=rng.random() * 0.4), {SIGNALLED + 15}
    if fault == "stdout":
        return case.go(args, without_stdout=True), set()
    return case.go(args, stdout="/dev/full"), set()


_KINDS: dict[str, Callable[[Case], _Result]] = {
    "folders": _folders,
    "inputs": _inputs,
    "options": _options,
    "faults": _faults,
}
