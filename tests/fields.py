"""The one way to make a random field, records drawn from it, and their tables counted the plain way.

Nothing here uses what it serves to test: states are enumerated, cells found and records counted by numpy and
by Python's own integers. Codes are ``(n, D)``, a row for each record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.field.engines.exact import ExactEngine
from agglearn.field.field import Field
from agglearn.field.kernels.rounding import rounded
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.tables.cells import SparseCells
from agglearn.tables.data import AggregatedData
from agglearn.tables.noise import Noise
from agglearn.tables.table import Table

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint16]
Labels = npt.NDArray[np.uint8]
Scopes = Sequence[tuple[int, ...]]


# --- fields -----------------------------------------------------------------------------------------------


def pairs(cards: Sequence[int]) -> Layout:
    """A table of each pair of features (of the only feature, where there is one)."""
    return Layout.plain(cards, list(combinations(range(len(cards)), min(2, len(cards)))))


@dataclass(frozen=True, eq=False)
class KnownField(Field):
    """π(x, y) ∝ exp(φ(x)·μ + y (φ(x)·θ + θ₀)) over so few states that each has its probability."""

    @cached_property
    def states(self) -> Codes:
        """Every combination of codes, the last feature fastest."""
        return every_state(self.layout.cards)

    @cached_property
    def law(self) -> Floats:
        """π of each state, a column for y = 0 and one for y = 1."""
        cells = cells_of(self.layout, self.states)
        logits = self.mu[cells].sum(axis=0)
        logits = np.stack([logits, logits + self.theta[cells].sum(axis=0) + self.intercept], axis=1)
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())

    def draw(self, rows: int, seed: int) -> tuple[Codes, Labels]:
        """Independent records: their codes and labels."""
        cumulated = np.cumsum(self.law)
        uniform = np.random.Generator(np.random.Philox(seed)).random(rows)
        drawn = np.searchsorted(cumulated, uniform * cumulated[-1], side="right")
        return self.states[drawn // 2], (drawn % 2).astype(np.uint8)

    def problem(self, rows: int, seed: int) -> Problem:
        """The field's own tables of drawn records, as flat vectors."""
        return problem_of(self.layout, *self.draw(rows, seed))

    def tables(self, rows: int, seed: int) -> AggregatedData:
        """The field's own tables of drawn records, with a schema."""
        return tables_of(self.layout, *self.draw(rows, seed))


def random_field(
    seed: int | Sequence[int],
    over: Layout | Sequence[int],
    strength: float | tuple[float, float] = 0.5,
    intercept: float = -0.5,
) -> KnownField:
    """A field of normal weights; ``over`` is its layout, or the cards of features whose pairs it has.

    ``strength`` is the standard deviation of every weight, or those of μ and of θ. They are rounded,
    so that chains see them as they are.
    """
    layout = over if isinstance(over, Layout) else pairs(over)
    of_mu, of_theta = strength if isinstance(strength, tuple) else (strength, strength)
    rng = np.random.default_rng(seed)
    mu, theta = rng.normal(0, of_mu, layout.n_cells), rng.normal(0, of_theta, layout.n_cells)
    mu, theta = (rounded(w).astype(np.float64) for w in (mu, theta))
    return KnownField(layout, mu, theta, intercept)


def random_problem(
    seed: int,
    cards: tuple[int, ...],
    rows: int = 20_000,
    scopes: Scopes | None = None,
    strength: float = 0.5,
) -> tuple[Problem, ExactEngine]:
    """Tables of records drawn from a random field, and the engine that enumerates it."""
    field = random_field(seed, Layout.plain(cards, scopes) if scopes else cards, strength)
    return field.problem(rows, seed), ExactEngine(field.layout, rows)


def sparse_layout(layout: Layout, share: float, seed: int = 0, tables: Sequence[int] = ()) -> Layout:
    """The layout with some tables (all by default) that list a share of their cells, drawn at random."""
    rng = np.random.default_rng(seed)
    cells = list(layout.cells)
    for t in tables or range(layout.n_tables):
        if len(layout.scopes[t]) > 1:
            size = layout.sizes[t]
            listed = np.sort(rng.choice(size, int(np.ceil(share * size)), replace=False))
            cells[t] = SparseCells(layout.cells[t].shape, listed)
    return replace(layout, cells=tuple(cells))


def as_seen(problem: Problem, tables: Sequence[int] = ()) -> Problem:
    """The problem with sparse tables (all by default) that list the cells with a record."""
    layout = problem.layout
    cells = list(layout.cells)
    for t in tables or range(layout.n_tables):
        if len(layout.scopes[t]) > 1:
            cells[t] = SparseCells(cells[t].shape, np.flatnonzero(problem.d[layout.part(t)]))
    return problem.over(replace(layout, cells=tuple(cells)))


# --- records ----------------------------------------------------------------------------------------------


def every_state(cards: Sequence[int]) -> Codes:
    """Every combination of codes once, the last feature fastest."""
    return np.stack([axis.reshape(-1) for axis in np.indices(tuple(cards))], axis=1).astype(np.uint16)


def columns(codes: npt.NDArray[Any], y: npt.NDArray[Any] | None = None) -> dict[str, Any]:
    """Records as a user has them: columns f0, f1, … with the values v0, v1, …, and the label y."""
    found: dict[str, Any] = {f"f{i}": [f"v{v}" for v in column] for i, column in enumerate(codes.T.tolist())}
    return found if y is None else {**found, "y": y}


def schema_of(cards: Sequence[int], labels: Sequence[str] = ("y",)) -> Schema:
    """The schema of :func:`columns`."""
    features = tuple(
        Categorical(name=f"f{i}", values=tuple(f"v{v}" for v in range(m)), missing=False)
        for i, m in enumerate(cards)
    )
    return Schema(features, tuple(map(Label, labels)))


# --- tables -----------------------------------------------------------------------------------------------


def bucket(codes: Sequence[int], size: int) -> int:
    """The bucket of a combination by Python's own integers, from the words of agglearn.tables.cells."""
    state = 0
    for code in codes:
        state = ((state ^ (code + 1)) * 0x9E3779B97F4A7C15) % 2**64
        state ^= state >> 29
    return state % size


def cells_of(layout: Layout, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The places of each record's cells in the flat order of a layout, a row for each table."""
    found = np.empty((layout.n_tables, len(codes)), np.int64)
    for t, (scope, size) in enumerate(zip(layout.scopes, layout.buckets, strict=True)):
        own = codes[:, list(scope)].astype(np.int64)
        cells = layout.cells[t]
        if size:
            found[t] = [bucket(x, size) for x in own.tolist()]
        elif isinstance(cells, SparseCells):
            listed = {tuple(codes): cell for cell, codes in enumerate(zip(*cells.listed_codes, strict=True))}
            found[t] = [listed.get(tuple(x), len(listed)) for x in own.tolist()]
        else:
            found[t] = np.ravel_multi_index(tuple(own.T), [layout.cards[f] for f in scope])
    return found + layout.offsets[:-1, None]


def count(
    layout: Layout, codes: npt.NDArray[Any], y: npt.NDArray[Any] | None = None
) -> tuple[Floats, Floats]:
    """Records and positives in each cell, as flat vectors; without labels there is no positive."""
    d, c = np.zeros(layout.n_cells), np.zeros(layout.n_cells)
    for cells in cells_of(layout, codes):
        np.add.at(d, cells, 1)
        np.add.at(c, cells, 0 if y is None else y)
    return d, c


def problem_of(layout: Layout, codes: npt.NDArray[Any], y: npt.NDArray[Any]) -> Problem:
    """The tables of these records, as flat vectors."""
    return Problem(layout, *count(layout, codes, y), float(len(y)), float(y.sum()))


def tables_of(
    layout: Layout, codes: npt.NDArray[Any], y: npt.NDArray[Any], labels: Sequence[str] = ("y",)
) -> AggregatedData:
    """The tables of these records, with a schema; ``y`` has a row for each label, where there are several."""
    layers = y.reshape(len(labels), -1)
    counted = [count(layout, codes, layer) for layer in layers]
    tables = {}
    for t, scope in enumerate(layout.scopes):
        names = tuple(f"f{f}" for f in scope)
        counts = layout.table(counted[0][0], t).astype(np.int64)
        sums = np.stack([layout.table(c, t) for _, c in counted]).astype(np.int64)
        tables[names] = Table(names, counts, sums, cells=layout.cells[t])
    positives = tuple(int(layer.sum()) for layer in layers)
    return AggregatedData(schema_of(layout.cards, labels), tables, len(codes), positives)


def random_tables(
    seed: int = 0, cards: tuple[int, ...] = (3, 4, 2), rows: int = 500, labels: tuple[str, ...] = ("y",)
) -> AggregatedData:
    """Pair tables of records in which nothing depends on anything, for one label or several."""
    rng = np.random.default_rng(seed)
    codes = np.array([rng.integers(0, m, rows) for m in cards]).T
    return tables_of(pairs(cards), codes, rng.integers(0, 2, (len(labels), rows)), labels)


def with_noise(
    data: AggregatedData, law: str, scale: float, declared: float | None, seed: int = 0
) -> AggregatedData:
    """Noise on every number of every table, declared as it is, otherwise or not at all."""
    rng = np.random.default_rng(seed)
    draw = rng.normal if law == "gaussian" else rng.laplace

    def noisy(table: Table) -> Table:
        return replace(
            table,
            counts=table.counts + draw(0, scale, table.counts.shape),
            sums=table.sums + draw(0, scale, table.sums.shape),
            unknown=np.zeros(len(table.unknown)),
            noise=None if declared is None else Noise(law, declared),
        )

    return replace(data, tables={scope: noisy(table) for scope, table in data.tables.items()})
