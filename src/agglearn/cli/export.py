"""The verb that writes a model for use elsewhere: export."""

from __future__ import annotations

from typing import Annotated

import typer

from agglearn.cli.app import Json, ModelPath, app, show


@app.command()
def export(
    model: ModelPath,
    format_name: Annotated[str, typer.Option("--format", help="onnx, sql, json, python or javascript.")],
    output: Annotated[str, typer.Option("--output", "-o", help="The file to write.")],
    dialect: Annotated[
        str, typer.Option(help="For sql: duckdb, postgresql, bigquery, snowflake or spark.")
    ] = "duckdb",
    table: Annotated[str, typer.Option(help="For sql: the table of records.")] = "records",
    view: Annotated[
        str | None, typer.Option(help="For sql: a view to create, instead of a plain query.")
    ] = None,
    inputs: Annotated[str, typer.Option(help="For onnx: raw columns, or codes.")] = "raw",
    json: Json = False,
) -> None:
    """Write a model for use elsewhere: a graph, a query, or a file of code that needs nothing else."""
    from agglearn.export.formats import ExportOptions, export_model
    from agglearn.model.format import load_model
    from agglearn.report.document import Document
    from agglearn.runtime.memory import size

    options = ExportOptions(dialect=dialect, table=table, view=view, inputs=inputs)
    written = export_model(load_model(model), output, format_name, options)
    show(
        Document(
            title=f"{output}: {size(written)} of {format_name}",
            data={"path": output, "format": format_name, "bytes": written},
        ),
        json,
    )
