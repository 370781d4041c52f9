"""The verb that makes a model: fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agglearn.cli.app import Json, Seed, Threads, app, print_json, say
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
    from agglearn.model.fitting import fit as run
    from agglearn.model.format import FORMAT, save_model
    from agglearn.runtime.files import output_path, refuse_foreign
    from agglearn.runtime.progress import meter
    from agglearn.tables.format import load
    from agglearn.train.checkpoint import Checkpoints
    from agglearn.train.select.choose import nothing_to_choose_on
    from agglearn.train.settings import FitSettings, TrainingSettings

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
        tolerance=tolerance,
        seed=seed,
        training=TrainingSettings(start=start, gradient=gradient),
    )
    data = [load(path) for path in tables]
    heldout = load(valid) if valid else None
    if settings.to_choose and heldout is None and len(data) < 2:
        say(nothing_to_choose_on())
    checkpoints = Checkpoints(Path(folder), checkpoint_every) if folder else None
    if resume and checkpoints and not checkpoints.begun:
        say(f"{resume} holds no checkpoint: the run starts from the beginning")
    with meter("fitting", iterations, "iterations", show=not json) as advance:
        model = run(
            data,
            settings,
            label=label,
            threads=threads,
            on_iteration=lambda state: advance(1, _misfit(state.history[-1].to_json())),
            valid=heldout,
            checkpoints=checkpoints,
        )
    save_model(model, target)
    record = model.record
    last = record.history[-1].to_json()
    if heldout is not None:  # as evaluate will say: the chains have moved since the last look at them
        from agglearn.trust.score import score_tables

        score = score_tables(model, heldout, threads=threads)
        last |= {"valid_nllh": score.nllh, "valid_nllh_se": score.nllh_se}
    if record.steps_halved:
        say(f"the fit grew worse on the way: steps were halved {record.steps_halved} times")
    if json:
        print_json(
            {
                "iterations": record.iterations,
                "seconds": record.seconds,
                "lambda_theta": record.lambda_theta,
                "lambda_mu": record.lambda_mu,
                "stopped_because": record.stopped_because,
                "chains": record.chains,
                "misfit_d": last["misfit_d"],
                "misfit_c": last["misfit_c"],
                **{name: last[name] for name in ("valid_nllh", "valid_nllh_se") if name in last},
                **({"choice": record.choice.to_json()} if record.choice else {}),
                "path": str(target),
            }
        )
    else:
        n = f"{record.iterations} iterations of {record.chains:,} chains"
        print(f"{target}: {n} in {record.seconds:.1f} s ({record.stopped_because})")
        print(f"  penalty {record.lambda_theta:.3g}; {_misfit(last)}")
        if record.choice:
            _show_choice(record.choice.to_json())


def _penalty(option: str, text: str | None) -> float | Literal["auto"] | None:
    if text is None or text == "auto":
        return None if text is None else "auto"
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is neither a number nor auto") from None


def _show_choice(choice: Mapping[str, Any]) -> None:
    folds = f" of {choice['folds']} folds" if choice["folds"] > 1 else ""
    print(f"  penalties chosen on held-out tables{folds}, at the cost of {choice['work']:.1f} fits:")
    print("         λ_θ      λ_μ   NLLH beside the first, and the standard error of the last step")
    for n, point in enumerate(choice["path"]):
        gain = f"{point['gain']:+.4f} ± {point['gain_se']:.4f}" if n else ""
        print(f"    {point['lambda_theta']:>8.3g} {point['lambda_mu']:>8.3g}   {gain}".rstrip())
    print(f"    {choice['lambda_theta']:>8.3g} {choice['lambda_mu']:>8.3g}   taken")


def _misfit(entry: Mapping[str, Any]) -> str:
    text = f"misfit {entry['misfit_d']:.2%} of records, {entry['misfit_c']:.2%} of positives a table"
    if "valid_nllh" in entry:
        text += f"; NLLH on the validation tables {entry['valid_nllh']:.4f} ± {entry['valid_nllh_se']:.4f}"
    return text
