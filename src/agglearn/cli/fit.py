"""The verb that makes a model: fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from agglearn.cli.app import Json, Seed, Threads, app, say, say_if_replaced, show
from agglearn.cli.data import Encoding, Missing, Separator, open_input, read_options
from agglearn.cli.spark import Master, SparkConf, on_spark, use_session
from agglearn.errors import InputError
from agglearn.train.settings import FitSettings, TrainingSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from agglearn.tables.data import AggregatedData


@app.command()
def fit(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLES",
            help="An .agg folder; several, of disjoint records, are added up as merge does.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write, a name ending in .model.")],
    label: Annotated[str | None, typer.Option(help="The label, where the tables have several.")] = None,
    lambda_theta: Annotated[
        str | None,
        typer.Option(
            help="Penalty on θ, the weights that predict: a number, or auto to choose it on --valid or by "
            "cross-validation over several TABLES (default: one for each table, by its evidence)."
        ),
    ] = None,
    lambda_mu: Annotated[
        str | None,
        typer.Option(
            help="Penalty on how far μ goes from its start: a number, or auto (default: auto where "
            "--lambda-theta is, else 0.1)."
        ),
    ] = None,
    chains: Annotated[int | None, typer.Option(help="Number of chains (default: by the records).")] = None,
    iterations: Annotated[int, typer.Option(help="The most iterations.")] = FitSettings.iterations,
    engine: Annotated[
        str,
        typer.Option(help="local, exact for a handful of small features, or spark for chains on a cluster."),
    ] = FitSettings.engine,
    start: Annotated[str, typer.Option(help="tree or independent.")] = TrainingSettings.start,
    gradient: Annotated[str, typer.Option(help="rescaled or plain.")] = TrainingSettings.gradient,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Stop when predicted log-odds move by less in ten iterations (default: a fifteenth of "
            "what they are uncertain by)."
        ),
    ] = FitSettings.tolerance,
    valid: Annotated[
        str | None,
        typer.Option(
            help="An .agg of other records, or those records with their label, to score on and choose "
            "penalties by."
        ),
    ] = None,
    records: Annotated[
        list[str] | None,
        typer.Option(
            help="Files of records without labels, or spark:TABLE_OR_PATH, to learn X from (a label is not "
            "looked at)."
        ),
    ] = None,
    rake: Annotated[
        bool, typer.Option("--rake/--no-rake", help="Weight --records to agree with the tables.")
    ] = True,
    keep_records: Annotated[
        bool,
        typer.Option(
            "--keep-records/--no-keep-records",
            help="Keep some of --records, coded, in the model, to judge it by.",
        ),
    ] = True,
    labelled: Annotated[
        str | None, typer.Option(help="Further records with their label, none behind the tables: added up.")
    ] = None,
    public_tables: Annotated[
        list[str] | None,
        typer.Option(
            help="Public counts of features (census margins), to tell noisy TABLES of X: an .agg, or files "
            "with values and a count."
        ),
    ] = None,
    start_from: Annotated[
        str | None, typer.Option("--from", help="An earlier .model of the same features to begin from.")
    ] = None,
    prior: Annotated[
        str | None, typer.Option(help="An earlier .model that the penalty pulls to, instead of 0.")
    ] = None,
    prior_weight: Annotated[
        float, typer.Option(help="What the penalty is multiplied by where there is a --prior.")
    ] = 1.0,
    separator: Separator = None,
    encoding: Encoding = "utf8",
    missing: Missing = None,
    threads: Threads = None,
    seed: Seed = 0,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Folder to keep the run's state in, or hdfs://… and the like."),
    ] = None,
    resume: Annotated[str | None, typer.Option(help="Such a folder to go on from.")] = None,
    checkpoint_every: Annotated[float, typer.Option(help="Seconds between two checkpoints.")] = 30.0,
    master: Master = None,
    spark_conf: SparkConf = None,
    json: Json = False,
) -> None:
    """Fit the maximum-entropy model to tables."""
    from agglearn.model.fit_report import FitReport, iteration_words
    from agglearn.model.fitting import fit as run
    from agglearn.model.format import FORMAT, load_model, save_model
    from agglearn.report.document import Measured
    from agglearn.runtime.files import output_path, refuse_foreign
    from agglearn.runtime.progress import meter
    from agglearn.spark.storage import is_uri
    from agglearn.tables.format import load
    from agglearn.train.remote import checkpoints_in
    from agglearn.train.select.choose import nothing_to_choose_on

    target = output_path(output, ".model")
    refuse_foreign(target, FORMAT)
    say_if_replaced(target)
    if checkpoint and resume and checkpoint != resume:
        raise InputError("--resume goes on in its own folder: leave out --checkpoint")
    folder = resume or checkpoint
    elsewhere = folder is not None and is_uri(folder)
    if folder is not None and not elsewhere:
        one, other = Path(folder).resolve(), target.resolve()
        if one.is_relative_to(other) or other.is_relative_to(one):
            raise InputError(
                f"checkpoints in {folder} and the model {output} cannot be inside each other: name another "
                "folder for the checkpoints"
            )
    settings = FitSettings(
        lambda_theta=_penalty("--lambda-theta", lambda_theta),
        lambda_mu=_penalty("--lambda-mu", lambda_mu),
        chains=chains,
        iterations=iterations,
        engine=engine,
        tolerance=tolerance,
        seed=seed,
        training=TrainingSettings(start=start, gradient=gradient),
    )
    data = [load(path) for path in tables]
    read = on_spark(*(records or ()), labelled or "", valid or "")
    use_session(master, spark_conf, engine == "spark" or read or elsewhere)
    checkpoints = checkpoints_in(folder, checkpoint_every) if folder else None
    if checkpoint and not resume and checkpoints and checkpoints.begun:
        raise InputError(f"{checkpoint} is not empty: go on with --resume {checkpoint}, or name a new folder")
    heldout: Any = None
    if valid:
        heldout = load(valid) if _is_tables(valid) else open_input([valid])
    if prior is None and prior_weight != 1.0:
        raise InputError("--prior-weight needs a --prior")
    if settings.to_choose and heldout is None and len(data) < 2:
        say(nothing_to_choose_on())
    if resume and checkpoints and not checkpoints.begun:
        say(f"{resume} holds no checkpoint: the run starts from the beginning")
    with meter("fitting", iterations, "iterations", show=not json) as advance:
        model = run(
            data,
            settings,
            label=label,
            threads=threads,
            on_iteration=lambda state: advance(1, iteration_words(state.history[-1])),
            valid=heldout,
            checkpoints=checkpoints,
            records=open_input(records) if records else None,
            rake=rake,
            keep_records=keep_records,
            labelled=open_input([labelled]) if labelled else None,
            public_tables=_public(public_tables, load),
            start_from=load_model(start_from) if start_from else None,
            prior=load_model(prior) if prior else None,
            prior_weight=prior_weight,
            read=read_options(separator, encoding, missing),
            show_progress=not json,
        )
    save_model(model, target)
    valid_score = None
    last = model.record.history[-1]
    if valid and not _is_tables(valid) and last.valid_nllh is not None:  # by the records, and by no law of X
        valid_score = Measured(last.valid_nllh, last.valid_nllh_se or 0.0)
    elif heldout is not None and (
        model.chains is not None or not model.still
    ):  # as evaluate will say: the chains have moved since training last looked at them
        from agglearn.trust.score import score_tables

        score = score_tables(model, heldout, threads=threads)
        for doubt in score.document().warnings:
            say(doubt.text)
        valid_score = Measured(score.nllh, score.nllh_se) if score.known else None
    report = FitReport.of(model.record, valid_score)
    show(report.document().named(str(target)).followed_by(path=str(target)), json)


def _public(paths: list[str] | None, load: Callable[[str], AggregatedData]) -> Any:
    """Public tables: an .agg, or files that are still to be read."""
    if not paths:
        return None
    if len(paths) > 1 and any(_is_tables(path) for path in paths):
        raise InputError("--public-tables takes one .agg, or files: not several folders")
    return load(paths[0]) if _is_tables(paths[0]) else list(paths)


def _is_tables(path: str) -> bool:
    return path.rstrip("/").endswith(".agg")


def _penalty(option: str, text: str | None) -> float | Literal["auto"] | None:
    if text is None or text == "auto":
        return None if text is None else "auto"
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is neither a number nor auto") from None
