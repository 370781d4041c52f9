"""Numbers as they are released, beside the discrete law that the file states. Each row is a million draws by
OpenDP, in two processes as a release makes them. χ² is over cells of about a third of a standard deviation,
those with fewer than 20 expected draws put together; *chance* is how often a sample of the very law is
further away. The same draws are set beside a law with 1 % more noise, to show that so small a difference
would be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import chisquare

from agglearn.privacy.mechanism import add_noise
from evidence.page import table
from evidence.runner import Cell, Results, Value

TITLE = "The law of released numbers"

_LAWS = (("gaussian", 4.23078224327012), ("gaussian", 40.30090836014278), ("laplace", 1.0), ("laplace", 39.7))


@dataclass(frozen=True)
class Sizes:
    """Draws of each law."""

    draws: int


FULL = Sizes(1_000_000)
QUICK = Sizes(20_000)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each law."""
    return [
        Cell(
            f"{law}-{scale:.3g}",
            {"law": law, "scale": scale, "draws": config.draws},
            partial(measure, law, scale, config.draws),
        )
        for law, scale in _LAWS
    ]


def measure(law: str, scale: float, draws: int) -> Value:
    """How far the draws are from the law that they should have, and from one that they should not."""
    noise = add_noise(np.zeros(draws, np.int64), law, scale, processes=2)
    found = {"mean": float(noise.mean()), "sd": float(noise.std())}
    for name, other in (("own", scale), ("more", 1.01 * scale)):
        statistic, chance, n = compared(noise, law, other)
        found |= {f"{name}_chi2": statistic, f"{name}_chance": chance, "cells": n}
    return found


def compared(noise: npt.NDArray[np.int64], law: str, scale: float) -> tuple[float, float, int]:
    """χ², the chance of more, and over how many cells."""
    reach = int(np.abs(noise).max() + 20 * scale + 10)
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * scale**2)) if law == "gaussian" else np.exp(-np.abs(x) / scale)
    width = max(1, int(scale / 3))
    cell = x // width
    expected = np.bincount(cell - cell[0], weights=weights / weights.sum()) * noise.size
    seen = np.bincount(noise // width - cell[0], minlength=len(expected))
    common = expected >= 20
    observed = np.append(seen[common], seen[~common].sum())
    law_of = np.append(expected[common], expected[~common].sum())
    result = chisquare(observed, law_of * observed.sum() / law_of.sum())
    return float(result.statistic), float(result.pvalue), len(observed)


def section(results: Results, images: Path) -> list[str]:
    """A row a law."""
    rows = []
    for name in results:
        found, settings = results[name], results.settings(name)
        rows.append(
            [
                f"discrete {settings['law']}, scale {settings['scale']:.4g}",
                f"{settings['draws']:,}",
                f"{found['mean']:+.4f}",
                f"{found['sd']:.4f}",
                f"{found['own_chi2']:.1f} over {found['cells']}",
                f"{found['own_chance']:.3f}",
                f"{found['more_chance']:.1g}",
            ]
        )
    header = ["law", "draws", "mean", "sd", "χ²", "chance", "chance under 1 % more noise"]
    return table(header, rows)
