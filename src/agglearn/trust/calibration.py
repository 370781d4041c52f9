"""Where a field's predictions and held-out labels disagree, cell by cell.

If the field is right, the c positives among the d held-out records of a cell are a binomial draw with the
cell's rate q = E[p(x) | cell]. With q̂ the mean of p over the m chains in the cell, s² their variance and ν
that of the declared noise on c − d·q̂,

    z = (c − d·q̂) / √( d·q̂(1 − q̂) + d²·s²/m + ν )

is then about normal, and Σz² over the cells of a table about χ². A feature is judged the same way on its
single values.

**Small cells.** A cell needs five positives and five negatives expected, and twenty chains, to be judged on
its own; the others of a table are judged together as one. Cells without any chain cannot be judged; the
share of records in them is told.

**Many cells.** Among thousands some are far off by chance. How many is told beside how many there are, from
the binomial law of each cell (small cells have fatter tails than a normal law).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, bdtrc, chdtrc, expit

from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.field.population import Moments, Population
from agglearn.field.problem import Problem
from agglearn.schema.schema import Schema
from agglearn.tables.cells import Cells, DenseCells
from agglearn.tables.noise import Moments as NoiseMoments

Floats = npt.NDArray[np.float64]

FAR = 3.0  # |z| from which a cell is counted as far off
_FEWEST_EXPECTED = 5.0  # the usual rule for a normal law of a count
_FEWEST_CHAINS = 20  # tell a variance to within a third
_NAMED = 10  # cells that are named
_AS_GOOD_AS_ALL = 1e15  # members that a law known exactly is worth: so many have no error
_TOGETHER = -1  # the number of no cell: all small ones of a table


@dataclass(frozen=True)
class CellCheck:
    """One cell: what was expected of it, and what came.

    Attributes
    ----------
    features, values
        What the cell counts; no values for the small cells of a table taken together, and the bucket where
        the table is hashed.
    records
        Held-out records in it.
    expected, observed
        Rates of positives.
    z
        Their difference in standard errors.
    by_chance
        How many cells, of all that were judged, would be as far off by chance.
    """

    features: tuple[str, ...]
    values: tuple[str, ...]
    records: float
    expected: float
    observed: float
    z: float
    by_chance: float

    @property
    def name(self) -> str:
        """The cell in words: ``age=[30, 40), sex=F``."""
        if len(self.values) == len(self.features):
            return ", ".join(f"{f}={v}" for f, v in zip(self.features, self.values, strict=True))
        return f"{' × '.join(self.features)}: {self.values[0] if self.values else 'all small cells'}"

    def to_json(self) -> dict[str, Any]:
        """The cell as plain JSON values."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class GroupCheck:
    """The cells of a table, or the values of a feature.

    Attributes
    ----------
    name
        The table or feature.
    cells
        Cells judged, the small ones together as one.
    chi2, p_value
        Σz², about χ² with as many degrees as cells if the field is right; the chance of a greater one.
    far, far_by_chance
        Cells with |z| > 3, and how many chance alone would give.
    unjudged
        Share of the records that are in cells without a chain.
    worst
        The cell farthest off, or None where none was judged.
    """

    name: str
    cells: int
    chi2: float
    p_value: float
    far: int
    far_by_chance: float
    unjudged: float
    worst: CellCheck | None

    def to_json(self) -> dict[str, Any]:
        """The group as plain JSON values."""
        worst = None if self.worst is None else self.worst.to_json()
        return {**asdict(self), "worst": worst}


@dataclass(frozen=True)
class Calibration:
    """How far predictions and held-out labels agree.

    Attributes
    ----------
    cells, far, far_by_chance
        Cells of all tables that were judged, those with |z| > 3, and how many chance alone would give.
    tables, features
        The same by table and by feature, the worst (by Σz² beyond its degrees) first.
    worst
        The cells farthest off, in all tables.
    """

    cells: int
    far: int
    far_by_chance: float
    tables: tuple[GroupCheck, ...]
    features: tuple[GroupCheck, ...]
    worst: tuple[CellCheck, ...]

    def to_json(self) -> dict[str, Any]:
        """The calibration as plain JSON values."""
        return {
            "cells": self.cells,
            "far": self.far,
            "far_by_chance": self.far_by_chance,
            "tables": [g.to_json() for g in self.tables],
            "features": [g.to_json() for g in self.features],
            "worst": [c.to_json() for c in self.worst],
        }


def calibrate(
    heldout: Problem,
    schema: Schema,
    population: Population,
    field: Field,
) -> Calibration:
    """Compare the labels of held-out tables with what a field expects of each cell.

    Parameters
    ----------
    heldout, schema
        The tables of other records with the noise on them, and the features they are over.
    population
        Stands for the law of X.
    field
        The field whose predictions are judged.
    """
    tables = _tables(heldout, population.over(heldout.layout), field)
    judged = [(group, _judge(group)) for group in tables]
    singles = [(group, _judge(group)) for group in _singles(tables, heldout.layout)]
    cells = sum(found.z.size for _, found in judged)
    worst = [(abs(found.z[i]), group, found, i) for group, found in judged for i in _farthest(found, _NAMED)]
    worst.sort(key=lambda entry: -entry[0])
    groups = [_group(group, found, schema, cells) for group, found in judged]
    return Calibration(
        cells=cells,
        far=sum(g.far for g in groups),
        far_by_chance=sum(g.far_by_chance for g in groups),
        tables=_worst_first(groups),
        features=_worst_first([_group(group, found, schema, cells) for group, found in singles]),
        worst=tuple(_named(group, found, i, schema, cells) for _, group, found, i in worst[:_NAMED]),
    )


@dataclass(frozen=True, eq=False)
class _Group:
    """Cells to judge: held-out records and positives; chains, their sum of p and of p²."""

    features: tuple[int, ...]
    cells: Cells
    d: Floats
    c: Floats
    chains: Floats
    p: Floats
    p_squared: Floats
    measured: npt.NDArray[np.bool_]
    noise: NoiseMoments  # on each count and on each sum
    dependence: float


@dataclass(frozen=True, eq=False)
class _Judged:
    """Cells that were judged, by their number (or all small ones together)."""

    cell: npt.NDArray[np.int64]
    d: Floats
    observed: Floats
    expected: Floats
    z: Floats
    unjudged: float


def _tables(heldout: Problem, population: Population, field: Field) -> list[_Group]:
    layout, size = heldout.layout, min(population.size, _AS_GOOD_AS_ALL)
    p = population.map(expit, population.over(field.layout).scores(field.theta, field.intercept))
    means = [population.cells(p), population.cells(population.map(np.square, p))]
    members = np.rint(size * population.shares())  # whole again: k/n·n may be a last bit short of k
    dependence = _dependence(population.moments(p))
    groups = []
    for t, scope in enumerate(layout.scopes):
        d, c = (layout.table(v, t).astype(np.float64, copy=False) for v in (heldout.d, heldout.c))
        chains = np.asarray(layout.table(members, t), np.float64)
        total, squares = (np.asarray(size * layout.table(v, t), np.float64) for v in means)
        measured = heldout.measured(t).reshape(d.shape)
        noise, cells = heldout.noise_moments(t), layout.cells[t]
        groups.append(_Group(scope, cells, d, c, chains, total, squares, measured, noise, dependence))
    return groups


def _dependence(p: Moments) -> float:
    """How many draws of one chain are worth one that is independent."""
    if p.groups == p.members or p.deviance == 0:
        return 1.0
    return max(1.0, p.members * p.variance_of_mean / p.variance)


def _singles(tables: Sequence[_Group], layout: Layout) -> Iterator[_Group]:
    """The values of each feature, from the smallest dense and whole table that holds it."""
    for f in range(layout.n_features):
        holding = [g for g in tables if f in g.features and g.cells.dense and g.measured.all()]
        if not holding:
            continue
        group = min(holding, key=lambda g: g.d.size)
        axes = tuple(i for i, other in enumerate(group.features) if other != f)
        d, c, m, sums, squares = (
            v.sum(axis=axes) for v in (group.d, group.c, group.chains, group.p, group.p_squared)
        )
        summed = group.d.size // layout.cards[f]
        measured = np.ones(layout.cards[f], bool)
        noise = group.noise.times(summed)
        yield _Group((f,), DenseCells(d.shape), d, c, m, sums, squares, measured, noise, group.dependence)


def _judge(group: _Group) -> _Judged:
    d, c, chains = group.d.reshape(-1), group.c.reshape(-1), group.chains.reshape(-1)
    records = max(float(d.sum()), 1e-300)
    seen = np.flatnonzero((chains > 0) & (d > 0) & group.measured.reshape(-1))
    d, c, m = d[seen], c[seen], chains[seen]
    q = group.p.reshape(-1)[seen] / m
    within = np.maximum(group.p_squared.reshape(-1)[seen] - m * q * q, 0.0)
    # Few chains do not tell their own variance: they take that of the table's cells.
    shared = within.sum() / max(float((m - 1).sum()), 1.0)
    spread = np.where(m >= _FEWEST_CHAINS, within / np.maximum(m - 1, 1), shared)
    binomial = d * q * (1 - q)
    variance = binomial + d**2 * spread * group.dependence / m + group.noise.of_rate(q)
    alone = (np.minimum(d * q, d * (1 - q)) >= _FEWEST_EXPECTED) & (m >= _FEWEST_CHAINS)
    numbers = [v[alone] for v in (d, c, d * q, variance)]
    cell = seen[alone]
    together = [float(v[~alone].sum()) for v in (d, c, d * q, variance)]
    if min(together[2], together[0] - together[2]) >= _FEWEST_EXPECTED:
        numbers = [np.append(v, rest) for v, rest in zip(numbers, together, strict=True)]
        cell = np.append(cell, _TOGETHER)
    n, positive, expected, variance = numbers
    return _Judged(
        cell=cell,
        d=n,
        observed=positive / n,
        expected=expected / n,
        z=(positive - expected) / np.sqrt(variance),
        unjudged=max(0.0, 1 - float(d.sum()) / records),
    )


def _tail(found: _Judged, far: float | Floats, which: Any = slice(None)) -> Floats:
    """P(|z| ≥ far) of cells, by the binomial law."""
    n, q = np.maximum(np.round(found.d[which]), 1), found.expected[which]
    reach = far * np.sqrt(n * q * (1 - q))
    above = bdtrc(np.ceil(n * q + reach) - 1, n.astype(np.int64), q)
    below = np.floor(n * q - reach)
    tail: Floats = above + np.where(below >= 0, bdtr(np.maximum(below, 0), n.astype(np.int64), q), 0.0)
    return np.minimum(np.where(np.isnan(tail), 0.0, tail), 1.0)


def _farthest(found: _Judged, most: int) -> list[int]:
    order: list[int] = np.argsort(-np.abs(found.z), kind="stable")[:most].tolist()
    return order


def _named(group: _Group, found: _Judged, i: int, schema: Schema, cells: int) -> CellCheck:
    features = [schema.features[f] for f in group.features]
    values: tuple[str, ...] = ()
    cell = int(found.cell[i])
    if cell != _TOGETHER:
        at = group.cells.codes(cell)
        named = zip(features, at or (), strict=at is not None)
        values = tuple(f.modalities[v] for f, v in named) or (group.cells.nameless(cell),)
    z = float(found.z[i])
    return CellCheck(
        features=tuple(f.name for f in features),
        values=values,
        records=float(found.d[i]),
        expected=float(found.expected[i]),
        observed=float(found.observed[i]),
        z=z,
        by_chance=cells * float(_tail(found, abs(z), [i])[0]),
    )


def _group(group: _Group, found: _Judged, schema: Schema, cells: int) -> GroupCheck:
    chi2, n = float(found.z @ found.z), found.z.size
    worst = _farthest(found, 1)
    return GroupCheck(
        name=" × ".join(schema.names[f] for f in group.features),
        cells=n,
        chi2=chi2,
        p_value=float(chdtrc(n, chi2)) if n else 1.0,
        far=int((np.abs(found.z) > FAR).sum()),
        far_by_chance=float(_tail(found, FAR).sum()),
        unjudged=found.unjudged,
        worst=_named(group, found, worst[0], schema, cells) if worst else None,
    )


def _worst_first(groups: Sequence[GroupCheck]) -> tuple[GroupCheck, ...]:
    """In the order of Σz² beyond its degrees, in standard errors of it."""
    return tuple(sorted(groups, key=lambda g: -(g.chi2 - g.cells) / np.sqrt(2 * max(g.cells, 1))))
