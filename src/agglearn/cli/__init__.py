"""The command line: parse, call, print. Every verb imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from agglearn.cli import data as _data  # noqa: F401  registers its verbs
from agglearn.cli import fit as _fit  # noqa: F401
from agglearn.cli import ledger as _ledger  # noqa: F401
from agglearn.cli import model as _model  # noqa: F401
from agglearn.cli import trust as _trust  # noqa: F401
from agglearn.cli.app import app

__all__ = ["app", "main"]

_INTERRUPTED = 130  # the exit code of a program stopped by Ctrl-C, which typer returns too


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    import typer

    from agglearn.errors import AgglearnError
    from agglearn.runtime.speech import speaking_to_shell

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
        code = 1
    except OSError as error:  # a full disk, a folder that may not be read
        _fail(f"{error.filename or 'the system'}: {error.strerror or error}")
    except MemoryError:
        _fail("out of memory: use fewer cells (--max-modalities, --hash-size) or fewer chains")
    if code == _INTERRUPTED:
        print("agglearn: interrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> NoReturn:
    from agglearn.report.characters import visible

    print(f"agglearn: {visible(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(2)
