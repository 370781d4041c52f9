"""What tables tell of θ, as a matrix that is never written down.

With chains x̃ of a field of n records and p = σ(φ(x̃)·θ + θ₀), the labels behind the tables tell

    I = n·E[p(1 − p)·ψψᵀ],   ψ = (φ, 1),

the information of a logistic regression. (The whole field's is n·Cov(φ, yψ) with μ eliminated, which is I
plus n times the covariance of pψ that is left after regressing on φ: what the counts d alone tell of θ. It is
left out, which makes intervals a little too wide: 3 % on Adult, up to a fifth for few features of strong
effect.)

A product with I is a gather and a tally of the chains; (I + ρ)⁻¹ is applied by conjugate gradients, for
several right-hand sides at once. The intercept is never penalised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.kernels.score import Codes, score_codes, tally
from agglearn.field.kernels.sets import Floats, Sets, dot_sets, score_sets, tally_sets
from agglearn.field.layout import Layout

_MOST_STEPS = 300  # of conjugate gradients; Adult takes 20


@dataclass(frozen=True)
class Shifts:
    """Several sets of weights: θ of each cell (rows) in each set (columns), and the intercepts."""

    theta: Sets
    intercept: Floats

    def scores(self, codes: Codes, layout: Layout, threads: int) -> Floats:
        """φ(x)·θ + θ₀ of coded records in each set."""
        return score_sets(codes, layout, self.theta, threads) + self.intercept

    def mean_square(self, codes: Codes, layout: Layout, threads: int) -> Floats:
        """Mean square over the sets of each record's φ(x)·θ + θ₀."""
        scores = self.scores(codes, layout, threads)
        return np.asarray(np.einsum("ik,ik->i", scores, scores) / scores.shape[1])


class Information:
    """The information at given weights, by chains of the field (a row per feature) of so many records."""

    def __init__(
        self, codes: Codes, layout: Layout, rows: float, theta: Floats, intercept: float, threads: int = 1
    ) -> None:
        self.codes, self.layout, self.rows, self.threads = codes, layout, rows, threads
        self.scale = rows / codes.shape[1]
        scores = score_codes(codes, layout, theta, intercept, threads)
        self.p = expit(scores)
        self.weights = self.scale * self.p * (1 - self.p)
        counts, diagonal = tally(codes, self.weights, layout, threads)
        self.diagonal = diagonal
        self.d = self.scale * counts
        self._weights = self.weights.astype(np.float32)[:, None]

    def expected(self) -> tuple[Floats, float]:
        """The positives in each cell, and in all, as the weights expect them."""
        positive = self.scale * self.p
        return tally(self.codes, positive, self.layout, self.threads)[1], float(positive.sum())

    def times(self, shifts: Shifts) -> Shifts:
        """I times some shifts of the weights."""
        values = self._weights * shifts.scores(self.codes, self.layout, self.threads).astype(np.float32)
        return self._tallied(values)

    def draw(self, normals: npt.NDArray[np.floating]) -> Shifts:
        """Sums of ψ over the chains, with covariance I, from a normal number for each chain and set."""
        return self._tallied((np.sqrt(self._weights) * normals).astype(np.float32))

    def variance(self, shifts: Shifts) -> Floats:
        """The shifts' IᐟI-variance of predictions, Σ p(1 − p)(s − s̄)², for each set."""
        scores = shifts.scores(self.codes, self.layout, self.threads)
        weights = self.weights[:, None]
        scores -= (weights * scores).sum(axis=0) / weights.sum()
        return np.asarray((weights * scores**2).sum(axis=0))

    def solve(self, right: Shifts, precision: float, tolerance: float) -> Shifts:
        """(I + ρ)⁻¹ times each set, until the residual is that small a share of what it was.

        Conjugate gradients, preconditioned by the diagonal. Each set stops on its own.
        """
        threads, rho = self.threads, np.float32(precision)
        divisor = (self.diagonal + precision).astype(np.float32)[:, None]
        total = float(self.weights.sum())

        def dot(a: Shifts, b: Shifts) -> Floats:
            return dot_sets(a.theta, b.theta, threads) + a.intercept * b.intercept

        def preconditioned(r: Shifts) -> Shifts:
            return Shifts(r.theta / divisor, r.intercept / total)

        found = Shifts(np.zeros_like(right.theta), np.zeros_like(right.intercept))
        residual = Shifts(right.theta.copy(), right.intercept.copy())
        direction = preconditioned(residual)
        size = dot(residual, direction)
        enough = tolerance**2 * size
        for _ in range(_MOST_STEPS):
            going = size > enough
            if not going.any():
                break
            bent = self.times(direction)
            bent.theta[:] += rho * direction.theta
            step = np.zeros_like(size)
            np.divide(size, dot(direction, bent), out=step, where=going)
            _add(found, direction, step)
            _add(residual, bent, -step)
            better = preconditioned(residual)
            before, size = size, np.where(going, dot(residual, better), 0.0)
            keep = np.zeros_like(size)
            np.divide(size, before, out=keep, where=going)
            _add(better, direction, keep)
            direction = better
        return found

    def _tallied(self, values: Sets) -> Shifts:
        sums = tally_sets(self.codes, values, self.layout, self.threads)
        # A sum over chains, in float64, for each set alone: what stands beside it must not matter.
        return Shifts(sums, dot_sets(values, np.ones_like(values), self.threads))


def _add(to: Shifts, other: Shifts, factor: Floats) -> None:
    to.theta[:] += factor.astype(np.float32) * other.theta
    to.intercept[:] += factor * other.intercept
