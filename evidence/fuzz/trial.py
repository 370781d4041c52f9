"""One run of the command line in a child of its own, watched: how it ends, what it says, leaves and takes.

The child is forked from a process that has loaded everything, so a trial costs what the verb does and not the
start of an interpreter. It can be killed at any of its calls to the file system within its folder, which an
audit hook counts.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

SIGNALLED = 128
_CALLS = frozenset(
    {
        "open",
        "os.listdir",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.scandir",
        "os.truncate",
        "shutil.rmtree",
    }
)
_POLL = 0.002
_ALL = (
    "agglearn.cli",
    "agglearn.aggregation.api",
    "agglearn.judge.comparison",
    "agglearn.model.fitting",
    "agglearn.opening",
    "agglearn.receive",
    "agglearn.report.html",
    "agglearn.report.json",
    "agglearn.report.text",
    "agglearn.sql.queries",
    "agglearn.trust.diagnosis",
    "agglearn.trust.suggest",
    "scipy.special",
    "scipy.stats",
)


@dataclass(frozen=True)
class Outcome:
    """How a trial ended.

    Attributes
    ----------
    code
        The exit code; 128 and the number of the signal where one ended it.
    out, err
        What it printed.
    seconds, memory
        What it took: time, and bytes of memory at most.
    timed_out
        Whether it was ended because it took too long.
    """

    code: int
    out: str
    err: str
    seconds: float
    memory: int
    timed_out: bool = False

    @property
    def faults(self) -> list[str]:
        """What must never be, whatever was asked for."""
        found = []
        if self.timed_out:
            found.append("no end")
        elif self.code not in (0, 2):
            found.append(f"exit code {self.code}")
        if "Traceback (most recent call last)" in self.err:
            found.append("traceback")
        if self.code == 2 and not self.timed_out and not self.err.strip() and not self.out.strip():
            found.append("exit code 2 without a word")
        return found


def run(
    args: Sequence[str],
    folder: Path,
    *,
    kill_at: int | None = None,
    timeout: float = 60.0,
    memory: int | None = None,
    environment: dict[str, str] | None = None,
    without_exchange: bool = False,
    end_after: float | None = None,
    without_stdout: bool = False,
    stdout: str | None = None,
) -> Outcome:
    """Run ``agglearn`` with these arguments in a folder.

    Parameters
    ----------
    kill_at
        Kill it at this call to the file system, the first being 0.
    timeout
        Seconds after which it is ended.
    memory
        Bytes of address space that it may take beyond what it starts with.
    environment
        Variables to set.
    without_exchange
        Let it believe that the system cannot exchange two folders.
    end_after
        Ask it to end (SIGTERM) after so many seconds.
    without_stdout, stdout
        Close its stdout before it begins, or let it be this file.
    """
    load_everything()
    out, err = folder / ".trial.out", folder / ".trial.err"
    for path in (out, err):
        path.touch()  # a child may be ended before it has opened them
    sys.stdout.flush()
    sys.stderr.flush()
    began = time.perf_counter()
    # A process begins with no handlers of signals: not with those of whoever runs the trials.
    ends = {signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    child = os.fork()
    if child == 0:
        for number in ends:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if child == 0:
        streams = Streams(out, err, without_stdout, stdout)
        _become(args, folder, streams, kill_at, memory, environment or {}, without_exchange)
    status, used, timed_out = _wait(child, began + timeout, None if end_after is None else began + end_after)
    code = os.waitstatus_to_exitcode(status)
    outcome = Outcome(
        code=code if code >= 0 else SIGNALLED - code,
        out=out.read_text("utf-8", "replace"),
        err=err.read_text("utf-8", "replace"),
        seconds=time.perf_counter() - began,
        memory=used.ru_maxrss * 1024,
        timed_out=timed_out,
    )
    out.unlink()
    err.unlink()
    return outcome


@dataclass(frozen=True)
class Streams:
    """Where a child prints."""

    out: Path
    err: Path
    closed: bool = False
    elsewhere: str | None = None


def _wait(child: int, until: float, end_at: float | None) -> tuple[int, Any, bool]:
    """Wait for a child, and end it when its time is over."""
    pause = _POLL
    while True:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            return status, used, False
        if time.perf_counter() > until:
            os.kill(child, signal.SIGKILL)
            _, status, used = os.wait4(child, 0)
            return status, used, True
        if end_at is not None and time.perf_counter() > end_at:
            os.kill(child, signal.SIGTERM)
            end_at = None
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)


def _become(
    args: Sequence[str],
    folder: Path,
    streams: Streams,
    kill_at: int | None,
    memory: int | None,
    environment: dict[str, str],
    without_exchange: bool,
) -> None:
    """Be the command line, in a child: this never returns."""
    code = 70
    try:
        for path, number in ((streams.out, 1), (streams.err, 2)):
            target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(target, number)
        if streams.elsewhere is not None:
            os.dup2(os.open(streams.elsewhere, os.O_WRONLY), 1)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        if streams.closed:
            sys.stdout = None  # as the interpreter has it where there is none
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        os.chdir(folder)
        os.environ.update(environment)
        sys.argv = ["agglearn", *args]
        if without_exchange:
            from agglearn.runtime import files

            vars(files)["exchange"] = lambda a, b: False
        if memory is not None:
            _limit(memory)
        if kill_at is not None:
            _kill_at(kill_at, folder)
        from agglearn.cli import run as run_here

        run_here()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        with suppress(OSError):
            if sys.stdout is not None:
                sys.stdout.flush()
        os._exit(code)


def _limit(memory: int) -> None:
    import resource

    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))


def _kill_at(number: int, folder: Path) -> None:
    """Die, as by a kill that cannot be caught, when the folder is touched for the n-th time."""
    done = 0
    inside = os.path.realpath(folder)

    def hook(event: str, details: tuple[Any, ...]) -> None:
        nonlocal done
        if event in _CALLS and isinstance(details[0], str | os.PathLike):
            if not os.path.abspath(details[0]).startswith(inside):
                return
            if done == number:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1

    sys.addaudithook(hook)


@cache
def load_everything() -> None:
    """Import what the verbs import, and compile what they compile, before children are forked."""
    for name in _ALL:
        import_module(name)
    import agglearn

    records = {"u": ["a", "b", "c"] * 20, "v": [0.5, 1.5] * 30, "y": [0, 1, 1] * 20}
    tables = agglearn.aggregate(records, "y")
    classifier = agglearn.MaxEntClassifier(chains=20, iterations=12).fit(tables)
    classifier.evaluate(records)
    classifier.sample(10)
