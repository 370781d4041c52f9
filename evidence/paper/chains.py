"""NLLH on test records by the number of chains (the paper's Gibbs samples), mean and standard deviation over
seeds of the chains, on one split: Adult's published one, and a random fifth of Bank. All in the authors' ten
bins of equal width.

- *agglearn*: the defaults, but for the number of chains; λ_θ chosen on validation records at the default
  number.
- *Authors' training*: what their published notebook does on Adult (`evidence/paper/notebook.py`): tables
  of the single features beside the pairs, independent start, constant steps of 0.01, the last weights kept,
  200 iterations, λ_θ = 100, λ_μ = 1. Its own figures stand beside ours.

The logistic is fitted to the training records, its penalty chosen on validation records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from agglearn.judge.contenders import climb
from agglearn.train.settings import FitSettings
from evidence.figures import BLUE, GREY, ORANGE, figure
from evidence.page import picture, spread, table
from evidence.paper.nllh_fits import FIRST, GRID, Logistic, fit_field, judge
from evidence.paper.notebook import Notebook, train_as_authors
from evidence.paper.published import (
    NOTEBOOK_CHAINS,
    NOTEBOOK_ITERATIONS,
    NOTEBOOK_TABLES,
)
from evidence.runner import Cell, Results, Value
from evidence.splits import DATA_SETS, TITLES, Split, split

TITLE = "Number of chains"

_METHODS = {"ours": "agglearn", "authors": "authors' training"}
_PLATEAU = 0.001  # NLLH within which a number of chains is taken to be enough


@dataclass(frozen=True)
class Sizes:
    """How much is run: share of the records, chains, seeds, and iterations of the authors' training."""

    share: float
    chains: tuple[int, ...]
    seeds: int
    iterations: int


FULL = Sizes(1.0, (100, 500, 1_000, 2_000, 10_000, 50_000), 5, NOTEBOOK_ITERATIONS)
QUICK = Sizes(0.3, (100, 1_000, 10_000), 2, 60)


def cells(config: Sizes) -> list[Cell]:
    """The logistic of each data set, and a fit for each number of chains and seed."""
    found = []
    for name in DATA_SETS:
        about: Value = {"share": config.share}
        found.append(Cell(f"{name}-logistic", about, partial(_logistic, name, config.share)))
        for method in _METHODS:
            for chains in config.chains:
                for seed in range(config.seeds):
                    settings = about | ({"iterations": config.iterations} if method == "authors" else {})
                    work = partial(_fit, name, method, chains, seed, config)
                    found.append(Cell(f"{name}-{method}-{chains:06d}-seed{seed}", settings, work))
    return found


def section(results: Results, images: Path) -> list[str]:
    """NLLH by number of chains, as a table and as the paper's plot."""
    curves = {(name, method): _curve(results, name, method) for name in DATA_SETS for method in _METHODS}
    numbers = sorted({chains for curve in curves.values() for chains in curve} | NOTEBOOK_CHAINS.keys())
    there = [key for key, curve in curves.items() if curve]
    header = ["chains", *(f"{TITLES[name]}, {_METHODS[method]}" for name, method in there)]
    rows = [
        [
            f"{n:,}",
            *(spread(curves[key][n]) if n in curves[key] else "" for key in there),
            f"{NOTEBOOK_CHAINS[n]:.4f}" if n in NOTEBOOK_CHAINS else "",
        ]
        for n in numbers
    ]
    lines = table([*header, "Adult, authors' notebook"], rows)
    _draw(curves, results, images / "paper-chains.svg")
    lines += picture("paper-chains.svg", "NLLH on test records against the number of chains")
    enough = [f"{_enough(curves[key]):,} ({TITLES[key[0]]}, {_METHODS[key[1]]})" for key in there]
    if enough:
        lines += [f"Chains from which on the mean is within {_PLATEAU:g} of the last: {', '.join(enough)}."]
    found = [f"{TITLES[n]} {_at(results, n):.4f}" for n in DATA_SETS if f"{n}-logistic" in results]
    return [*lines, *([f"The logistic: {', '.join(found)}."] if found else [])]


# -- what is run ---------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _split(name: str, tables: str, share: float) -> Split:
    return split(name, "width", 0, tables=tables, share=share)


def _logistic(name: str, share: float) -> Value:
    data = _split(name, "pairs", share)
    on_train = Logistic(data.train)
    l2 = climb(GRID, lambda l2: judge(on_train.fit(l2), data.valid), FIRST)
    return {"nllh": judge(Logistic(data.whole).fit(l2), data.test), "lambda": l2}


@lru_cache(maxsize=2)
def _penalty(name: str, share: float) -> float:
    """λ_θ of the best NLLH on validation records, with the default number of chains."""
    data = _split(name, "pairs", share)

    def score(l2: float) -> float:
        return judge(fit_field(data.train, FitSettings(lambda_theta=l2)), data.valid)

    return climb(GRID, score, FIRST)


def _fit(name: str, method: str, chains: int, seed: int, config: Sizes) -> Value:
    if method == "ours":
        data = _split(name, "pairs", config.share)
        penalty = _penalty(name, config.share)
        model = fit_field(data.whole, FitSettings(lambda_theta=penalty, chains=chains, seed=seed))
    else:
        data = _split(name, NOTEBOOK_TABLES, config.share)
        settings = Notebook(chains=chains, iterations=config.iterations, seed=seed)
        model = train_as_authors(data.whole, settings)
        penalty = settings.lambda_theta
    return {"nllh": judge(model, data.test), "lambda": penalty}


# -- how it is shown -----------------------------------------------------------------------------


def _curve(results: Results, name: str, method: str) -> dict[int, list[float]]:
    """NLLH of every seed by the number of chains."""
    curve: dict[int, list[float]] = {}
    for cell, found in results.starting(f"{name}-{method}-").items():
        curve.setdefault(int(cell.split("-")[2]), []).append(found["nllh"])
    return curve


def _at(results: Results, name: str) -> float:
    return float(results[f"{name}-logistic"]["nllh"])


def _enough(curve: dict[int, list[float]]) -> int:
    """The fewest chains from which on the mean is near that of the most chains."""
    numbers = sorted(curve)
    last = fmean(curve[numbers[-1]])
    far = [n for n in numbers if abs(fmean(curve[n]) - last) > _PLATEAU]
    return numbers[numbers.index(far[-1]) + 1] if far else numbers[0]


def _draw(curves: dict[tuple[str, str], dict[int, list[float]]], results: Results, target: Path) -> None:
    names = [name for name in DATA_SETS if any(curve for key, curve in curves.items() if key[0] == name)]
    if not names:
        return
    with figure(target, 1.0 + 4.4 * len(names), 3.7) as drawing:
        for name, axes in zip(names, drawing.subplots(1, len(names), squeeze=False)[0], strict=True):
            for method, colour in (("authors", ORANGE), ("ours", BLUE)):
                _error_bars(axes, curves[name, method], colour, _METHODS[method])
            if name == "adult":
                axes.plot(
                    *zip(*NOTEBOOK_CHAINS.items(), strict=True), "x", color=GREY, label="authors' notebook"
                )
            if f"{name}-logistic" in results:
                height = _at(results, name)
                axes.axhline(height, color=GREY, lw=1, ls=(0, (4, 3)))
                axes.text(0.01, height, "logistic", color=GREY, va="top", transform=_across(axes))
            axes.set_xscale("log")
            axes.set(xlabel="chains", ylabel="NLLH on test records", title=TITLES[name])
            axes.grid()
            axes.legend(loc="lower right")


def _error_bars(axes: Any, curve: dict[int, list[float]], colour: str, words: str) -> None:
    numbers: Sequence[int] = sorted(curve)
    if not numbers:
        return
    spreads = [stdev(curve[n]) if len(curve[n]) > 1 else 0.0 for n in numbers]
    means = [fmean(curve[n]) for n in numbers]
    axes.errorbar(numbers, means, spreads, color=colour, lw=1.6, marker="o", ms=4, capsize=3, label=words)


def _across(axes: Any) -> Any:
    """Along x in shares of the panel, along y in data."""
    return axes.get_yaxis_transform()
