"""The features of some of the records behind the tables are known, and no label: `fit --records`. With none
the field's own law of X is all there is, with all the fit is the penalised logistic regression, its
penalties found in the same way. Few are used beside the chains, as far as they tell more than chance. Seeds
draw other records, and other chains: the mean over them, and the standard deviation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import agglearn
from evidence.known.parts import NAMES, known
from evidence.page import spread, table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS
from evidence.zoo.sets import SETS

TITLE = "Records without labels"
_NOISE = 0.001  # NLLH that chains of other seeds leave, where there are no others to tell


@dataclass(frozen=True)
class Sizes:
    """Data sets, shares of the records, the most records of a set, and seeds."""

    names: tuple[str, ...] = NAMES
    shares: tuple[float, ...] = (0.0, 0.01, 0.1, 1.0)
    rows: int | None = None
    seeds: tuple[int, ...] = (0, 1, 2)


FULL = Sizes()
QUICK = Sizes(names=("adult",), shares=(0.0, 0.1, 1.0), rows=3_000, seeds=(0,))


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set, share and seed; with all records there is no chance."""
    return [
        Cell(
            f"{name}-{share:g}" + (f"-seed{seed}" if seed else ""),
            {
                "data": name,
                "share": share,
                "rows": config.rows,
                "fit": replace(agglearn.FitSettings(), seed=seed).to_json(),
            },
            partial(measure, name, share, config.rows, seed),
        )
        for name in config.names
        for share in config.shares
        for seed in (config.seeds if share < 1 else config.seeds[:1])
    ]


def measure(name: str, share: float, rows: int | None, seed: int = 0) -> Value:
    """The model with so many of the records, judged on others."""
    has = known(name, rows)
    records = has.some(share, seed) if share else None
    model = agglearn.fit(has.data, agglearn.FitSettings(seed=seed), records=records, threads=THREADS)
    used = model.record.used.get("records", {})
    return {
        "nllh": has.judged.nllh(model.field),
        "records": used.get("rows", 0),
        "trusted": used.get("share", 0.0),
        "iterations": model.record.iterations,
        "lambda_theta": model.record.lambda_theta,
        "judged_on": int(has.judged.positive.size),
    }


def section(results: Results, images: Path) -> list[str]:
    """NLLH by share, and what the records were trusted with."""
    found: dict[str, dict[float, list[Value]]] = {}
    for cell in results:
        name, share = cell.split("-")[:2]
        found.setdefault(name, {}).setdefault(float(share), []).append(results[cell])
    shares = sorted({share for by_share in found.values() for share in by_share})
    rows = [
        [SETS[name].title, *(_told(found[name][s]) if s in found[name] else "" for s in shares)]
        for name in NAMES
        if name in found
    ]
    missed = [
        f"- {SETS[name].title}, from {before:.0%} to {after:.0%}: {lost:+.4f}"
        for name, by_share in found.items()
        for before, after in pairwise(sorted(by_share))
        if (lost := _gained(by_share[before], by_share[after])) < -_chance(by_share[before], by_share[after])
    ]
    lines = table(["NLLH (trusted with)", *(f"{share:.0%}" for share in shares)], rows)
    return [
        *lines,
        "",
        "**Missed** (more records, and a lower NLLH):" if missed else "**Missed:** nothing.",
        "",
        *missed,
    ]


def _told(runs: list[Value]) -> str:
    return f"{spread(_nllh(runs))} ({fmean(run['trusted'] for run in runs):.0%})"


def _nllh(runs: list[Value]) -> list[float]:
    return [run["nllh"] for run in runs]


def _gained(before: list[Value], after: list[Value]) -> float:
    return fmean(_nllh(after)) - fmean(_nllh(before))


def _chance(before: list[Value], after: list[Value]) -> float:
    """What two means may differ by: two standard errors, and no less than what one run leaves open."""
    square = sum(stdev(_nllh(runs)) ** 2 / len(runs) for runs in (before, after) if len(runs) > 1)
    return max(_NOISE, 2 * sqrt(square))
