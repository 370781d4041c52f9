"""The command line: parse, call, print. Every verb imports what it needs when it runs."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
import warnings
from typing import Any, NoReturn

from agglearn.cli import data as _data  # noqa: F401  registers its verbs
from agglearn.cli import explain as _explain  # noqa: F401
from agglearn.cli import export as _export  # noqa: F401
from agglearn.cli import fit as _fit  # noqa: F401
from agglearn.cli import ledger as _ledger  # noqa: F401
from agglearn.cli import model as _model  # noqa: F401
from agglearn.cli import privacy as _privacy  # noqa: F401
from agglearn.cli import report as _report  # noqa: F401
from agglearn.cli import schema as _schema  # noqa: F401
from agglearn.cli import trust as _trust  # noqa: F401
from agglearn.cli.app import app
from agglearn.runtime.process import take_over

__all__ = ["app", "main", "run"]

_SHOW_CURSOR = b"\x1b[?25h"  # which a bar of progress has hidden
_SELDOM = 50_000  # objects between two looks for cycles: libraries that load make many, and no cycle
_INTERRUPTED = 130  # the exit code of a program stopped by Ctrl-C, which typer returns too


def main() -> NoReturn:
    """The command line as a program: run it, and end at once when all is written.

    Threads that libraries keep (Arrow's to read with, OpenBLAS's, the allocator's) are still there while a
    process tears down what those threads use: once in many runs it aborted then (134), or crashed, with all
    its work done. So nothing is torn down, after what was to be done at exit is done.
    """
    gc.set_threshold(_SELDOM)
    take_over()
    try:
        run()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    atexit._run_exitfuncs()
    os._exit(code)


def run() -> NoReturn:
    """Run the command line; a user's mistake is one line and exit code 2."""
    import typer

    from agglearn.errors import AgglearnError
    from agglearn.runtime.speech import speaking_to_shell

    _prepare_streams()
    _end_on_signals()
    usage_error: Any = typer.BadParameter.__mro__[1]  # typer brings its own click, whose home has moved
    try:
        with speaking_to_shell():
            code = app(prog_name="agglearn", standalone_mode=False)
        sys.stdout.flush()
    except AgglearnError as error:
        _fail(str(error))
    except usage_error as error:
        context = getattr(error, "ctx", None)
        verb = context.command_path if context is not None else "agglearn"
        _fail(f"{error.format_message()} (see {verb} --help)")
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone, and the rest of it goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + int(getattr(signal, "SIGPIPE", 13))
    except OSError as error:  # a full disk, a folder that may not be read
        _fail(f"{error.filename or 'the system'}: {error.strerror or error}")
    except MemoryError:
        _fail("out of memory: use fewer cells (--max-modalities, --hash-size) or fewer chains")
    except RuntimeError as error:
        if "thread" not in str(error):
            raise
        _fail("the system gives no further thread: use fewer with --threads, or raise its limits")
    if code == _INTERRUPTED:
        print("agglearn: interrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _end_on_signals() -> None:
    """Let a signal to end remove what is half-written and end, where the process is ours to say so.

    Nothing is raised: an exception from nowhere was lost where a library looks away from exceptions, and the
    program went on; or it left a library in a state that it crashed in.
    """

    def end(number: int, frame: object) -> NoReturn:
        from agglearn.runtime.unfinished import abandon

        abandon()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), _SHOW_CURSOR)
        os._exit(128 + number)

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, end)


def _prepare_streams() -> None:
    """Make what is printed fit for wherever it goes: nowhere, or where letters are few."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed before we began
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning


def _show_warning(message: object, category: object, *where: object, **more: object) -> None:
    print(f"agglearn: {' '.join(str(message).split())}", file=sys.stderr)


def _fail(message: str) -> NoReturn:
    from agglearn.report.characters import visible

    print(f"agglearn: {visible(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(2)
