"""Verbs about trust: diagnose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agglearn.cli.app import Json, ModelPath, Seed, Threads, app, print_json
from agglearn.errors import InputError

if TYPE_CHECKING:
    from agglearn.trust.suggest import Suggestion


@app.command()
def diagnose(
    model: ModelPath,
    tables: Annotated[
        str, typer.Argument(metavar="TABLES", help="The .agg folder that the model was fitted to.")
    ],
    check: Annotated[
        str | None,
        typer.Option(help="An .agg of larger tables, such as a triple, to check the model by."),
    ] = None,
    suggest: Annotated[
        int, typer.Option(help="How many further tables to suggest, to ask the data holder for.")
    ] = 5,
    cells: Annotated[int, typer.Option(help="The most cells that they may have together.")] = 100_000,
    size: Annotated[int, typer.Option(help="The most features of one of them.")] = 3,
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Say where a model cannot be trusted, and which further tables would help, from tables alone."""
    from agglearn.model.format import load_model
    from agglearn.tables.format import load
    from agglearn.trust.diagnosis import diagnose as run
    from agglearn.trust.suggest import suggest_tables

    if suggest < 0:
        raise InputError(f"--suggest {suggest} must be at least 0")
    loaded, given = load_model(model), load(tables)
    to_check = load(check) if check else None
    suggestions: list[Suggestion] = []
    if suggest:
        suggestions = suggest_tables(loaded, given, cells, size, suggest, threads=threads, seed=seed)
    found = run(loaded, given, to_check, threads=threads, seed=seed)
    if json:
        print_json({**found.to_json(), "suggestions": [s.to_json() for s in suggestions]})
        return
    print(found)
    if suggest:
        _show_suggestions(suggestions, cells)


def _show_suggestions(suggestions: Sequence[Suggestion], cells: int) -> None:
    print("\nWhich further tables are worth asking the data holder for?")
    if not suggestions:
        print(f"  None that the model does not have fits into {cells:,} cells (--cells).")
        return
    print(f"  {'NLLH':>9}{'log-odds':>10}{'cells':>11}")
    for s in suggestions:
        print(f"  {s.gain:>+9.4f}{s.shift:>10.2f}{s.cells:>11,}  {s.name}")
    print("  By what the tables at hand leave open: the NLLH that a fit with the table may gain, and how far")
    print("  predicted log-odds may move. Good for the order: the gain can be several times more or less.")
