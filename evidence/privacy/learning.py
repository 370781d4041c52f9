"""Models from private tables of all pairs, as `aggregate --epsilon` and `fit` make them by default: bins by
the budget, noise on negatives and positives, taken out again before the fit. Bins and values are taken for
public, as they are for all models here. The field is beside Naive Bayes from the same noisy tables (with
noise taken out, by frequencies), models that look at the records under the same (ε, δ = 10⁻⁶; see *Rivals*),
records drawn from private laws (*Synthetic records*), and what was asked for: the figures of an earlier
recipe on one split, and more on Adult and Bank; what the field has on the first of these splits stands beside
them. *Exact tables* is the field by default without noise, on the
same splits ([the zoo](zoo.md)). NLLH on test records, means over splits and noise drawn anew, ± their
standard deviation; noise is simulated with the law and the scale of a release. A rival is compared with the
field on the same splits; where it was run on fewer of them, the field's mean over those stands behind it.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import agglearn
from agglearn.field.denoise import denoised
from agglearn.field.problem import make_problem
from agglearn.judge.baselines import naive_bayes
from agglearn.privacy.release import simulate
from agglearn.train.settings import FitSettings
from evidence.page import spread, table
from evidence.privacy import budgets, rivals, synthetic
from evidence.privacy.budgets import DELTA, EPSILONS, NAMES, Sizes
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS
from evidence.zoo import sets
from evidence.zoo.judging import judged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TITLE = "What can be learnt"
FULL, QUICK = budgets.FULL, budgets.QUICK

ASKED = {  # of an earlier recipe, and more where more was asked for
    "adult": (0.39, 0.44, 0.451, 0.458),
    "bank": (0.344, 0.43, 0.457, 0.480),
    "credit": (0.149, 0.170, 0.180, 0.176),
}
"""NLLH that the field is to have at each of the budgets."""
RIVALS = {**rivals.MODELS, **synthetic.MODELS}


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set, budget and seed."""
    return [
        Cell(
            stem,
            {**budgets.settings(name, epsilon, seed, config), "fit": FitSettings().to_json()},
            partial(measure, name, epsilon, seed, config),
        )
        for stem, name, epsilon, seed in budgets.runs(config)
    ]


def measure(name: str, epsilon: float, seed: int, config: Sizes) -> Value:
    """The field and Naive Bayes from the same private tables."""
    parts = sets.split(name, seed, config.part)
    bins = budgets.bins(parts, epsilon)
    private = simulate(parts.aggregate(parts.whole, bins=bins, tables="pairs"), epsilon, DELTA, seed=seed)
    codes = private.schema.encode(parts.test)
    positive = private.schema.encode_labels(parts.test)[0] == 1
    began = time.perf_counter()
    model = agglearn.fit(private, threads=THREADS)
    seconds = time.perf_counter() - began
    simple = naive_bayes(denoised(make_problem(private)), 0.0)
    return {
        "bins": bins,
        "tables": len(private.tables),
        "field": {
            **judged(positive, model.field.log_odds(codes, THREADS)),
            "seconds": round(seconds, 2),
            "iterations": model.record.iterations,
        },
        "naive_bayes": judged(positive, simple.log_odds(codes, THREADS)),
    }


def section(results: Results, images: Path) -> list[str]:
    """NLLH of all models by data set and budget, and where the field does not do what it should."""
    from evidence.privacy import SUBJECT
    from evidence.zoo import SUBJECT as ZOO

    beside, exact = [SUBJECT.results("rivals"), SUBJECT.results("synthetic")], ZOO.results("field")
    rows = []
    for name in NAMES:
        for at, epsilon in enumerate(EPSILONS):
            stem = f"{name}-epsilon{epsilon:g}-"
            own = results.starting(stem)
            if not own:
                continue
            rows.append(
                [
                    f"{sets.SETS[name].title}, ε = {epsilon:g}",
                    str(next(iter(own.values()))["bins"]),
                    str(len(own)),
                    spread([one["field"]["nllh"] for one in own.values()]),
                    _first(own),
                    f"{ASKED[name][at]:.3f}" if name in ASKED else "–",
                    _mean(exact.starting(f"{name}-seed"), "field"),
                    f"{fmean(one['naive_bayes']['nllh'] for one in own.values()):.4f}",
                    *(_rival(_pairs(own, beside, model), len(own)) for model in RIVALS),
                ]
            )
    header = [
        "",
        "bins",
        "runs",
        "field",
        "first split",
        "asked for",
        "exact tables",
        "Naive Bayes",
        *RIVALS.values(),
    ]
    short = list(missed(results, beside))
    lines = [*table(header, rows), "", "**Missed:**" if short else "**Missed:** nothing.", ""]
    return [*lines, *(f"- {line}" for line in short)]


def _mean(found: dict[str, Value], model: str) -> str:
    values = [one[model]["nllh"] for one in found.values() if model in one]
    return f"{fmean(values):.4f}" if values else "–"


def _first(own: dict[str, Value]) -> str:
    """The field on the first split."""
    found = [one["field"]["nllh"] for run, one in own.items() if run.endswith("-seed0")]
    return f"{found[0]:.4f}" if found else "–"


def _pairs(own: dict[str, Value], beside: Sequence[Results], model: str) -> list[tuple[float, float]]:
    """The field and a rival on the splits that both were run on."""
    return [
        (one["field"]["nllh"], others[run][model]["nllh"])
        for run, one in own.items()
        for others in beside
        if run in others and model in others[run]
    ]


def _rival(pairs: list[tuple[float, float]], runs: int) -> str:
    if not pairs:
        return "–"
    field, rival = (fmean(each) for each in zip(*pairs, strict=True))
    return f"{rival:.4f}" if len(pairs) == runs else f"{rival:.4f} ({field:.4f})"


def missed(results: Results, beside: Sequence[Results]) -> Iterator[str]:
    """Where the field is below what was asked for, or below a rival, in words."""
    for name in NAMES:
        for at, epsilon in enumerate(EPSILONS):
            stem = f"{name}-epsilon{epsilon:g}-"
            own = results.starting(stem)
            if not own:
                continue
            title = f"{sets.SETS[name].title}, ε = {epsilon:g}"
            field = fmean(one["field"]["nllh"] for one in own.values())
            if name in ASKED and field < ASKED[name][at]:
                asked = f"{ASKED[name][at]:g} is asked for"
                yield f"{title}: {field:.4f}, {_first(own)} on the first split; {asked}."
            for model, word in RIVALS.items():
                behind = [rival - field for field, rival in _pairs(own, beside, model)]
                if behind and fmean(behind) > 0:
                    runs = "" if len(behind) == len(own) else f" on {len(behind)} of {len(own)} splits"
                    yield f"{title}: {fmean(behind):.4f} below {word}{runs}."
