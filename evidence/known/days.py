"""A simulated log of 60 days whose label slowly turns from one law to another, 400 records a day: a model of
the sum of all days, of the last day, of the last ten, and of a window that fades by half in ten days, each
judged by its expected log loss under the law of the day after, over five pairs of laws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

import agglearn
from agglearn import AggregatedData, Part, merge, window
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.tables.periods import Period
from evidence.page import table
from evidence.runner import Cell, Results, Value

TITLE = "A log that drifts"
_CARDS = (4, 5, 3)
_HALF_LIFE = 10
_NAMES = {
    "whole": "all days",
    "last": "the last day",
    "ten": "the last ten",
    "faded": "fading by half in ten",
}


@dataclass(frozen=True)
class Sizes:
    """Pairs of laws, days, and records a day."""

    pairs: int = 5
    days: int = 60
    rows: int = 400


FULL, QUICK = Sizes(), Sizes(pairs=1, days=20)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each pair of laws."""
    settings = {"days": config.days, "rows": config.rows, "half_life": _HALF_LIFE}
    return [
        Cell(f"pair{k}", {**settings, "pair": k}, partial(measure, k, config)) for k in range(config.pairs)
    ]


def measure(pair: int, config: Sizes) -> Value:
    """The expected log loss of each way to add up."""
    layout = Layout.plain(_CARDS, [(0, 1), (0, 2), (1, 2)])
    schema = Schema(
        tuple(
            Categorical(name=f"f{f}", values=tuple(f"v{v}" for v in range(m)), missing=False)
            for f, m in enumerate(_CARDS)
        ),
        (Label("y"),),
    )
    rng = np.random.default_rng(pair)
    mu = rng.normal(0, 0.3, layout.n_cells)
    old, new = (rng.normal(0, 0.8, layout.n_cells) for _ in range(2))
    engine = ExactEngine(layout, config.rows)
    days = []
    for n in range(config.days):
        law = Field(layout, mu, old + n / config.days * (new - old), -0.5)
        codes, y = engine.sample(config.rows, law, seed=1_000 * pair + n)
        records = {f"f{f}": [f"v{v}" for v in row] for f, row in enumerate(codes.tolist())}
        counted = agglearn.aggregate({**records, "y": y}, "y", schema=schema)
        days.append(replace(counted, parts=(Part(period=Period(n, n, False)),)))
    truth = Field(layout, mu, new, -0.5)
    joint = engine.probabilities(truth)
    settings = agglearn.FitSettings(engine="exact", iterations=120)

    def loss(data: AggregatedData) -> float:
        s = agglearn.fit(data, settings).field.log_odds(engine.states.codes)
        return float(joint[:, 0] @ np.logaddexp(0, s) + joint[:, 1] @ np.logaddexp(0, -s))

    return {
        "whole": loss(merge(days)),
        "last": loss(days[-1]),
        "ten": loss(window(days, last=10)),
        "faded": loss(window(days, half_life=_HALF_LIFE)),
    }


def section(results: Results, images: Path) -> list[str]:
    """Log loss of each, by pair of laws."""
    pairs = list(results)
    rows = [[title, *(f"{results[p][name]:.4f}" for p in pairs)] for name, title in _NAMES.items()]
    return table(["log loss", *(f"laws {k + 1}" for k in range(len(pairs)))], rows)
