"""The rescaled gradient on θ, which compares rates of positives, against the plain one, which compares their
numbers; and our tree start against the independent one. NLLH on Adult's test records by iteration and by
seconds of training (scoring not counted, after compilation), median over seeds.

All four in the setting of the authors' notebook: Adult's published split in ten bins of equal width, tables
of the single features beside the pairs, λ_θ = 100, λ_μ = 1, constant steps of 0.01, the last weights kept;
10,000 chains as in the paper, where the notebook has 100,000. *Authors' step* is the same with the step of
their code (`evidence/paper/notebook.py`), which divides a gradient by the mean of the observed and the
expected count where agglearn divides by the larger: longer steps, as long as the two are far apart.
*Defaults*: agglearn's training on the pairs (long first steps that shrink, growing chains, averaged weights,
rates with a memory), with the same λ_θ.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from statistics import median
from typing import Any

from agglearn.train.settings import FitSettings, TrainingSettings
from evidence.figures import BLUE, GREEN, ORANGE, figure
from evidence.page import picture, table
from evidence.paper.nllh_fits import judge
from evidence.paper.notebook import LAMBDA_THETA, Notebook, authors_training, constant_steps
from evidence.paper.published import CHAINS, NOTEBOOK_GRADIENTS, NOTEBOOK_TABLES
from evidence.runner import Cell, Results, Value
from evidence.speed.curves import learning_curve
from evidence.splits import Split, split

TITLE = "Rescaled against plain gradient"

GRADIENTS, STARTS = ("rescaled", "plain"), ("tree", "independent")
_DEFAULTS = "defaults"
_SHOWN = (25, 50, 100, 200, 300, 500)  # iterations of the table
_EVERY = 5  # iterations between two points that are kept, past the first of them
_NEAR = 0.005  # NLLH below the best end that the table asks the time to
_ROOM = 0.09  # NLLH shown below the best


@dataclass(frozen=True)
class Sizes:
    """How much is run: share of the records, chains, iterations and seeds."""

    share: float
    chains: int
    iterations: int
    seeds: int


FULL = Sizes(1.0, CHAINS["adult"], 500, 3)
QUICK = Sizes(0.4, 2_000, 150, 1)


def cells(config: Sizes) -> list[Cell]:
    """A curve for each gradient, start and seed, and the defaults'."""
    found = []
    for seed in range(config.seeds):
        for gradient in GRADIENTS:
            for start in STARTS:
                work = partial(_curve, gradient, start, seed, config)
                found.append(Cell(f"{gradient}-{start}-seed{seed}", asdict(config), work))
            work = partial(_authors_curve, gradient, seed, config)
            found.append(Cell(f"authors-{gradient}-seed{seed}", asdict(config), work))
        found.append(Cell(f"{_DEFAULTS}-seed{seed}", asdict(config), partial(_default_curve, seed, config)))
    return found


def section(results: Results, images: Path) -> list[str]:
    """NLLH by iteration beside the notebook's, and how soon each is near the best."""
    curves = {f"{g} gradient, {s} start": _median(results, f"{g}-{s}-") for g in GRADIENTS for s in STARTS}
    curves |= {f"authors' step, {g}": _median(results, f"authors-{g}-") for g in GRADIENTS}
    curves[f"agglearn's {_DEFAULTS}"] = _median(results, f"{_DEFAULTS}-")
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return []
    goal = max(curve[-1][2] for curve in curves.values()) - _NEAR
    header = ["NLLH after iteration", *map(str, _SHOWN), f"reaches {goal:.3f} at iteration", "after seconds"]
    rows = []
    for name, curve in curves.items():
        at = {iteration: score for iteration, _, score in curve}
        reached = next(
            ((str(n), f"{s:.1f}" if s else "") for n, s, score in curve if score >= goal), ("never", "")
        )
        rows.append([name, *(f"{at[n]:.4f}" if n in at else "" for n in _SHOWN), *reached])
    for gradient, published in NOTEBOOK_GRADIENTS.items():
        told = [f"{published[n]:.4f}" if n in published else "" for n in _SHOWN]
        reached_at = next((str(n) for n, score in published.items() if score >= goal), "never")
        rows.append([f"authors' notebook, {gradient}", *told, reached_at, ""])
    _draw(curves, images / "paper-gradients.svg")
    what = "NLLH on Adult's test records by iteration and by seconds, for two gradients and two starts"
    lines = [*table(header, rows), *picture("paper-gradients.svg", what)]
    ends = [curve[-1][0] for name, curve in curves.items() if "gradient," in name]
    last = f"after {max(ends)} iterations" if ends else ""
    differ = [
        f"{start} start: {_end(curves, 'rescaled', start) - _end(curves, 'plain', start):+.4f}"
        for start in STARTS
        if all(f"{g} gradient, {start} start" in curves for g in GRADIENTS)
    ]
    if differ:
        lines += [f"Rescaled less plain {last}: {', '.join(differ)}. The optimum is the same for both."]
    return lines


# -- what is run ---------------------------------------------------------------------------------

Point = tuple[int, float, float]  # iteration, seconds, NLLH


@lru_cache(maxsize=1)
def _split(tables: str, share: float) -> Split:
    return split("adult", "width", 0, tables=tables, share=share)


def _curve(gradient: str, start: str, seed: int, config: Sizes) -> Value:
    data = _split(NOTEBOOK_TABLES, config.share)
    settings = _settings(gradient, seed, config)
    return trained(data, constant_steps(data.whole.layout, settings, start))


def _settings(gradient: str, seed: int, config: Sizes) -> Notebook:
    return Notebook(gradient=gradient, chains=config.chains, iterations=config.iterations, seed=seed)


def _authors_curve(gradient: str, seed: int, config: Sizes) -> Value:
    """The same training with the authors' step, by iteration alone: it is not written to be fast."""
    data = _split(NOTEBOOK_TABLES, config.share)
    settings = _settings(gradient, seed, config)
    kept = {
        n: judge(model, data.test)
        for n, model in enumerate(authors_training(data.whole, settings), start=1)
        if n <= _EVERY or n % _EVERY == 0
    }
    return {"iterations": list(kept), "nllh": list(kept.values())}


def _default_curve(seed: int, config: Sizes) -> Value:
    settings = FitSettings(lambda_theta=LAMBDA_THETA, seed=seed, iterations=config.iterations)
    return trained(_split("pairs", config.share), settings)


def trained(data: Split, settings: FitSettings) -> Value:
    """The learning curve of one training on all training records, thinned out."""
    _warm_up(data, settings.chains)
    curve = learning_curve(data.whole.data, settings, data.test.held_out)
    kept = [n for n in range(1, len(curve) + 1) if n <= _EVERY or n % _EVERY == 0 or n == len(curve)]
    return {
        "iterations": kept,
        "seconds": [round(curve[n - 1][0], 4) for n in kept],
        "nllh": [round(curve[n - 1][1], 5) for n in kept],
    }


@lru_cache
def _warm_up(data: Split, chains: int | None) -> None:
    """Have every kernel compiled before anything is timed."""
    for gradient in GRADIENTS:
        settings = FitSettings(chains=chains, iterations=20, training=TrainingSettings(gradient=gradient))
        learning_curve(data.whole.data, settings, data.test.held_out)


# -- how it is shown -----------------------------------------------------------------------------


def _median(results: Results, prefix: str) -> list[Point]:
    """Median seconds (0 where they were not taken) and NLLH over the seeds, at the iterations all have."""
    runs = list(results.starting(prefix).values())
    if not runs:
        return []
    points = [
        {
            n: (seconds, score)
            for n, seconds, score in zip(
                run["iterations"], run.get("seconds", [0.0] * len(run["nllh"])), run["nllh"], strict=True
            )
        }
        for run in runs
    ]
    common = sorted(set.intersection(*(set(run) for run in points)))
    return [(n, median(r[n][0] for r in points), median(r[n][1] for r in points)) for n in common]


def _end(curves: dict[str, list[Point]], gradient: str, start: str) -> float:
    return curves[f"{gradient} gradient, {start} start"][-1][2]


def _draw(curves: dict[str, list[Point]], target: Path) -> None:
    best = max(score for curve in curves.values() for _, _, score in curve)
    with figure(target, 9.8, 4.0) as drawing:
        left, right = drawing.subplots(1, 2, sharey=True)
        for name, curve in curves.items():
            iterations, seconds, scores = zip(*curve, strict=True)
            left.plot(iterations, scores, **_look(name), label=name)
            if seconds[-1]:
                right.plot(seconds, scores, **_look(name))
        for gradient, published in NOTEBOOK_GRADIENTS.items():
            mark = {"color": _look(gradient)["color"], "marker": "x", "ms": 5, "ls": ""}
            left.plot(*zip(*published.items(), strict=True), **mark, label=f"authors' notebook, {gradient}")
        left.set(xlabel="iteration", ylabel="NLLH on test records", ylim=(best - _ROOM, best + 0.004))
        left.set_xlim(left=0)
        right.set(xlabel="seconds", xlim=(0, max(curve[-1][1] for curve in curves.values())))
        left.legend(loc="lower right", fontsize=8.5)
        left.grid()
        right.grid()


def _look(name: str) -> dict[str, Any]:
    colour = ORANGE if "plain" in name else BLUE if "rescaled" in name else GREEN
    if "authors" in name:
        return {"color": colour, "lw": 1.0, "ls": ":"}
    return {"color": colour, "lw": 1.8, "ls": (0, (4, 2)) if "independent" in name else "-"}
