"""Verbs about fitted models: evaluate, predict, sample, compare."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agglearn.cli.app import Json, ModelPath, Seed, Threads, app, names, say, show
from agglearn.cli.data import Encoding, Missing, Positive, Separator, read_options
from agglearn.cli.spark import Master, SparkConf, on_spark, predict_frame, sample_to, use_session
from agglearn.errors import InputError
from agglearn.records.options import Coding
from agglearn.runtime.options import check_bounds, check_seed
from agglearn.train.settings import FitSettings

if TYPE_CHECKING:
    from agglearn.model.model import Model
    from agglearn.report.document import Document


@app.command()
def evaluate(
    model: ModelPath,
    records: Annotated[
        list[str],
        typer.Argument(
            metavar="RECORDS|TABLES", help="Files of records, spark:TABLE_OR_PATH, or one .agg folder."
        ),
    ],
    threads: Threads = None,
    separator: Separator = None,
    encoding: Encoding = "utf8",
    missing: Missing = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    json: Json = False,
) -> None:
    """Score a model on records that have their label, or on tables of records it was not fitted on."""
    from agglearn.judge.evaluate import evaluate as run
    from agglearn.model.format import load_model
    from agglearn.records.sources import open_source
    from agglearn.runtime.progress import meter
    from agglearn.tables.format import load
    from agglearn.trust.score import score_tables

    loaded = load_model(model)
    use_session(master, spark_conf, on_spark(*records))
    if len(records) == 1 and records[0].rstrip("/").endswith(".agg"):
        show(score_tables(loaded, load(records[0]), threads=threads).document(), json)
        return
    source = open_source(records, read_options(separator, encoding, missing))
    with meter("scoring", source.rows, show=not json) as advance:
        score, unknown = run(loaded, source, threads, advance)
    show(_with_unknown(score.document(), loaded, unknown, score.rows), json)


def _with_unknown(document: Document, model: Model, unknown: Any, rows: int) -> Document:
    """The document, with what there is to say of values that the model does not know."""
    from agglearn.schema.unknown import unknown_notes

    counts = {name: n for name, n in zip(model.schema.names, unknown.tolist(), strict=True) if n}
    notes = unknown_notes(counts, rows, "adds nothing to the scores")
    return document.followed_by(unknown=counts).warned(*notes)


@app.command()
def predict(
    model: ModelPath,
    records: Annotated[
        list[str], typer.Argument(metavar="RECORDS...", help="Files, globs, folders, or spark:TABLE_OR_PATH.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A .parquet or .csv file, or spark:TABLE_OR_PATH.")
    ],
    keep: Annotated[list[str] | None, typer.Option(help="Columns to copy beside the score.")] = None,
    interval: Annotated[
        float | None,
        typer.Option(help="Also write lower and upper ends of intervals of this level, such as 0.9."),
    ] = None,
    threads: Threads = None,
    seed: Seed = 0,
    separator: Separator = None,
    encoding: Encoding = "utf8",
    missing: Missing = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    json: Json = False,
) -> None:
    """Write P(Y=1) of each record, streaming files of any size, or on a Spark cluster."""
    import numpy as np
    from scipy.special import expit

    from agglearn.cli.output import record_writer
    from agglearn.model.format import load_model
    from agglearn.model.predict import code_records
    from agglearn.records.files import expand
    from agglearn.records.sources import open_source
    from agglearn.runtime.progress import meter
    from agglearn.runtime.threads import thread_count
    from agglearn.schema.schema import require_columns

    began = time.perf_counter()
    loaded = load_model(model)
    kept = names(keep)
    use_session(master, spark_conf, on_spark(*records, output))
    if on_spark(*records, output):
        if interval is not None:
            raise InputError("--interval is for records of this machine: leave it out, or read files")
        rows, unknown, seconds = predict_frame(loaded, records, output, kept)
        show(_with_unknown(_rows(rows, output, seconds), loaded, unknown, rows), json)
        return
    source = open_source(records, read_options(separator, encoding, missing))
    require_columns([*loaded.schema.names, *kept], source.columns)
    for name in ("probability", *(("lower", "upper") if interval is not None else ())):
        if name in kept:
            raise InputError(f"--keep {name}: the score has that name; rename the column of the records")
    if Path(output).exists() and any(path.samefile(output) for path in expand(records)):
        raise InputError(f"{output} is one of the files with records: name another output")
    target = Path(output).resolve()
    within = [r for r in records if Path(r).is_dir() and target.is_relative_to(Path(r).resolve())]
    if within:
        raise InputError(f"{output} is in the folder of records {within[0]}: name an output elsewhere")
    posterior = None
    if interval is not None:
        from agglearn.trust.intervals import check_level
        from agglearn.trust.kept import kept_posterior

        check_level(interval)
        posterior = kept_posterior(loaded, model, seed=seed, threads=threads, say=say)
    unknown = np.zeros(len(loaded.schema.names), np.int64)
    rows = 0
    with (
        record_writer(Path(output)) as write,
        meter("predicting", source.rows, show=not json) as advance,
    ):
        for batch, codes, count in code_records(loaded, source, kept):
            columns = {name: batch.column(name) for name in kept}
            columns["probability"] = expit(loaded.field.log_odds(codes, thread_count(threads)))
            if posterior is not None and interval is not None:
                lower, upper = posterior.log_odds(codes, interval, threads)
                columns |= {"lower": expit(lower), "upper": expit(upper)}
            write(columns)
            unknown += count
            rows += batch.num_rows
            advance(batch.num_rows)
    show(_with_unknown(_rows(rows, output, time.perf_counter() - began), loaded, unknown, rows), json)


def _rows(rows: int, output: str, seconds: float) -> Document:
    from agglearn.report.document import Document

    return Document(
        title=f"{output}: {rows:,} records in {seconds:.1f} s",
        data={"rows": rows, "path": output, "seconds": seconds},
    )


@app.command()
def sample(
    model: ModelPath,
    n: Annotated[int, typer.Option("-n", "--records", help="How many records to draw.")],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A .parquet or .csv file, or spark:TABLE_OR_PATH.")
    ],
    threads: Threads = None,
    seed: Seed = 0,
    master: Master = None,
    spark_conf: SparkConf = None,
    json: Json = False,
) -> None:
    """Draw synthetic records, with their label, from a model, here or on a Spark cluster."""
    from agglearn.cli.output import record_writer
    from agglearn.model.draw import sample as draw
    from agglearn.model.format import load_model
    from agglearn.runtime.progress import meter

    began = time.perf_counter()
    loaded = load_model(model)
    if n < 1:
        raise InputError(f"{n} records cannot be drawn: ask for at least 1")
    check_bounds(records=n)
    check_seed(seed)
    use_session(master, spark_conf, on_spark(output))
    if on_spark(output):
        sample_to(loaded, n, output, seed)
        show(_rows(n, output, time.perf_counter() - began), json)
        return
    with record_writer(Path(output)) as write, meter("drawing", n, show=not json) as advance:
        for table in draw(loaded, n, seed=seed, threads=threads):
            write(table)
            advance(table.num_rows)
    show(_rows(n, output, time.perf_counter() - began), json)


@app.command()
def compare(
    train: Annotated[str, typer.Argument(metavar="TRAIN", help="Training records.")],
    test: Annotated[str | None, typer.Argument(metavar="[TEST]", help="Test records.")] = None,
    label: Annotated[str, typer.Option("--label", help="Column to predict.")] = ...,  # type: ignore[assignment]
    positive: Positive = None,
    test_share: Annotated[float, typer.Option(help="Share held out to test on, without TEST.")] = 0.2,
    models: Annotated[
        str, typer.Option(help="Which models, with commas.")
    ] = "maxent,logistic,naive_bayes,best_pair,tan",
    exclude: Annotated[list[str] | None, typer.Option(help="Columns to leave out; * matches.")] = None,
    categorical: Annotated[list[str] | None, typer.Option(help="Columns of categories; * matches.")] = None,
    numeric: Annotated[list[str] | None, typer.Option(help="Columns of quantities; * matches.")] = None,
    bins: Annotated[
        int | None, typer.Option(help="Bins of a numeric column (default: by the records, 10 to 20).")
    ] = Coding.bins,
    binning: Annotated[str, typer.Option(help="quantile or width.")] = Coding.binning,
    max_modalities: Annotated[
        int | None, typer.Option(help="Values kept of a column (default: all); rarer ones are folded.")
    ] = Coding.max_modalities,
    chains: Annotated[int | None, typer.Option(help="Number of chains (default: by the records).")] = None,
    iterations: Annotated[int, typer.Option(help="The most iterations.")] = FitSettings.iterations,
    threads: Threads = None,
    seed: Seed = 0,
    separator: Separator = None,
    encoding: Encoding = "utf8",
    missing: Missing = None,
    json: Json = False,
) -> None:
    """Put the field beside its baselines and the logistic that sees every record, on your data.

    Every model's penalty is chosen on a validation part of the training records, never on the test.
    """
    from agglearn.judge.comparison import compare as run

    result = run(
        train,
        test,
        label=label,
        positive=positive,
        test_share=test_share,
        models=tuple(names([models])),
        fit_settings=FitSettings(chains=chains, iterations=iterations, seed=seed),
        threads=threads,
        seed=seed,
        exclude=names(exclude),
        categorical=names(categorical),
        numeric=names(numeric),
        bins=bins,
        binning=binning,
        max_modalities=max_modalities,
        read=read_options(separator, encoding, missing),
        show_progress=not json,
        progress=(lambda doing: None) if json else say,
    )
    show(result.document(), json)
