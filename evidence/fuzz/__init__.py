"""Every kind of case is drawn by a seed and a number, so that each can be run again. A case runs the command
line in a process of its own (one in fifty a new interpreter, the others forked from one that has loaded its
libraries), in a fresh folder, told by `AGGLEARN_MEMORY` that it may take 600 MB. It has failed if it prints a
traceback, ends with another code than 0 or 2 (or the signal's, where one was sent), leaves something
half-written, touches any file though it exits with 2, says nothing about a mistake, takes more memory than it
was told, or does not end. Where something was found, the 250 cases around it were run again once it was
mended. What was run:

- *folders*: tables, models, checkpoints and schemas with a byte, a file or a word changed, most of them with
  their checksums made to fit;
- *inputs*: records and tables of odd bytes, names, types and values, in text, Parquet and Arrow;
- *options*: one to three options of any verb with a value no one should give;
- *faults*: a kill, an end by signal, memory that runs out, a stdout that is closed or full.

Verbs that write are killed at every call to the file system that they make, with folders exchanged in one
step and without, and at moments between two calls. Afterwards the old or the new output must be there, whole;
the same command must then succeed and leave nothing beside it.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evidence.fuzz.cases import KINDS, try_case
from evidence.fuzz.kills import VERBS, moments, prepare, trials
from evidence.page import table
from evidence.runner import Cell, Value
from evidence.subject import Subject

TITLE = "What was tried, and what was found"

_TEXT = """
# Hard to break

What is promised:

- A mistake is one line on stderr and exit code 2. No input, folder or option gives a traceback.
- An output is there whole or not at all, and an old one stays until the new one is whole. Whoever is killed
  at any moment loses nothing but the run; the same command then succeeds and sweeps up what the killed one
  left. Whoever is asked to end (SIGTERM) sweeps up itself.
- Files that were damaged are refused, by their checksums; files that were forged, checksums and all, are
  looked at where they are read: types, finite numbers, shapes, names within the folder. Reading runs no
  code.
- What would not fit in the memory allowed (`AGGLEARN_MEMORY`, or half of what can be had) is refused before
  it is taken.
- Every option has bounds, and says them.
- A number is one value however it is written, and true and false are answers whichever way they are spelt.

What is not promised: that tables made by someone who means harm are true (a forged count that is a
plausible number is believed); that a process lives on under a limit on its address space that leaves no
room for the libraries it loads; that a file system which loses what was synced gives it back; that what
could not be printed (a stdout that is full) was not done.

Found by these cases and by hand, and mended:

- a whole number of 400 digits as `--hash-size` was a traceback in the line that refused it;
- `report` aborted in the engine of its pictures, which sets 66 GB of addresses aside, under any `ulimit -v`:
  it says so before it begins;
- OpenDP's library, where the system would not load it, was a traceback;
- `export MODEL -o MODEL/manifest.json` destroyed the model: no output goes into tables or a model;
- a file of records named twice, by a link or a pattern, was counted twice; a pipe was waited for;
- an identifier of more than 500,000 texts was taken for a feature;
- `merge` onto a sum that stood there did not say that it is replaced;
- 10,000 columns were compared with one another, by name, before they were refused;
- `-o /dev/null`, by root, put a file in the device's place, for everyone: devices and pipes are no outputs;
- forged numbers as large as 10³⁰⁰ in noisy tables were a traceback in `denoise`: none may be beyond 2⁶³;
- whole numbers beyond all others as `compare --chains` or `--random-round`, and half a character as
  `schema edit --positive`, were tracebacks.

A truncated `.csv.gz` did not end once in 60 s, on a machine with 160 processes at work. The same command
ended in 2,000 forked runs and 150 new interpreters, the slowest after 1.7 s: it was that machine. A case now
has 300 s, and tells where it stood if it is ended.
"""

SUBJECT = Subject(name="fuzz", page="robustness", text=_TEXT)


@dataclass(frozen=True)
class Sizes:
    """How many cases by which seed, how many a cell; at which calls a verb is killed, and how often."""

    cases: int
    seed: int = 0
    at_a_time: int = 250
    kill_every: int = 1
    kills: int = 200


FULL, QUICK = Sizes(20_000), Sizes(80, at_a_time=20, kill_every=12, kills=10)


def sized(cases: int) -> Sizes:
    """As many cases as asked for."""
    return Sizes(cases)


def cells(config: Sizes) -> list[Cell]:
    """Cases of each kind in turn, and the kills of every verb that writes."""
    each = -(-config.cases // len(KINDS))
    found = []
    for kind in KINDS:
        for start in range(0, each, config.at_a_time):
            settings: dict[str, Any] = {"kind": kind, "seed": config.seed, "start": start}
            settings["cases"] = min(config.at_a_time, each - start)
            found.append(Cell(f"{kind}-{start:05d}", settings, partial(run_cases, **settings)))
    for verb in VERBS:
        settings = dict[str, Any]({"verb": verb.name, "every": config.kill_every, "kills": config.kills})
        found.append(Cell(f"kill-{verb.name}", settings, partial(run_kills, **settings)))
    return found


def run_cases(kind: str, seed: int, start: int, cases: int) -> Value:
    """Run some cases, and count how they ended."""
    codes: Counter[int] = Counter()
    findings = []
    slowest = largest = 0.0
    with tempfile.TemporaryDirectory() as name:
        prepared, work = Path(name) / "prepared", Path(name) / "work"
        prepared.mkdir()
        work.mkdir()
        prepare(prepared)
        for number in range(start, start + cases):
            outcome, found = try_case(kind, seed, number, prepared, work)
            codes[outcome.code] += 1
            slowest, largest = max(slowest, outcome.seconds), max(largest, outcome.memory / 1e6)
            findings += [vars(finding) for finding in found]
    ended = {str(code): n for code, n in sorted(codes.items())}
    return {"cases": cases, "codes": ended, "findings": findings, "slowest": slowest, "largest": largest}


def run_kills(verb: str, every: int, kills: int) -> Value:
    """Kill a verb at its calls, with folders exchanged at once and without; then at moments, until enough."""
    chosen = next(v for v in VERBS if v.name == verb)
    found: list[list[str]] = []
    with tempfile.TemporaryDirectory() as name:
        prepared = Path(name) / "prepared"
        prepared.mkdir()
        prepare(prepared)
        for without in (False, True):
            work = Path(name) / str(without)
            work.mkdir()
            found += trials(prepared, chosen, work, without_exchange=without, every=every)
        at_calls = len(found)
        rng = random.Random(f"kills {verb}")
        work = Path(name) / "moments"
        work.mkdir()
        found += moments(prepared, chosen, work, kills=max(kills - at_calls, kills // 4), rng=rng)
    lost = [fault for faults in found for fault in faults]
    return {"kills": len(found), "at_calls": at_calls, "lost": lost}


def section(results: Mapping[str, Value], images: Path) -> list[str]:
    """Counts of cases by kind, and of kills by verb."""
    rows = []
    for kind in KINDS:
        held = [value for name, value in results.items() if name.startswith(f"{kind}-")]
        if not held:
            continue
        codes: Counter[str] = Counter()
        for value in held:
            codes.update(value["codes"])
        rows.append(
            [
                kind,
                f"{sum(value['cases'] for value in held):,}",
                ", ".join(
                    f"{code}: {n:,}" for code, n in sorted(codes.items(), key=lambda item: int(item[0]))
                ),
                f"{max(value['slowest'] for value in held):.1f} s",
                f"{max(value['largest'] for value in held):,.0f} MB",
                str(sum(len(value["findings"]) for value in held)),
            ]
        )
    lines = table(["kind", "cases", "exit codes", "slowest", "most memory", "failures"], rows)
    kills = [
        [
            name.removeprefix("kill-"),
            f"{value['at_calls']:,}",
            f"{value['kills'] - value['at_calls']:,}",
            str(len(value["lost"])),
        ]
        for name, value in results.items()
        if name.startswith("kill-")
    ]
    lines += ["", *table(["verb", "killed at a call", "killed between calls", "lost"], kills)]
    failures = [
        f"- {f['kind']} {f['number']}, `{f['command']}`: {f['fault']}"
        for name, value in results.items()
        for f in value.get("findings", [])
    ]
    return [*lines, *(["", "Failures:", "", *failures] if failures else [])]
