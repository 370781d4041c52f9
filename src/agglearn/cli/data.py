"""Verbs about data: aggregate, receive, check, sql, datasets."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agglearn.aggregation.options import AggregateOptions
from agglearn.cli import privacy as private
from agglearn.cli.app import Json, app, names, say, say_if_replaced, show
from agglearn.cli.spark import Master, SparkConf, on_spark, use_session
from agglearn.errors import InputError
from agglearn.privacy.budget import PrivacyOptions
from agglearn.records.options import TRAIN, ReadOptions

if TYPE_CHECKING:
    pass

Labels = Annotated[list[str], typer.Option("--label", help="Column to predict (several: repeat, or commas).")]
Positive = Annotated[
    str | None, typer.Option(help="Positive value of the label, where it is not 0/1 or true/false.")
]
Tables = Annotated[str, typer.Option(help="pairs, singles, triples, a*b*c, several with commas; or auto.")]
HashSize = Annotated[
    int | None, typer.Option(help="Hash tables with more cells than this to so many buckets.")
]
Separator = Annotated[str | None, typer.Option(help="Separator of text files (found out by default).")]
Encoding = Annotated[str, typer.Option(help="Encoding of text files.")]
Missing = Annotated[
    str | None, typer.Option(help='Texts that mean "no value" in text files, with commas (also: "?").')
]

_TABLES = str(AggregateOptions.tables)


def read_options(separator: str | None, encoding: str, missing: str | None) -> ReadOptions:
    """How text files are to be read."""
    values = ReadOptions.missing if missing is None else ("", *names([missing]))
    return ReadOptions(separator, encoding, values)


def open_input(inputs: list[str]) -> Any:
    """Paths and what Spark reads as they are, or the table of a database written ``PATH.duckdb:TABLE``."""
    from agglearn.aggregation.database import open_database_table, split_database_input

    if len(inputs) == 1:
        found = split_database_input(inputs[0])
        if found:
            return open_database_table(*found)
    return inputs


@app.command()
def aggregate(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Files, globs, folders, FILE.duckdb:TABLE or spark:TABLE_OR_PATH (Parquet, Delta).",
        ),
    ],
    label: Labels,
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write, a name ending in .agg.")],
    positive: Positive = None,
    features: Annotated[list[str] | None, typer.Option(help="Feature columns (default: all others).")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Columns to leave out; * matches.")] = None,
    tables: Tables = _TABLES,
    schema: Annotated[
        str | None, typer.Option(help="Code by this schema file, or by the schema of this .agg.")
    ] = None,
    grow: Annotated[
        bool, typer.Option("--grow", help="Values that --schema does not know get codes behind its own.")
    ] = AggregateOptions.grow,
    period: Annotated[
        str | None, typer.Option(help="When the records are from: 2026-03-01, 2026-03-01/2026-03-07, or 12.")
    ] = AggregateOptions.period,
    categorical: Annotated[list[str] | None, typer.Option(help="Columns of categories; * matches.")] = None,
    numeric: Annotated[list[str] | None, typer.Option(help="Columns of quantities; * matches.")] = None,
    bins: Annotated[
        int | None, typer.Option(help="Bins of a numeric column (default: by the records, 10 to 20).")
    ] = AggregateOptions.bins,
    binning: Annotated[str, typer.Option(help="quantile or width.")] = AggregateOptions.binning,
    edges: Annotated[
        list[str] | None,
        typer.Option(help="Bin edges of a column, as age=20,30,40 (repeat for others)."),
    ] = None,
    max_modalities: Annotated[
        int | None, typer.Option(help="Values kept of a column (default: all); rarer ones are folded.")
    ] = AggregateOptions.max_modalities,
    min_modality_count: Annotated[
        int | None,
        typer.Option(help="Values rarer than this are folded (default: 3 in columns of more than 100)."),
    ] = AggregateOptions.min_modality_count,
    hash_size: HashSize = AggregateOptions.hash_size,
    target_encode: Annotated[
        list[str] | None, typer.Option(help="Columns to code by count and rate on held-out records.")
    ] = None,
    encoding_share: Annotated[
        float, typer.Option(help="Share of records held out for that.")
    ] = AggregateOptions.encoding_share,
    encoding_modalities: Annotated[
        int, typer.Option(help="Modalities of such a column, about.")
    ] = AggregateOptions.encoding_modalities,
    split: Annotated[
        str | None, typer.Option(help="Disjoint parts beside the training one, as valid=0.2,test=0.2.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = AggregateOptions.seed,
    separator: Separator = None,
    encoding: Encoding = ReadOptions.encoding,
    missing: Missing = None,
    epsilon: private.Epsilon = None,
    delta: private.Delta = None,
    rho: private.Rho = None,
    mechanism: private.Mechanism = PrivacyOptions.mechanism,
    person: Annotated[
        str | None, typer.Option(help="Column that says whose a record is: then persons are protected.")
    ] = None,
    max_records: private.MaxRecords = PrivacyOptions.max_records,
    public: private.Public = None,
    assume_public_schema: private.AssumePublic = False,
    bounds: Annotated[
        list[str] | None, typer.Option(help="Public bounds of a numeric column, as age=17,90 (repeat).")
    ] = None,
    schema_share: Annotated[
        float, typer.Option(help="Share of the budget for bins and values that are not public.")
    ] = PrivacyOptions.schema_share,
    cells: private.CellsAsked = PrivacyOptions.cells,
    total_epsilon: private.TotalEpsilon = None,
    ledger: private.LedgerFile = None,
    processes: private.Processes = None,
    min_count: private.MinCount = None,
    round_to: private.RoundTo = None,
    random_round: private.RandomRound = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    json: Json = False,
) -> None:
    """Count records into tables that can leave the house.

    Bins, vocabularies and target encodings are learnt from the training records unless --schema gives
    them, and the file shows them; the counts are exact. With --epsilon every number that leaves is noisy, and
    nothing is learnt from the records that is not paid for.
    """
    from agglearn.aggregation.api import aggregate_split
    from agglearn.privacy.coarse import Coarsening, coarsened
    from agglearn.records.split import parse_split
    from agglearn.tables.format import save

    began = time.perf_counter()
    targets = _targets(output, list(parse_split(split)) if split else [])
    coarsening = Coarsening(min_count=min_count, round_to=round_to, random_round=random_round)
    privacy: dict[str, Any] = {
        "delta": delta,
        "person": person,
        "public": public,
        "assume_public_schema": assume_public_schema,
        "bounds": private.bounds_of(bounds or []),
        "total_epsilon": total_epsilon,
        "ledger": ledger,
    }
    how = AggregateOptions(
        positive=positive,
        features=names(features) if features else None,
        exclude=names(exclude),
        tables=tables,
        schema=schema,
        grow=grow,
        period=period,
        categorical=names(categorical),
        numeric=names(numeric),
        bins=bins,
        binning=binning,
        edges=_edges(edges or []),
        max_modalities=max_modalities,
        min_modality_count=min_modality_count,
        hash_size=hash_size,
        target_encode=names(target_encode),
        encoding_share=encoding_share,
        encoding_modalities=encoding_modalities,
        split=parse_split(split) if split else {},
        seed=seed,
        read=read_options(separator, encoding, missing),
        show_progress=not json,
    )
    use_session(master, spark_conf, on_spark(*inputs))
    if private.wants_privacy(epsilon, rho, **privacy):
        coarsening.refuse_beside_noise()
        privacy |= {"epsilon": epsilon, "rho": rho, "mechanism": mechanism, "max_records": max_records}
        privacy |= {"schema_share": schema_share, "processes": processes, "cells": cells}
        records = open_input(inputs)
        private.aggregate(records, inputs, names(label), how, PrivacyOptions(**privacy), targets, json)
        return
    result = aggregate_split(open_input(inputs), names(label), how)
    if coarsening:
        result = replace(result, parts={name: coarsened(d, coarsening) for name, d in result.parts.items()})
    for part, path in targets.items():
        save(result.parts[part], path)
    seconds = time.perf_counter() - began
    show(result.document({part: str(path) for part, path in targets.items()}, seconds), json)
    if not json:
        rows = sum(d.rows for d in result.parts.values())
        say(f"{seconds:.1f} s, {rows / seconds:,.0f} records a second")


def _targets(output: str, parts: list[str]) -> dict[str, Path]:
    """Where each part is written: the training one to the name given, the others beside it."""
    from agglearn.runtime.files import output_path, refuse_foreign
    from agglearn.tables.format import FORMAT

    path = output_path(output, ".agg")
    targets = {TRAIN: path} | {part: path.with_name(f"{path.stem}.{part}.agg") for part in parts}
    for target in targets.values():
        refuse_foreign(target, FORMAT)
        say_if_replaced(target)
    return targets


def _edges(options: list[str]) -> dict[str, list[float]]:
    edges = {}
    for option in options:
        name, _, values = option.rpartition("=")
        try:
            edges[name] = [float(v) for v in values.split(",")]
        except ValueError:
            raise InputError(
                f"--edges {option!r} is not COLUMN=NUMBER,NUMBER,… such as age=20,30,40"
            ) from None
    return edges


@app.command()
def check(
    data: Annotated[str, typer.Argument(metavar="TABLES", help="An .agg folder.")],
    json: Json = False,
) -> None:
    """Check that tables agree with themselves and with one another."""
    from agglearn.tables.check import check as run
    from agglearn.tables.format import load
    from agglearn.tables.ledger import ledger_grid

    loaded = load(data)
    report = run(loaded)
    document = report.document().named(data)
    if loaded.parts:
        parts = loaded.ledger
        shown = (ledger_grid(parts),) if len(parts) > 1 else ()
        document = document.followed_by(*shown, parts=[part.to_json() for part in parts])
    show(document, json)
    if not report.ok:
        raise typer.Exit(2)


@app.command()
def receive(
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help="Files, globs or folders.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write, a name ending in .agg.")],
    format_name: Annotated[
        str, typer.Option("--format", help="tables (a file each), or adkdd (the AdKDD'21 challenge).")
    ] = "tables",
    label: Annotated[
        list[str] | None, typer.Option("--label", help="Columns with sums of labels (repeat, or commas).")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(help="Code by this schema file, or by the schema of this .agg.")
    ] = None,
    count: Annotated[str | None, typer.Option(help="Column with the counts (default: count).")] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="Noise on each number: gaussian:SIGMA, laplace:SCALE, rounding-to:5 for multiples of 5 (or "
            "rounding:2.5, by the largest error)."
        ),
    ] = None,
    floor: Annotated[float | None, typer.Option(help="Cells with a smaller count were withheld.")] = None,
    absent: Annotated[
        str | None, typer.Option(help="What a cell not given means: zero, suppressed or unmeasured.")
    ] = None,
    rows: Annotated[float | None, typer.Option(help="Number of records (default: from the tables).")] = None,
    hash_size: HashSize = AggregateOptions.hash_size,
    max_modalities: Annotated[
        int | None, typer.Option(help="Values kept of a feature; rarer ones are folded.")
    ] = None,
    separator: Separator = None,
    encoding: Encoding = ReadOptions.encoding,
    missing: Missing = None,
    json: Json = False,
) -> None:
    """Take in tables that were made elsewhere: the results of `agglearn sql`, a clean room's, an API's."""
    from agglearn.receive import read_adkdd, read_tables
    from agglearn.schema.unknown import unknown_notes
    from agglearn.tables.document import tables_document
    from agglearn.tables.format import load_schema, save
    from agglearn.tables.noise import Noise

    target = _targets(output, [])["train"]
    given: dict[str, Any] = {
        "schema": load_schema(schema) if schema else None,
        "noise": Noise.parse(noise) if noise else None,
        "floor": floor,
        "absent": absent,
        "rows": rows,
        "hash_size": hash_size,
        "max_modalities": max_modalities,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if format_name == "adkdd":
        received = read_adkdd(files, show_progress=not json, **options)
    elif format_name == "tables":
        received = read_tables(
            files,
            label=names(label) or None,
            count=count,
            separator=separator,
            encoding=encoding,
            missing=tuple(names([missing])) if missing else (),
            show_progress=not json,
            **options,
        )
    else:
        raise InputError(f"format {format_name!r} is not tables or adkdd")
    save(received.data, target)
    told = tables_document(received.data, str(target)).followed_by(unknown=received.unknown)
    notes = unknown_notes(received.unknown, received.data.rows, "has no cell in its tables")
    show(told.warned(*notes), json)


@app.command()
def sql(
    schema: Annotated[str, typer.Argument(metavar="SCHEMA", help="A schema file or an .agg folder.")],
    table: Annotated[str, typer.Option("--table", help="The table of records to query.")],
    dialect: Annotated[
        str, typer.Option(help="duckdb, postgresql, bigquery, snowflake or spark.")
    ] = "duckdb",
    tables: Tables = _TABLES,
    hash_size: Annotated[int | None, typer.Option(help="As it will be given to receive.")] = None,
    min_count: Annotated[
        int | None, typer.Option(help="Leave out cells with fewer records (HAVING).")
    ] = None,
    one_query: Annotated[
        bool, typer.Option("--one-query", help="Ask for all tables at once: the records are read once.")
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Folder to write a file a query to.")
    ] = None,
    json: Json = False,
) -> None:
    """Print the GROUP BY queries of a schema, to be run where the records may not leave."""
    from agglearn.report.document import Document
    from agglearn.runtime.files import write_text
    from agglearn.sql.queries import write_queries
    from agglearn.tables.format import load_schema
    from agglearn.tables.scopes import parse_scopes

    loaded = load_schema(schema)
    scopes = parse_scopes(tables, loaded)
    found = write_queries(loaded, scopes, dialect, table, hash_size, min_count, one_query)
    if output is not None:
        for query in found:
            write_text(Path(output) / f"{query.name}.sql", query.text + "\n")
        say(f"{output}: {len(found):,} queries")
    if json:
        listed = [
            {"name": q.name, "text": q.text}
            | ({"tables": q.scopes} if one_query else {"features": q.scopes[0]})
            for q in found
        ]
        show(Document(data={"queries": listed}), json)
    elif output is None:
        print("\n\n".join(query.text for query in found))


@app.command()
def datasets(
    action: Annotated[str | None, typer.Argument(metavar="[fetch]", help="fetch: write CSV files.")] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which data set.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="Folder to write to.")] = ".",
    json: Json = False,
) -> None:
    """List the public data sets, or fetch one as CSV files."""
    from agglearn import datasets as ds
    from agglearn.report.document import Column, Document, Grid, Statement, number

    if action is None:
        listed = ds.available()
        columns = (Column("name"), number("records"), number("features"), Column("label"), Column("about"))
        rows = tuple((d.name, d.rows, d.features, d.label, d.description) for d in listed)
        data = {"datasets": [vars(d) for d in listed]}
        show(Document(blocks=(Grid(columns, rows),), data=data), json)
        return
    if action != "fetch" or name is None:
        raise InputError("say `agglearn datasets` for a list, or `agglearn datasets fetch NAME`")
    paths = ds.fetch(name, Path(output), progress=None if json else say)
    written = [str(path) for path in paths]
    show(Document(blocks=tuple(map(Statement, written)), data={"paths": written}), json)
    sys.stdout.flush()
