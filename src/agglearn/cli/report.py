"""The verb that writes a page about a model: report."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agglearn.cli.app import Json, ModelPath, Seed, Threads, app, say, show
from agglearn.cli.data import Encoding, Missing, Separator, read_options
from agglearn.errors import InputError


@app.command()
def report(
    model: ModelPath,
    output: Annotated[str, typer.Option("--output", "-o", help="The page to write, such as report.html.")],
    tables: Annotated[str | None, typer.Option(help="The tables it was fitted to, an .agg folder.")] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(help="To judge it by: tables of other records (.agg), or files of records."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Judge simpler models of the same tables beside it.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="What the page calls the model.")] = None,
    level: Annotated[float, typer.Option(help="Level of intervals.")] = 0.9,
    threads: Threads = None,
    seed: Seed = 0,
    separator: Separator = None,
    encoding: Encoding = "utf8",
    missing: Missing = None,
    json: Json = False,
) -> None:
    """Write a report of a model: one page of HTML that can be opened, sent and printed."""
    from pathlib import Path

    from agglearn.model.format import load_model
    from agglearn.page.write import write_report
    from agglearn.records.sources import open_source
    from agglearn.report.document import Document
    from agglearn.runtime.memory import size
    from agglearn.tables.format import load

    if compare and not (tables and valid):
        raise InputError("--compare fits simpler models to --tables and judges them by --valid: give both")
    loaded = load_model(model)
    judge: Any = None
    if valid:
        folder = len(valid) == 1 and valid[0].rstrip("/").endswith(".agg")
        judge = load(valid[0]) if folder else open_source(valid, read_options(separator, encoding, missing))
    written = write_report(
        loaded,
        output,
        tables=load(tables) if tables else None,
        valid=judge,
        compare=compare,
        name=name or Path(model.rstrip("/")).name.removesuffix(".model"),
        level=level,
        folder=model,
        threads=threads,
        seed=seed,
        progress=(lambda doing: None) if json else say,
    )
    show(Document(title=f"{output}: {size(written)}", data={"path": output, "bytes": written}), json)
