"""Verbs about trust: diagnose."""

from __future__ import annotations

from typing import Annotated

import typer

from agglearn.cli.app import Json, ModelPath, Seed, Threads, app, show
from agglearn.runtime.options import check_bounds, check_seed


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
    from agglearn.trust.findings import suggestion_blocks
    from agglearn.trust.suggest import suggest_tables

    check_bounds(suggest=suggest, cells=cells, size=size)
    check_seed(seed)
    loaded, given = load_model(model), load(tables)
    to_check = load(check) if check else None
    suggestions = (
        suggest_tables(loaded, given, cells, size, suggest, threads=threads, seed=seed) if suggest else []
    )
    found = run(loaded, given, to_check, threads=threads, seed=seed).document()
    further = suggestion_blocks(suggestions, cells) if suggest else ()
    show(found.followed_by(*further, suggestions=[s.to_json() for s in suggestions]), json)
