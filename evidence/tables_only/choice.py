"""What it costs to have no records to choose settings by. λ_θ and λ_μ of a field (ten quantile bins, all
pairs) come from tables alone in three ways: by the *rule* from the counts of all training records; chosen
with `--lambda-theta auto` on the *validation* tables of a fifth of the training records, the field being
fitted to the others; and by cross-validation over five *parts* of all training records. Each is set against
the best of a grid of fits to the same tables, the best being chosen on the test records themselves, which no
way of choosing may look at. *Loss* is the NLLH on the test records that is lost against that best fit; it can
be negative, as the grid has gaps. The best of a grid is in part the luckiest: two fits that are equally good
differ by about 0.002 on a single set of test records. *Cost* is what choosing takes beyond the final fit, in
fits: as counted (it may not exceed 3) and by the clock. All of it again with three tenths of the records, of
test records too, where settings matter more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np

import agglearn
from agglearn import Model
from agglearn.records.split import assign
from agglearn.train.settings import FitSettings
from evidence.figures import BLUE, GREEN, GREY, ORANGE, figure
from evidence.page import picture, spread, table
from evidence.runner import Cell, Results, Value
from evidence.splits import DATA_SETS, TITLES, Part, Split, split
from evidence.timing import THREADS

TITLE = "Settings from tables alone"
FIGURE = "tables-only-choice.svg"
TARGET = 0.002

WAYS = {"rule": "rule", "valid": "validation tables", "parts": "five parts"}
_FITTED_TO = {"rule": "whole", "valid": "train", "parts": "whole"}
_COLOURS = {"rule": GREY, "valid": BLUE, "parts": ORANGE}
_PARTS = 5
_SHARES = (1.0, 0.3)

_Runs: TypeAlias = dict[tuple[str, float, str], list[Value]]


@dataclass(frozen=True)
class Sizes:
    """Splits, the grid, and the shares of the records used."""

    seeds: tuple[int, ...]
    lambda_theta: tuple[float, ...]
    lambda_mu: tuple[float, ...]
    shares: tuple[float, ...]


FULL = Sizes((0, 1, 2, 3, 4), (4.0, 8.0, 16.0, 32.0, 64.0), (0.1, 1.0), (1.0, 0.3))
QUICK = Sizes((0,), (4.0, 16.0, 64.0), (0.1,), (0.3,))


def cells(config: Sizes) -> list[Cell]:
    """For each split a cell for the grid on each set of tables, and one for each way of choosing."""
    found = []
    for share, name, seed in product(config.shares, DATA_SETS, config.seeds):
        data = {"data": name, "seed": seed, "share": share}
        stem = f"{_stem(name, share)}seed{seed}"
        for tables in ("train", "whole"):
            grid = {"lambda_theta": list(config.lambda_theta), "lambda_mu": list(config.lambda_mu)}
            work = partial(measure_grid, name, seed, tables, share, config)
            found.append(Cell(f"{stem}-grid-{tables}", {**data, **grid}, work))
        for way in WAYS:
            work = partial(measure_way, name, seed, way, share)
            found.append(Cell(f"{stem}-way-{way}", {**data, "way": way}, work))
    return found


def _stem(name: str, share: float) -> str:
    """How the names of the cells of a data set begin."""
    return f"{name}-{round(100 * share):03d}-"


def measure_grid(name: str, seed: int, tables: str, share: float, config: Sizes) -> Value:
    """NLLH on the test records of every fit of the grid."""
    parts = split(name, "quantile", seed, share=share)
    data = getattr(parts, tables).data
    fits = []
    for theta, mu in product(config.lambda_theta, config.lambda_mu):
        model = agglearn.fit(data, FitSettings(theta, mu, seed=seed), threads=THREADS)
        fits.append({"lambda_theta": theta, "lambda_mu": mu, "nllh": _test(parts, model)})
    return {"fits": fits}


def measure_way(name: str, seed: int, way: str, share: float) -> Value:
    """NLLH on the test records with settings from tables alone, and what choosing them cost."""
    parts = split(name, "quantile", seed, share=share)
    by_rule = FitSettings(seed=seed)
    whole = parts.whole.data
    if way == "rule":
        return _found(parts, agglearn.fit(whole, by_rule, threads=THREADS))
    auto = replace(by_rule, lambda_theta="auto")
    # So that nothing is compiled or loaded while the clock runs.
    agglearn.fit(whole, by_rule, threads=THREADS)
    if way == "valid":
        data, valid = parts.train.data, parts.valid.data
        model = agglearn.fit(data, auto, threads=THREADS, valid=valid)
    else:
        data = whole
        model = agglearn.fit(_taken_apart(parts.whole, seed), auto, threads=THREADS)
    record = model.record
    assert record.choice is not None
    given = replace(by_rule, lambda_theta=record.lambda_theta, lambda_mu=record.lambda_mu)
    again = agglearn.fit(data, given, threads=THREADS)
    return {
        **_found(parts, model),
        "work": round(record.choice.work, 3),
        "seconds": round(record.seconds, 3),
        "one_fit": round(again.record.seconds, 3),
        "as_if_given": bool(np.array_equal(again.field.theta, model.field.theta)),
        "path": record.choice.path,
    }


def _taken_apart(whole: Part, seed: int) -> list[Any]:
    """The tables of five random parts of records."""
    shares = {f"part{k}": 1 / _PARTS for k in range(1, _PARTS)}
    which = assign(0, len(whole.y), 1000 + seed, shares)
    parts = [replace(whole, codes=whole.codes[:, which == k], y=whole.y[which == k]) for k in range(_PARTS)]
    return [part.data for part in parts]


def _found(parts: Split, model: Model) -> Value:
    return {
        "nllh": _test(parts, model),
        "lambda_theta": model.record.lambda_theta,
        "lambda_mu": model.record.lambda_mu,
    }


def _test(parts: Split, model: Model) -> float:
    return round(parts.test.held_out.nllh(model.field), 5)


def section(results: Results, images: Path) -> list[str]:
    """Losses and costs of every way, and a figure of the losses."""
    runs: _Runs = {}
    for share, name, way in product(_SHARES, DATA_SETS, WAYS):
        found = _runs(results, name, share, way)
        if found:
            runs[name, share, way] = found
    if not runs:
        return []
    rows = []
    for (name, share, way), found in runs.items():
        thetas = [run["lambda_theta"] for run in found]
        losses = [run["loss"] for run in found]
        work = [run["work"] for run in found if "work" in run]
        clock = [(run["seconds"] - run["one_fit"]) / run["one_fit"] for run in found if "work" in run]
        rows.append(
            [
                f"{_title(name, share)}, {WAYS[way]}",
                f"{min(thetas):.3g} to {max(thetas):.3g}",
                ", ".join(f"{mu:g}" for mu in sorted({run["lambda_mu"] for run in found})),
                ", ".join(f"{best:g}" for best in sorted({run["best"] for run in found})),
                spread(losses),
                f"{max(losses):.4f}",
                f"{fmean(work):.2f}, at most {max(work):.2f}" if work else "0",
                f"{fmean(clock):.2f}" if clock else "0",
            ]
        )
    header = ["", "λ_θ", "λ_μ", "best λ_θ", "loss", "largest", "cost, counted", "by the clock"]
    _draw(runs, images / FIGURE)
    words = []
    for share in _SHARES:
        lost = {key: [run["loss"] for run in found] for key, found in runs.items() if key[1] == share}
        if lost:
            words += ["", _verdict(share, lost)]
    return [*table(header, rows), *words, *picture(FIGURE, "NLLH lost on test records, for each split")]


def _title(name: str, share: float) -> str:
    return TITLES[name] if share == 1 else f"{share:.0%} of {TITLES[name]}"


def _verdict(share: float, losses: dict[tuple[str, float, str], list[float]]) -> str:
    """Which ways lose more than they may."""
    over = [
        f"{TITLES[name]} by {WAYS[way]}" for (name, _, way), lost in losses.items() if fmean(lost) > TARGET
    ]
    which = "all records" if share == 1 else f"{share:.0%} of the records"
    words = f"With {which}, no way loses more than {TARGET} NLLH in the mean over splits."
    if over:
        words = f"With {which}, the mean loss is above {TARGET} NLLH for {', '.join(over)}."
    many = [loss for lost in losses.values() for loss in lost]
    return f"{words} A single split lost more in {sum(loss > TARGET for loss in many)} of {len(many)} cases."


def _runs(results: Results, name: str, share: float, way: str) -> list[Value]:
    """What a way found on each split, with its loss against the best of the grid on the same tables."""
    found = []
    for cell, run in results.starting(_stem(name, share)).items():
        grid = cell.replace(f"-way-{way}", f"-grid-{_FITTED_TO[way]}")
        if cell.endswith(f"-way-{way}") and grid in results:
            best = max(results[grid]["fits"], key=lambda fit: fit["nllh"])
            found.append({**run, "loss": best["nllh"] - run["nllh"], "best": best["lambda_theta"]})
    return found


def _draw(runs: _Runs, target: Path) -> None:
    panels = list(dict.fromkeys((name, share) for name, share, _ in runs))
    with figure(target, 9.0, 3.4) as drawing:
        axes = drawing.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (name, share) in zip(axes, panels, strict=True):
            axis.axhline(TARGET, color=GREEN, lw=1.2, ls="--")
            axis.axhline(0, color=GREY, lw=0.8)
            for x, way in enumerate(WAYS):
                losses = [run["loss"] for run in runs.get((name, share, way), [])]
                if losses:
                    axis.scatter(np.full(len(losses), x), losses, 34, _COLOURS[way], alpha=0.7, lw=0)
                    axis.plot([x - 0.22, x + 0.22], [fmean(losses)] * 2, color=_COLOURS[way], lw=2)
            axis.set(title=_title(name, share), xlim=(-0.5, len(WAYS) - 0.5))
            axis.set_xticks(range(len(WAYS)), list(WAYS))
            axis.grid(axis="y")
        axes[0].set_ylabel("NLLH lost on test records")
