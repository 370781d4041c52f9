"""What tables tell of θ, as a matrix that is never written down.

Over a population x̃ of a field of n records, with p = σ(φ(x̃)·θ + θ₀), the labels behind the tables tell

    I = n·E[p(1 − p)·ψψᵀ],   ψ = (φ, 1),

the information of a logistic regression. (The whole field's is n·Cov(φ, yψ) with μ eliminated, which is I
plus n times the covariance of pψ that is left after regressing on φ: what the counts d alone tell of θ. It is
left out, which makes intervals a little too wide: 3 % on Adult, up to a fifth for few features of strong
effect.)

A product with I is a gather and a tally of the population; (I + ρ)⁻¹ is applied by conjugate gradients, for
several right-hand sides at once. Those stand in one array, a row for each cell and a last one for the
intercept, which is never penalised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.field import Field
from agglearn.field.kernels.sets import dot_sets
from agglearn.field.population import Population, Shifts, Values, with_intercept
from agglearn.field.shared import Shared
from agglearn.field.solve import solve

Floats = npt.NDArray[np.float64]

_MOST_STEPS = 300  # of conjugate gradients; Adult takes 20


class Information:
    """The information at given weights, by a population of the field of so many records.

    The law of a label is that of a logistic regression, unless another mean and variance are given.
    """

    def __init__(
        self,
        population: Population,
        field: Field,
        rows: float,
        threads: int = 1,
        mean: Callable[[Any], Any] = expit,
        spread: Callable[[Any], Any] = lambda p: p * (1 - p),
    ) -> None:
        self.population, self.field, self.rows, self.threads = population, field, rows, threads
        scores = population.scores(field.theta, field.intercept)
        self._p = population.map(mean, scores)
        self._variance = population.map(lambda p: rows * spread(p), self._p)
        self._weights = population.map(lambda v: v.astype(np.float32)[:, None], self._variance)
        self._shared: tuple[Floats, Shared] | None = None

    @cached_property
    def total(self) -> float:
        """What all records together tell of the intercept: n·E[p(1 − p)]."""
        return float(self.population.mean(self._variance))

    def diagonal(self) -> Floats:
        """Of I, cell by cell."""
        return self._diagonal

    @cached_property
    def _diagonal(self) -> Floats:  # a tally of all members, which every solution asks for
        return np.asarray(self.population.cells(self._variance), np.float64)

    def counts(self) -> Floats:
        """The records in each cell, as the population expects them."""
        return self.rows * self.population.shares()

    def expected(self) -> tuple[Floats, float]:
        """The positives in each cell, and in all, as the weights expect them."""
        return self.rows * self.population.cells(self._p), self.rows * float(self.population.mean(self._p))

    def times(self, shifts: Shifts) -> Shifts:
        """I times some shifts of the weights."""
        values = self.population.map(
            lambda w, s: w * s.astype(np.float32), self._weights, self.scores(shifts)
        )
        return with_intercept(self.population.cells(values), self.population.mean(values))

    def scores(self, shifts: Shifts) -> Values:
        """φ(x)·θ + θ₀ of each member in each set."""
        return self.population.scores(shifts[:-1], shifts[-1].astype(np.float64))

    def draw(self, generators: Sequence[np.random.Generator], factor: float = 1.0) -> Shifts:
        """Draws with covariance I times a factor: a column for each generator."""
        variance = self.population.map(lambda v: factor * v, self._variance)
        return self.population.draw(variance, generators)

    def added(self, spread: Values) -> Shifts:
        """Positives that each cell has more of, in the mean, where log-odds are off by so much (mean square).

        E[σ(s + ε)] = p + ½·p(1 − p)(1 − 2p)·E[ε²] + …
        """
        more = self.population.map(lambda v, p, s: 0.5 * v * (1 - 2 * p) * s, self._variance, self._p, spread)
        cells = self.population.cells(more).astype(np.float32)[:, None]
        return with_intercept(cells, np.array([self.population.mean(more)]))

    def variance(self, shifts: Shifts) -> Floats:
        """Σ p(1 − p)(s − s̄)² of the shifts' predictions s, for each set."""
        scores = self.scores(shifts)

        def weighted(power: int) -> Any:
            values = self.population.map(
                lambda w, s: w * s.astype(np.float32) ** power, self._weights, scores
            )
            return self.population.mean(values)

        return np.asarray(weighted(2) - weighted(1) ** 2 / self.total)

    def solve(
        self,
        right: Shifts,
        precision: float | Floats,
        tolerance: float,
        steps: int = _MOST_STEPS,
        free: npt.NDArray[np.bool_] | None = None,
        shared: bool = False,
    ) -> Shifts:
        """(I + ρ)⁻¹ times each set, until the residual is that small a share of what it was.

        ρ is one number, or one for each cell. Cells that are not ``free`` keep a shift of 0. What tables
        share can be looked after (:mod:`.shared`), which takes a pass over the members and saves many steps.
        """
        rho = np.asarray(precision, np.float32).reshape(-1, 1)
        scale: Any = np.append(self.diagonal() + precision, self.total).astype(np.float32)[:, None]
        if shared and free is None:
            scale = self._preconditioner(np.asarray(precision, np.float64))
        held = None if free is None else np.append(~free, False)

        def product(direction: Shifts) -> Shifts:
            bent = self.times(direction)
            bent[:-1] += rho * direction[:-1]
            if held is not None:
                bent[held] = 0.0
            return bent

        def dot(a: Shifts, b: Shifts) -> Floats:
            return dot_sets(a, b, self.threads)

        if held is not None:
            right = np.where(held[:, None], np.float32(0.0), right)
        return solve(product, right, scale, steps=steps, tolerance=tolerance, dot=dot)

    def _preconditioner(self, precision: Floats) -> Shared:
        """What looks after what tables share; the last one is kept, for several solutions with it."""
        if self._shared is None or not np.array_equal(self._shared[0], precision):
            ends = np.append(self.diagonal(), self.total)
            every = np.broadcast_to(precision, self.diagonal().shape)
            self._shared = precision, Shared(self.population, self._variance, ends, every)
        return self._shared[1]
