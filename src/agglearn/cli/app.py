"""The application that the verbs register with, and what they share."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from agglearn.report.document import Document

app = typer.Typer(
    name="agglearn",
    help="Learn a classifier from contingency tables alone. No individual record is needed to train, "
    "to choose the settings, or to judge the result.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Threads = Annotated[int | None, typer.Option(help="Threads (default: all cores); never changes the result.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="A .model folder.")]


def _version(wanted: bool) -> None:
    if wanted:
        from agglearn import __version__

        print(f"agglearn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop."),
    ] = False,
) -> None:
    pass


def say(message: str) -> None:
    """A message to the person, apart from the result."""
    from agglearn.report.characters import visible

    print(visible(message), file=sys.stderr)


def say_if_replaced(target: Path) -> None:
    """Tell that an output was there before."""
    if target.exists():
        say(f"{target} exists and will be replaced")


def tables_target(output: str) -> Path:
    """Where tables are to be written: a name for them that is free, or theirs to replace, which is said."""
    from agglearn.runtime.files import output_path, refuse_foreign
    from agglearn.tables.format import FORMAT

    target = output_path(output, ".agg")
    refuse_foreign(target, FORMAT)
    say_if_replaced(target)
    return target


def show(document: Document, json: bool) -> None:
    """A finding on stdout, for a person or (one JSON object) for a program; its warnings go to stderr."""
    for warning in document.warnings:
        say(f"PROBLEM: {warning.text}" if warning.severity == "problem" else warning.text)
    if json:
        from agglearn.report.json import to_json

        print(to_json(document))
    else:
        from agglearn.report.text import text

        print(text(replace(document, warnings=()), _width()))


def _width() -> int:
    """As wide as the terminal, up to a width that is read with ease; elsewhere always the same."""
    from agglearn.report.text import WIDTH

    return min(WIDTH, shutil.get_terminal_size((WIDTH, 0)).columns) if sys.stdout.isatty() else WIDTH


def names(values: list[str] | None) -> list[str]:
    """Names from a repeated option, each of which may also be a list with commas."""
    return [v.strip() for value in values or [] for v in value.split(",") if v.strip()]
