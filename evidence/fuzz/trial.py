"""One run of the command line in a child of its own, watched: how it ends, what it says, leaves and takes.

The child is forked from a process that has loaded everything, so a trial costs what the verb does and not the
start of an interpreter; or it is a new interpreter, as a user has it. A forked one can be killed at any of
its calls to the file system within its folder, which an audit hook counts.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
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
_ALL = (
    "agglearn.cli",
    "agglearn.aggregation.api",
    "agglearn.judge.comparison",
    "agglearn.cli.fit",
    "agglearn.export.formats",
    "agglearn.model.fitting",
    "agglearn.opening",
    "agglearn.page.write",
    "agglearn.plan",
    "agglearn.privacy.api",
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
    kill_after: float = 0.0,
    timeout: float = 60.0,
    memory: int | None = None,
    environment: dict[str, str] | None = None,
    without_exchange: bool = False,
    end_after: float | None = None,
    without_stdout: bool = False,
    stdout: str | None = None,
    fresh: bool = False,
) -> Outcome:
    """Run ``agglearn`` with these arguments in a folder.

    Parameters
    ----------
    kill_at
        Kill it at this call to the file system, the first being 0.
    kill_after
        Kill it so many seconds after that call.
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
    fresh
        Run a new interpreter.
    """
    load_everything()
    out, err = folder / ".trial.out", folder / ".trial.err"
    for path in (out, err):
        path.touch()  # a child may be ended before it has opened them
    environment = {**(environment or {}), "TMPDIR": str(folder)}  # what is left there is found
    streams = Streams(out, err, without_stdout, stdout)
    began = time.perf_counter()
    child = _fork()
    if child == 0 and fresh:
        _start(args, folder, streams, environment)
    elif child == 0:
        kill = None if kill_at is None else (kill_at, kill_after)
        _become(args, folder, streams, kill, memory, environment, without_exchange)
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

    def connect(self) -> None:
        """Let this process read from nothing and print there."""
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for path, number in ((self.elsewhere or self.out, 1), (self.err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)


def _fork() -> int:
    """A child with no handlers of signals, as a process begins: not with those of whoever runs the trials."""
    sys.stdout.flush()
    sys.stderr.flush()
    ends = {signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    child = os.fork()
    if child == 0:
        for number in ends:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child


def _start(args: Sequence[str], folder: Path, streams: Streams, environment: dict[str, str]) -> None:
    """Be a new interpreter, as the shell starts it, in a child: this never returns."""
    try:
        streams.connect()
        os.chdir(folder)
        if streams.closed:
            os.close(1)
        command = [sys.executable, "-X", "faulthandler", "-m", "agglearn", *args]
        os.execve(sys.executable, command, {**os.environ, **environment})
    finally:
        os._exit(70)


def _wait(child: int, until: float, end_at: float | None) -> tuple[int, Any, bool]:
    """Wait for a child, and end it when its time is over."""
    ended = os.pidfd_open(child)
    watch = select.poll()
    watch.register(ended, select.POLLIN)
    timed_out = False
    try:
        while True:
            next_at = until if end_at is None else min(end_at, until)
            if watch.poll(max(0.0, next_at - time.perf_counter()) * 1000):
                break
            if end_at is not None:
                os.kill(child, signal.SIGTERM)
                end_at = None
            elif timed_out:
                os.kill(child, signal.SIGKILL)
                break
            else:
                os.kill(child, signal.SIGABRT)  # which tells where it stands
                timed_out, until = True, until + 5
        _, status, used = os.wait4(child, 0)
    finally:
        os.close(ended)
    return status, used, timed_out


def _become(
    args: Sequence[str],
    folder: Path,
    streams: Streams,
    kill: tuple[int, float] | None,
    memory: int | None,
    environment: dict[str, str],
    without_exchange: bool,
) -> None:
    """Be the command line, in a child: this never returns."""
    code = 70
    try:
        streams.connect()
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        if streams.closed:
            sys.stdout = None  # as the interpreter has it where there is none
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        faulthandler.enable()
        os.chdir(folder)
        os.environ.update(environment)
        tempfile.tempdir = None
        sys.argv = ["agglearn", *args]
        if without_exchange:
            from agglearn.runtime import files

            vars(files)["exchange"] = lambda a, b: False
        if memory is not None:
            _limit(memory)
        if kill is not None:
            _kill_at(*kill, folder)
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


def _kill_at(number: int, after: float, folder: Path) -> None:
    """Die, as by a kill that cannot be caught, when the folder is touched for the n-th time or soon."""
    done = 0
    inside = os.path.realpath(folder)

    def hook(event: str, details: tuple[Any, ...]) -> None:
        nonlocal done
        if event in _CALLS and isinstance(details[0], str | os.PathLike):
            if not os.path.abspath(details[0]).startswith(inside):
                return
            if done == number and after:
                signal.setitimer(signal.ITIMER_REAL, after)  # an alarm that has no handler ends a process
            elif done == number:
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
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        agglearn.save(tables, f"{folder}/a.agg")
        agglearn.cli.app(["check", f"{folder}/a.agg"], prog_name="agglearn", standalone_mode=False)
