"""The application that the verbs register with, and what they share."""

from __future__ import annotations

import json
import math
import sys
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="agglearn",
    help="Learn a classifier from contingency tables alone. No individual record is needed to train, "
    "to choose the settings, or to judge the result.",
    no_args_is_help=True,
    add_completion=False,
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
    print(message, file=sys.stderr)


def print_json(document: dict[str, Any]) -> None:
    """The result as one JSON object; a number that is not finite becomes null."""
    print(json.dumps(_finite(document), ensure_ascii=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def names(values: list[str] | None) -> list[str]:
    """Names from a repeated option, each of which may also be a list with commas."""
    return [v.strip() for value in values or [] for v in value.split(",") if v.strip()]
