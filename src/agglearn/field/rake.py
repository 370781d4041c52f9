"""Records weighted to agree with tables.

Weights w(x) = e^{φ(x)·β + β₀}, kept within a factor :data:`BOUND` of 1, are the ones closest to all alike (in
the sense of Kullback) among those with given margins. β is the minimum of a convex function, in
units of m records, m being the records at hand or those behind the tables, whichever are fewer:

    m·E[f(φ·β + β₀)] − m·(d/n)·β − m·β₀ + ½·Σ_k ρ_k·β_k²,   f' = the bounded exponential.

Margins that differ by no more than chance need no weight, and there are far more cells than few records can
be weighted for: with χ² the table's distance and ν its degrees of freedom, the interactions have
ρ = m/(max(χ² − ν, 0) + 1) (what exceeds chance says how far the weights go), main effects ρ = 1, and the
noise σ on a table adds (mσ/n)².
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.field.field import Field
from agglearn.field.members import Members
from agglearn.field.newton import Link, Objective, newton_step
from agglearn.field.problem import Problem
from agglearn.runtime.speech import words
from agglearn.tables.drift import deviate

Floats = npt.NDArray[np.float64]

BOUND = 10.0  # by which a weight exceeds the usual one at most, and falls short of it
_MOST_BOUND = 0.1  # share of all weight at the bound, beyond which tables and records are of two worlds
_FEWEST = 5.0  # records expected in a cell, below which its χ² is far from one
_STEPS, _REST, _TOLERANCE = 30, 1e-3, 0.05
_LEAST_CHANCE = 1e-3  # of records that are not quite those behind the tables
_ALIKE = 1e-9  # of the records: below it tables and records count the same


@dataclass(frozen=True, eq=False)
class Raked:
    """Records with their weights.

    Attributes
    ----------
    members
        The records; all alike where they were not weighted.
    distances
        For each table how far the records' shares were from the tables', in standard errors beyond chance;
        NaN where no cell can be compared.
    greatest
        The greatest weight, the usual one being 1.
    same
        Whether they count what the tables count: then they are the records behind them.
    """

    members: Members
    distances: Floats
    greatest: float
    same: bool


def rake(problem: Problem, records: Members, *, weigh: bool = True) -> Raked:
    """Weight records to agree with the counts of the tables, unless they do."""
    members = records.over(problem.layout)
    n, m = problem.rows, float(members.codes.shape[1])
    shares = members.shares()
    if m == n and np.abs(shares - problem.d / n).max() < _ALIKE:
        return Raked(replace(members, chance=0.0), np.full(problem.layout.n_tables, np.nan), 1.0, True)
    chi2, degrees = _distances(problem, shares, m)
    # How far their counts are from the tables' is how far any other mean is, both beside chance.
    beside = float(np.sum(chi2) / max(np.sum(degrees), 1.0)) * (1 + m / n)
    members = replace(members, chance=max(beside, _LEAST_CHANCE))
    distances = np.array([_deviate(*pair) for pair in zip(chi2, degrees, strict=True)])
    if not weigh:
        return Raked(members, distances, 1.0, False)
    fewer = min(m, n)
    strength = fewer / (np.maximum(chi2 - degrees, 0.0) + 1.0)
    main = np.array([len(scope) == 1 for scope in problem.layout.scopes])
    precision = np.where(main, 1.0, strength)
    if problem.noise is not None:
        precision = precision + np.square(fewer * problem.noise.counts / n)
    of_cells = np.repeat(precision, problem.layout.sizes)
    of_cells[problem.layout.tied] *= problem.layout.ties  # as many cells as share the weight
    weights = _weights(problem, members, fewer, of_cells)
    return Raked(replace(members, weights=weights / weights.sum()), distances, float(weights.max()), False)


def _weights(problem: Problem, members: Members, fewer: float, precision: Floats) -> Floats:
    zeros = np.zeros(problem.layout.n_cells)
    at = Field(problem.layout, zeros, zeros, 0.0)
    target = fewer * np.maximum(problem.d, 0.0) / problem.rows
    goal = Objective(members, fewer, _BOUNDED, target, fewer, precision, zeros, problem.free)
    for _ in range(_STEPS):
        step = newton_step(at, goal, _TOLERANCE, members.threads)
        at = step.field
        if step.moved < _REST:
            break
    weights = _BOUNDED.slope(members.scores(at.theta, at.intercept))
    stuck = weights[weights >= BOUND * (1 - 1e-9)].sum() / weights.sum()
    if not np.isfinite(weights).all() or stuck > _MOST_BOUND:
        keep = words(python="keep them (rake=False)", shell="keep them (--no-rake)")
        raise InputError(
            f"the records are too far from the tables to be weighted to them ({stuck:.0%} of the weight "
            f"would be on records that count {BOUND:g} times): give records of the same kind, or {keep}"
        )
    return weights


def _distances(problem: Problem, shares: Floats, m: float) -> tuple[Floats, Floats]:
    """χ² of each table, and its degrees of freedom, as of two samples of one law."""
    n, layout = problem.rows, problem.layout
    chi2, degrees = np.zeros(layout.n_tables), np.zeros(layout.n_tables)
    for t in range(layout.n_tables):
        part, told = layout.part(t), problem.measured(t)
        a, b = np.maximum(problem.d[part][told], 0.0) / n, shares[part][told]
        p = (n * a + m * b) / (n + m)
        variance = p * (1 / n + 1 / m) + problem.noise_moments(t).count / n**2
        large = p * min(n, m) >= _FEWEST
        chi2[t] = np.sum((a - b)[large] ** 2 / variance[large])
        degrees[t] = max(int(large.sum()) - 1, 0)
    return chi2, degrees


def _deviate(chi2: float, degrees: float) -> float:
    found = deviate(chi2, int(degrees))
    return np.nan if found is None else found


_EDGE = float(np.log(BOUND))


def _potential(s: npt.NDArray[Any]) -> npt.NDArray[Any]:
    inside = np.clip(s, -_EDGE, _EDGE)
    return np.asarray(np.exp(inside) * (1 + s - inside))


def _slope(s: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(np.exp(np.clip(s, -_EDGE, _EDGE)))


def _curvature(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # At the bounds there is none; a little keeps the equations solvable.
    return np.where((weight >= BOUND) | (weight <= 1 / BOUND), 1e-3, weight)


_BOUNDED = Link(_potential, _slope, _curvature)
