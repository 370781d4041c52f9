"""The verb that shows what a model learnt: show."""

from __future__ import annotations

from typing import Annotated

import typer

from agglearn.cli.app import Json, ModelPath, Seed, Threads, app, names, say
from agglearn.cli.app import show as print_document
from agglearn.errors import InputError


@app.command()
def show(
    model: ModelPath,
    feature: Annotated[str | None, typer.Option(help="What the values of this feature add.")] = None,
    pair: Annotated[
        str | None, typer.Option(help="What two features (f,g) add together; more for a larger table.")
    ] = None,
    interval: Annotated[
        float | None, typer.Option(help="With --feature: intervals of this level, such as 0.9.")
    ] = None,
    top: Annotated[int, typer.Option(help="The most lines of a list.")] = 20,
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Show what a model learnt: what its predictions rest on, and what values add to the log-odds."""
    from agglearn.model.explanation_document import cells_document, effects_document, importance_document
    from agglearn.model.format import load_model

    if feature is not None and pair is not None:
        raise InputError("--feature and --pair ask for different things: give one of them")
    if interval is not None and feature is None:
        raise InputError("--interval is for the values of a feature: name it with --feature")
    if top < 1:
        raise InputError(f"--top {top} must be at least 1")
    loaded = load_model(model)
    found = loaded.explanation()
    if pair is not None:
        print_document(cells_document(found, tuple(names([pair])), top), json)
    elif feature is None:
        print_document(importance_document(found, top), json)
    else:
        columns = found.feature_columns(feature)
        if interval is not None:
            from agglearn.trust.effects import effect_intervals
            from agglearn.trust.intervals import check_level
            from agglearn.trust.kept import kept_posterior

            check_level(interval)
            posterior = kept_posterior(loaded, model, seed=seed, threads=threads, say=say)
            f, shares = found.schema.index[feature], found.population.shares()
            columns |= dict(
                zip(("lower", "upper"), effect_intervals(posterior, shares, f, interval), strict=True)
            )
        print_document(effects_document(found, feature, columns, top), json)
