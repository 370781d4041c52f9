"""The verb that makes a model: fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agglearn.cli.app import Json, Seed, Threads, app, say, show
from agglearn.errors import InputError


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
            "cross-validation over several TABLES (default: a rule from the counts)."
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
    iterations: Annotated[int, typer.Option(help="The most iterations.")] = 500,
    engine: Annotated[str, typer.Option(help="local, or exact for a handful of small features.")] = "local",
    start: Annotated[str, typer.Option(help="tree or independent.")] = "tree",
    gradient: Annotated[str, typer.Option(help="rescaled or plain.")] = "rescaled",
    tolerance: Annotated[
        float, typer.Option(help="Stop when predicted log-odds move by less in ten iterations.")
    ] = 0.05,
    valid: Annotated[
        str | None, typer.Option(help="An .agg of other records, to score on and choose penalties by.")
    ] = None,
    threads: Threads = None,
    seed: Seed = 0,
    checkpoint: Annotated[str | None, typer.Option(help="Folder to keep the state of the run in.")] = None,
    resume: Annotated[str | None, typer.Option(help="Such a folder to go on from.")] = None,
    checkpoint_every: Annotated[float, typer.Option(help="Seconds between two checkpoints.")] = 30.0,
    json: Json = False,
) -> None:
    """Fit the maximum-entropy model to tables."""
    from agglearn.model.model import FORMAT, Model
    from agglearn.report.document import Measured
    from agglearn.runtime.files import output_path, refuse_foreign
    from agglearn.runtime.progress import meter
    from agglearn.tables.format import load
    from agglearn.train.checkpoint import Checkpoints
    from agglearn.train.fit_report import FitReport
    from agglearn.train.select.choose import NOTHING_TO_CHOOSE_ON
    from agglearn.train.settings import FitSettings

    target = output_path(output, ".model")
    refuse_foreign(target, FORMAT)
    if checkpoint and resume and checkpoint != resume:
        raise InputError("--resume goes on in its own folder: leave out --checkpoint")
    folder = resume or checkpoint
    if checkpoint and not resume and Path(checkpoint).is_dir() and any(Path(checkpoint).iterdir()):
        raise InputError(f"{checkpoint} is not empty: go on with --resume {checkpoint}, or name a new folder")
    settings = FitSettings(
        lambda_theta=_penalty("--lambda-theta", lambda_theta),
        lambda_mu=_penalty("--lambda-mu", lambda_mu),
        chains=chains,
        iterations=iterations,
        engine=engine,
        start=start,
        gradient=gradient,
        tolerance=tolerance,
        seed=seed,
    )
    data = [load(path) for path in tables]
    heldout = load(valid) if valid else None
    if settings.to_choose and heldout is None and len(data) < 2:
        say(NOTHING_TO_CHOOSE_ON)
    checkpoints = Checkpoints(Path(folder), checkpoint_every) if folder else None
    if resume and checkpoints and not checkpoints.begun:
        say(f"{resume} holds no checkpoint: the run starts from the beginning")
    with meter("fitting", iterations, "iterations", show=not json) as advance:
        model, seconds = Model.fit(
            data,
            settings,
            label=label,
            threads=threads,
            on_iteration=lambda state: advance(1, _misfit(state.history[-1])),
            valid=heldout,
            checkpoints=checkpoints,
        )
    model.save(target)
    last = model.history[-1]
    score = None  # as evaluate will say: the chains have moved since training last looked at them
    if heldout is not None:
        score = model.evaluate_tables(heldout, threads)
    report = FitReport(
        iterations=model.summary["iterations"],
        chains=model.summary["chains"],
        seconds=seconds,
        lambda_theta=model.summary["lambda_theta"],
        lambda_mu=model.summary["lambda_mu"],
        stopped_because=model.summary["stopped_because"],
        misfit_d=last["misfit_d"],
        misfit_c=last["misfit_c"],
        steps_halved=model.summary["steps_halved"],
        valid=Measured(score.nllh, score.nllh_se) if score else None,
        choice=model.summary.get("choice"),
    )
    show(report.document().named(str(target)).followed_by(path=str(target)), json)


def _penalty(option: str, text: str | None) -> float | Literal["auto"] | None:
    if text is None or text == "auto":
        return None if text is None else "auto"
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is neither a number nor auto") from None


def _misfit(entry: Mapping[str, Any]) -> str:
    """An iteration in a few words, beside the bar."""
    from agglearn.report.document import Measured
    from agglearn.train.fit_report import misfit_words, valid_words

    said = misfit_words(entry["misfit_d"], entry["misfit_c"])
    if "valid_nllh" in entry:
        said += f"; {valid_words(Measured(entry['valid_nllh'], entry['valid_nllh_se']))}"
    return said
