"""Verbs about tables that come every day: merge, subtract, window, drift."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from agglearn.cli.app import Json, app, show, tables_target

if TYPE_CHECKING:
    from agglearn.tables.data import AggregatedData

Output = Annotated[str, typer.Option("--output", "-o", help="Where to write, a name ending in .agg.")]


@app.command()
def merge(
    inputs: Annotated[
        list[str], typer.Argument(metavar="TABLES...", help="Folders of one schema, or of one that grew.")
    ],
    output: Output,
    same_people: Annotated[
        bool, typer.Option("--same-people", help="Private parts of people who may be in several of them.")
    ] = False,
    json: Json = False,
) -> None:
    """Add up tables that were aggregated from disjoint records; none is added twice."""
    from agglearn.tables.data import merge as add_up

    _write(output, lambda: add_up((_load(path) for path in inputs), same_people=same_people), json)


@app.command()
def subtract(
    whole: Annotated[str, typer.Argument(metavar="TABLES", help="An .agg folder that was added up.")],
    parts: Annotated[list[str], typer.Argument(metavar="PART...", help="Parts of it to take out.")],
    output: Output,
    json: Json = False,
) -> None:
    """Take parts out of tables that they were added to, exactly."""

    def left() -> AggregatedData:
        data = _load(whole)
        for path in parts:
            data = data - _load(path)
        return data

    _write(output, left, json)


@app.command()
def window(
    inputs: Annotated[
        list[str], typer.Argument(metavar="TABLES...", help="Folders, each of a day or another period.")
    ],
    output: Output,
    last: Annotated[
        int | None, typer.Option(help="Only the last so many days, back from the newest of all.")
    ] = None,
    half_life: Annotated[
        float | None, typer.Option(help="A record that is older by so many days counts half as much.")
    ] = None,
    json: Json = False,
) -> None:
    """Add up the tables of the last days, or of all with weights that fade."""
    from agglearn.tables.window import window as add_up

    _write(output, lambda: add_up([_load(path) for path in inputs], last=last, half_life=half_life), json)


@app.command()
def drift(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="An .agg folder.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="An .agg folder of the same source, later.")],
    label: Annotated[str | None, typer.Option(help="The label, where the tables have several.")] = None,
    json: Json = False,
) -> None:
    """Say what changed between two periods: which records there are, and how often they are positive."""
    from agglearn.tables.drift import drift as compare

    show(compare(_load(before), _load(after), label).document().named(f"{before}, {after}"), json)


def _load(path: str) -> AggregatedData:
    from agglearn.tables.format import load

    return load(path)


def _write(output: str, make: Callable[[], AggregatedData], json: bool) -> None:
    from agglearn.report.document import Statement
    from agglearn.tables.document import tables_document
    from agglearn.tables.format import save

    target = tables_target(output)
    data = make()
    save(data, target)
    document = tables_document(data, str(target))
    if data.promise is not None:
        document = document.followed_by(Statement(str(data.promise)), privacy=data.promise.to_json())
    show(document, json)
