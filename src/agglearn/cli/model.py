"""Verbs about fitted models: evaluate, predict, sample, compare."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agglearn.cli.app import Json, ModelPath, Seed, Threads, app, names, print_json, say
from agglearn.cli.data import Encoding, Missing, Positive, Separator, read_options
from agglearn.errors import InputError

if TYPE_CHECKING:
    from agglearn.judge.comparison import Comparison
    from agglearn.judge.scores import RecordScore
    from agglearn.model.model import Model
    from agglearn.trust.calibration import Calibration


@app.command()
def evaluate(
    model: ModelPath,
    records: Annotated[
        list[str], typer.Argument(metavar="RECORDS|TABLES", help="Files of records, or one .agg folder.")
    ],
    threads: Threads = None,
    separator: Separator = None,
    encoding: Encoding = "utf8",
    missing: Missing = None,
    json: Json = False,
) -> None:
    """Score a model on records that have their label, or on tables of records it was not fitted on."""
    from agglearn.judge.evaluate import evaluate as run
    from agglearn.model.format import load_model
    from agglearn.records.sources import open_source
    from agglearn.runtime.progress import meter

    loaded = load_model(model)
    if len(records) == 1 and records[0].rstrip("/").endswith(".agg"):
        _evaluate_tables(loaded, records[0], threads, json)
        return
    source = open_source(records, read_options(separator, encoding, missing))
    with meter("scoring", source.rows, show=not json) as advance:
        score, unknown = run(loaded, source, threads, advance)
    _say_unknown(loaded, unknown)
    if json:
        print_json(score.to_json())
    else:
        _show_score(score)


def _evaluate_tables(model: Model, path: str, threads: int | None, json: bool) -> None:
    from agglearn.tables.format import load
    from agglearn.trust.score import score_tables

    score = score_tables(model, load(path), threads=threads)
    if json:
        print_json(score.to_json())
        return
    print(f"{score.rows:,.0f} records behind the tables, {score.positives / score.rows:.2%} positive")
    print(f"  NLLH     {score.nllh:.4f} ± {score.nllh_se:.4f}   (1 − log loss / entropy of the label)")
    print(f"  log loss {score.log_loss:.4f}")
    print(f"  AUC      {score.auc:.4f}   as the model itself expects it")
    print(f"  Brier    {score.brier:.4f}   as the model itself expects it")
    own = f"± {score.records_se:.4f}"
    print(f"  ± is for all records of this kind; the very ones behind the tables give this {own}.")
    print("  The tables must be of other records than the model's. They cannot show all: NLLH is too high")
    print("  where three or more features hang together, too low where the model has too little penalty.")
    _show_calibration(score.calibration)


def _show_calibration(calibration: Calibration) -> None:
    print(
        f"  calibration: {calibration.far:,} of {calibration.cells:,} cells are over 3 standard errors off,"
    )
    print(f"  about {calibration.far_by_chance:,.1f} would be by chance; farthest off are")
    for group in (*calibration.tables[:3], *calibration.features[:3]):
        mean_square = group.chi2 / max(group.cells, 1)
        print(f"    {group.name:<40} mean z² {mean_square:>5.2f} over {group.cells:,} cells")
    print(f"  {'z':>9}{'records':>10}{'expected':>10}{'observed':>10}  in the cells farthest off")
    for cell in calibration.worst[:5]:
        rates = f"{cell.expected:>10.2%}{cell.observed:>10.2%}"
        print(f"  {cell.z:>+9.1f}{cell.records:>10,.0f}{rates}  {cell.name}")


def _say_unknown(model: Model, unknown: Any) -> None:
    for name, count in zip(model.schema.names, unknown.tolist(), strict=True):
        if count:
            say(f"{count:,} values of {name} are unknown to the model and add nothing to the scores")


def _show_score(score: RecordScore) -> None:
    print(f"{score.rows:,} records, {score.positives / score.rows:.2%} positive")
    print(f"  NLLH     {score.nllh:.4f}   (1 − log loss / entropy of the label)")
    print(f"  log loss {score.log_loss:.4f}")
    print(f"  AUC      {score.auc:.4f}")
    print(f"  Brier    {score.brier:.4f}")
    print("  calibration:  records  predicted   observed")
    for b in score.calibration:
        print(
            f"              {b.count:>9,}  {b.predicted:>8.2%}  {b.observed:>8.2%} ± {b.standard_error:.2%}"
        )


@app.command()
def predict(
    model: ModelPath,
    records: Annotated[list[str], typer.Argument(metavar="RECORDS...", help="Files, globs or folders.")],
    output: Annotated[str, typer.Option("--output", "-o", help="A .parquet or .csv file to write.")],
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
    json: Json = False,
) -> None:
    """Write P(Y=1) of each record, streaming files of any size."""
    import numpy as np
    from scipy.special import expit

    from agglearn.cli.output import record_writer
    from agglearn.model.format import load_model
    from agglearn.model.predict import code_records
    from agglearn.records.sources import expand, open_source
    from agglearn.runtime.progress import meter
    from agglearn.runtime.threads import thread_count
    from agglearn.schema.schema import require_columns

    began = time.perf_counter()
    loaded = load_model(model)
    source = open_source(records, read_options(separator, encoding, missing))
    kept = names(keep)
    require_columns([*loaded.schema.names, *kept], source.columns)
    for name in ("probability", *(("lower", "upper") if interval is not None else ())):
        if name in kept:
            raise InputError(f"--keep {name}: the score has that name; rename the column of the records")
    if Path(output).exists() and any(path.samefile(output) for path in expand(records)):
        raise InputError(f"{output} is one of the files with records: name another output")
    posterior = None
    if interval is not None:
        from agglearn.trust.intervals import check_level, model_posterior

        check_level(interval)
        posterior = model_posterior(loaded, seed=seed, threads=threads)
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
    _say_unknown(loaded, unknown)
    _show_rows(rows, output, time.perf_counter() - began, json)


def _show_rows(rows: int, output: str, seconds: float, json: bool) -> None:
    if json:
        print_json({"rows": rows, "path": output, "seconds": seconds})
    else:
        print(f"{output}: {rows:,} records in {seconds:.1f} s")


@app.command()
def sample(
    model: ModelPath,
    n: Annotated[int, typer.Option("-n", "--records", help="How many records to draw.")],
    output: Annotated[str, typer.Option("--output", "-o", help="A .parquet or .csv file to write.")],
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw synthetic records, with their label, from a model."""
    from agglearn.cli.output import record_writer
    from agglearn.model.draw import sample as draw
    from agglearn.model.format import load_model
    from agglearn.runtime.progress import meter

    began = time.perf_counter()
    loaded = load_model(model)
    if n < 1:
        raise InputError(f"{n} records cannot be drawn: ask for at least 1")
    with record_writer(Path(output)) as write, meter("drawing", n, show=not json) as advance:
        for table in draw(loaded, n, seed=seed, threads=threads):
            write(table)
            advance(table.num_rows)
    _show_rows(n, output, time.perf_counter() - began, json)


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
    bins: Annotated[int, typer.Option(help="Bins of a numeric column.")] = 10,
    binning: Annotated[str, typer.Option(help="quantile or width.")] = "quantile",
    max_modalities: Annotated[
        int, typer.Option(help="Values kept of a column; rarer ones are folded.")
    ] = 1000,
    chains: Annotated[int | None, typer.Option(help="Number of chains (default: by the records).")] = None,
    iterations: Annotated[int, typer.Option(help="The most iterations.")] = 500,
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
    from agglearn.train.settings import FitSettings

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
    )
    if json:
        print_json(result.to_json())
    else:
        show_comparison(result)


def show_comparison(result: Comparison) -> None:
    """The paper's table, on the user's data."""
    document = result.to_json()
    print(f"trained on {document['train_rows']:,} records, tested on {document['test_rows']:,}")
    print(f"  {'':<26}{'NLLH':>8}{'AUC':>8}{'seconds':>10}{'penalty':>9}   learnt from")
    for name, text, source in (
        ("logistic", "logistic regression", "records"),
        ("maxent", "agglearn", "tables"),
        ("tan", "tree-augmented Naive Bayes", "tables"),
        ("naive_bayes", "Naive Bayes", "tables"),
        ("best_pair", "best pair of features", "tables"),
    ):
        m = document["models"].get(name)
        if m is not None:
            print(
                f"  {text:<26}{m['nllh']:>8.4f}{m['auc']:>8.4f}{m['seconds']:>10.2f}"
                f"{m['lambda_theta']:>9.3g}   {source}"
            )
