"""Someone who knows all records but one, and the numbers of both data sets, looks at many releases and tells
by the best test there is (the likelihood ratio) whether the record was there. How often that works bounds ε
from below: the figure is a lower bound at 99.9 % confidence, over eight thresholds chosen beforehand. It must
not exceed the ε that was promised; with a third of the noise it should. Releases are of all pairs of five
binary features, by the same code as any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

import agglearn
from agglearn.privacy.accounting import calibrate
from agglearn.privacy.budget import Budget
from agglearn.privacy.classes import classes_of
from agglearn.privacy.release import ask_for_tables, noisy_tables
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.promise import Promise
from evidence.page import table
from evidence.runner import Cell, Results, Value

TITLE = "An audit"

Floats = npt.NDArray[np.float64]

_DELTA = 1e-3
_THRESHOLDS = tuple(np.linspace(0.25, 2.0, 8).tolist())
_NAMES = tuple(f"x{i}" for i in range(5))


@dataclass(frozen=True)
class Sizes:
    """Releases of each data set."""

    releases: int


FULL = Sizes(5_000)
QUICK = Sizes(500)


def cells(config: Sizes) -> list[Cell]:
    """Both laws, with the noise that was reckoned and with a third of it."""
    return [
        Cell(
            f"{law}-{factor:.2g}",
            {"law": law, "factor": factor, "releases": config.releases},
            partial(measure, law, factor, config.releases),
        )
        for law in ("gaussian", "laplace")
        for factor in (1.0, 1 / 3)
    ]


def measure(law: str, factor: float, releases: int) -> Value:
    """The ε that can be shown, where 1 was promised."""
    here, there = _tables(60), _tables(59)
    [spending], epsilon = calibrate(Budget(epsilon=1.0, delta=_DELTA, mechanism=law), [ask_for_tables(here)])
    spending = replace(spending, scale=factor * spending.scale)
    promise = Promise(epsilon, _DELTA, spent=(spending,))
    exact = [_numbers(here), _numbers(there)]

    def ratios(data: AggregatedData) -> Floats:
        found = np.empty(releases)
        for i in range(releases):
            numbers = _numbers(noisy_tables(data, spending, promise, processes=1))
            off = [np.abs(numbers - e) for e in exact]
            if law == "gaussian":
                found[i] = (off[1] ** 2 - off[0] ** 2).sum() / (2 * spending.scale**2)
            else:
                found[i] = (off[1] - off[0]).sum() / spending.scale
        return found

    return {"scale": spending.scale, "shown": shown(ratios(here), ratios(there), releases)}


def shown(with_it: Floats, without_it: Floats, releases: int) -> float:
    """A lower bound of ε at 99.9 % confidence, by Clopper and Pearson's intervals."""
    error = 0.001 / (2 * len(_THRESHOLDS))
    best = 0.0
    for threshold in _THRESHOLDS:
        hits, misses = int((with_it > threshold).sum()), int((without_it > threshold).sum())
        low = float(beta.ppf(error, hits, releases - hits + 1)) if hits else 0.0
        high = float(beta.ppf(1 - error, misses + 1, releases - misses))
        if low > _DELTA:
            best = max(best, float(np.log((low - _DELTA) / high)))
    return best


def _tables(n: int) -> AggregatedData:
    rng = np.random.default_rng(0)
    raw = {name: rng.integers(0, 2, 60)[:n] for name in (*_NAMES, "y")}
    features = tuple(Categorical(name, False, ("0", "1"), "integer") for name in _NAMES)
    return agglearn.aggregate(raw, "y", schema=Schema(features, (Label("y"),)))


def _numbers(data: AggregatedData) -> Floats:
    """Negatives and positives of all tables, exact or noisy."""
    found = [classes_of(t, data.schema).reshape(-1) for t in data.tables.values()]
    return np.concatenate(found).astype(np.float64)


def section(results: Results, images: Path) -> list[str]:
    """A row a law and an amount of noise."""
    rows = []
    for name in results:
        settings = results.settings(name)
        told = "as reckoned" if settings["factor"] == 1 else "a third of it"
        rows.append(
            [
                f"{settings['law']}, {told}",
                f"{settings['releases']:,}",
                f"{results[name]['scale']:.3g}",
                f"{results[name]['shown']:.2f}",
            ]
        )
    return table(["noise", "releases of each", "scale", "ε shown, 1 promised"], rows)
