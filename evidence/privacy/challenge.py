"""The simulated ads log with noise as in the published challenge: Gaussian noise of standard deviation 17 on
every count and every sum of clicks of all pairs, of 12 features with up to 30 values (*Ads, low*) or of 19
with up to 500 (*Ads, high*). *By default* is the fit that chooses everything itself; *by hand* are fits with
one penalty λ_θ for all tables, the best of which is chosen on the test records, which nobody could.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

import agglearn
from agglearn.tables.data import AggregatedData
from agglearn.tables.noise import Noise
from agglearn.train.settings import FitSettings, TrainingSettings
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS
from evidence.zoo import sets
from evidence.zoo.judging import judged

TITLE = "Noise as in the challenge"

SIGMA = 17.0
PENALTIES = (4.0, 16.0, 64.0, 256.0)


@dataclass(frozen=True)
class Sizes:
    """Data sets, splits and how much of the records."""

    names: tuple[str, ...]
    seeds: int
    part: sets.Sizes


FULL = Sizes(("adslow", "adshigh"), 2, sets.FULL)
QUICK = Sizes(("adslow",), 1, sets.QUICK)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each split and penalty, and for the default."""
    return [
        Cell(
            f"{name}-seed{seed}-{'default' if penalty is None else f'{penalty:g}'}",
            {
                "data": name,
                "seed": seed,
                "part": asdict(config.part),
                "lambda_theta": penalty,
                "sigma": SIGMA,
            },
            partial(measure, name, seed, config.part, penalty),
        )
        for seed in range(config.seeds)
        for name in config.names
        for penalty in (None, *PENALTIES)
    ]


def measure(name: str, seed: int, part: sets.Sizes, penalty: float | None) -> Value:
    """The fit to noisy tables, on test records."""
    parts = sets.split(name, seed, part)
    data = noisy(parts.aggregate(parts.whole, tables="pairs"), seed)
    codes = data.schema.encode(parts.test)
    positive = data.schema.encode_labels(parts.test)[0] == 1
    training = TrainingSettings() if penalty is None else TrainingSettings(prior="single")
    began = time.perf_counter()
    model = agglearn.fit(data, FitSettings(penalty, training=training), threads=THREADS)
    seconds = time.perf_counter() - began
    return {
        **judged(positive, model.field.log_odds(codes, THREADS)),
        "cells": model.layout.n_cells,
        "seconds": round(seconds, 2),
    }


def noisy(data: AggregatedData, seed: int) -> AggregatedData:
    """The tables with Gaussian noise on every number, which is declared."""
    rng = np.random.default_rng([17, seed])
    law = Noise("gaussian", SIGMA)
    return replace(
        data,
        tables={
            scope: replace(
                one,
                counts=one.counts + rng.normal(0, SIGMA, one.counts.shape),
                sums=one.sums + rng.normal(0, SIGMA, one.sums.shape),
                noise=law,
            )
            for scope, one in data.tables.items()
        },
    )


def section(results: Results, images: Path) -> list[str]:
    """NLLH by default and by hand."""
    rows, behind = [], []
    for name in FULL.names:
        means = {}
        for penalty in (None, *PENALTIES):
            word = "default" if penalty is None else f"{penalty:g}"
            found = [results[c]["nllh"] for c in results if c.startswith(name) and c.endswith(f"-{word}")]
            means[word] = fmean(found) if found else None
        if means["default"] is None:
            continue
        cells = next(results[c]["cells"] for c in results if c.startswith(name))
        runs = sum(c.startswith(name) and c.endswith("-default") for c in results)
        shown = ["–" if m is None else f"{m:.4f}" for m in means.values()]
        rows.append([f"{sets.SETS[name].title}, {cells:,} cells", str(runs), *shown])
        best = max((m for word, m in means.items() if word != "default" and m is not None), default=None)
        if best is not None and means["default"] < best:
            behind.append(f"{sets.SETS[name].title}: {best - means['default']:.4f} below the best by hand")
    header = ["", "runs", "by default", *(f"λ_θ = {penalty:g}" for penalty in PENALTIES)]
    lines = table(header, rows)
    return [*lines, "", f"**Missed:** {'; '.join(behind)}." if behind else "**Missed:** nothing."]
