"""How large the weights of a field are at large, learnt from its fit.

The penalty λ_θ‖θ‖² is a Gaussian prior of precision 2λ_θ. But a penalty that makes good predictions, or that
somebody has set, does not say how large weights are, so intervals learn that anew. The tables tell of θ what
a logistic regression on their records would (:mod:`.information`): I. With A = I + 2λ, a fit is θ̂ = A⁻¹Iθ +
u, u ~ N(0, A⁻¹IA⁻¹). If the true weights are N(0, τ²), then

    Fθ̂ ~ Fu + τFGζ,   G = A⁻¹I = 1 − 2λA⁻¹,   ζ ~ N(0, 1),

for any filter F. F = G looks where the tables tell much, and gives τ² = 1/ρ. F = G(1 − G)² looks where they
tell half, FG being largest at G = 1/2, and gives a τ² that is the same where all weights are of one kind,
but smaller in fields like Adult's, where cells with few records have smaller weights. The two points are
joined by a power: a cell that the tables tell a share g = h/(h + ρ) of, h its own information, has weights
of variance g^α/ρ. Both filters take out what no prediction depends on (a constant may move from one table to
another).

A few draws of u and ζ tell mean and variance of ‖Fθ̂‖² for any τ, and so how likely the fit's own is. τ² is
taken to be its mean over all that it could be, which matters where weights are few or weak: on fields of 83
weights of standard deviation 0.5 and 500 records an estimate by the means alone made intervals of 90 % cover
83 %, this one 85 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from agglearn.field.information import Information
from agglearn.field.kernels.sets import Sets, dot_sets
from agglearn.field.population import Chains, Shifts, with_intercept
from agglearn.runtime.random import Use, generator

Floats = npt.NDArray[np.float64]

_PROBES = 8  # draws of u and of ζ
_FEWER = 4  # of a field of so many cells that a few tell their mean and variance
_MANY_CELLS = 1 << 20  # where the squares of a probe are so many that their mean is sharp
_TOLERANCE = 0.02  # of the probes' solutions: their chance is 1/√8
_RANGE = 100.0  # by how much the precision may differ from the penalty's
_GRID = 201  # precisions tried, 5 % apart
_JUDGED = 1 << 14  # chains that the mean square of a spread is taken over
_OF_CELLS, _OF_MEMBERS, _OF_NOISE = range(3)  # which of a draw's numbers


@dataclass(frozen=True)
class Prior:
    """What is learnt of the weights at large.

    Attributes
    ----------
    precision
        ρ: 1/variance of the weights where the tables tell much of them.
    decline
        α: weights of a cell that the tables tell a share g of have variance g^α/ρ.
    spread
        Mean square of the predictions' spread if ρ were the fit's penalty, and α 0.
    """

    precision: float
    decline: float
    spread: float

    def variances(self, information: Information) -> Floats:
        """Variance of the weight of each cell."""
        diagonal = information.diagonal()
        told = diagonal / (diagonal + self.precision)
        return np.asarray(told**self.decline / self.precision)


@dataclass(frozen=True)
class Normals:
    """Normal numbers, each draw's its own: which draws are made together changes nothing."""

    seed: int
    use: Use
    sigma: Floats  # of the noise on the tables, by cell

    def _generators(self, draws: Sequence[int], part: int) -> list[np.random.Generator]:
        return [generator(self.seed, self.use, k, part) for k in draws]

    def _normals(self, draws: Sequence[int], part: int) -> Sets:
        rngs = self._generators(draws, part)
        return np.stack([rng.standard_normal(len(self.sigma), np.float32) for rng in rngs], axis=1)

    def cells(self, draws: Sequence[int]) -> Sets:
        """A normal number for each cell and draw."""
        return self._normals(draws, _OF_CELLS)

    def tables(self, information: Information, draws: Sequence[int], factor: float = 1.0) -> Shifts:
        """What tables could have been off by: other records (variance times a factor), and their noise."""
        off = information.draw(self._generators(draws, _OF_MEMBERS), factor)
        if self.sigma.any():
            off[:-1] += self.sigma.astype(np.float32)[:, None] * self._normals(draws, _OF_NOISE)
        return off


def probe_count(n_cells: int) -> int:
    """How many draws a prior is learnt from."""
    return _PROBES if n_cells < _MANY_CELLS else _FEWER


def learn_prior(information: Information, penalty: float, normals: Normals, theta: Floats) -> Prior:
    """What can be learnt of the weights at large from the fitted ones (see the module).

    ``theta`` is how far these are from where the penalty pulls them to.
    """
    threads = information.threads
    probes = range(probe_count(theta.size))

    def solve(right: Shifts) -> Shifts:
        return information.solve(right, penalty, _TOLERANCE, shared=True)

    def rest(theta: Sets) -> Sets:
        """(1 − G)θ."""
        return np.asarray(np.float32(penalty) * solve(_with_none(theta))[:-1])

    def filtered(theta: Sets) -> tuple[Sets, Sets]:
        """Gθ, and G(1 − G)²θ."""
        hidden = rest(theta)
        again = rest(hidden)
        return theta - hidden, again - rest(again)

    zeta = normals.cells(probes)
    of_tables, of_cells = solve(normals.tables(information, probes)), solve(_with_none(zeta))
    zeta -= np.float32(penalty) * of_cells[:-1]
    much, half = (
        _mean_variance(
            float(dot_sets(fit, fit, threads)[0]),
            _products(noise, noise, threads),
            _products(noise, signal, threads),
            _products(signal, signal, threads),
            np.geomspace(1 / _RANGE, _RANGE, _GRID) / penalty,
        )
        for fit, noise, signal in zip(
            filtered(theta.astype(np.float32)[:, None]),
            filtered(np.ascontiguousarray(of_tables[:-1])),
            filtered(zeta),
            strict=True,
        )
    )
    draws = of_tables + np.float32(np.sqrt(penalty)) * of_cells
    layout = information.population.layout
    some = Chains(layout, information.population.some(_JUDGED), threads=threads)
    spread = float(mean_square(some, draws).mean())
    return Prior(1 / much, max(float(np.log2(much / half)), 0.0), spread)


def mean_square(members: Chains, draws: Shifts) -> Floats:
    """Mean square over the draws of each member's φ(x)·θ + θ₀."""
    scores = members.scores(draws[:-1], draws[-1].astype(np.float64))
    return np.asarray(np.einsum("ik,ik->i", scores, scores) / scores.shape[1])


def _with_none(theta: Sets) -> Shifts:
    """Weights of cells, with intercepts of 0."""
    return with_intercept(theta, np.zeros(theta.shape[1]))


def _products(a: Sets, b: Sets, threads: int) -> Floats:
    """Products of every column with every other."""
    found = np.empty((a.shape[1], b.shape[1]))
    for k in range(b.shape[1]):
        found[:, k] = dot_sets(a, np.ascontiguousarray(np.broadcast_to(b[:, k : k + 1], a.shape)), threads)
    return found


def _mean_variance(square: float, noise: Floats, both: Floats, signal: Floats, variances: Floats) -> float:
    """The mean of τ² given ‖Fθ̂‖², every τ being as likely before.

    For each τ² the square follows nearly a gamma law. Its mean is that of the probes' squares, and half its
    variance, ‖Cov‖², that of the squared products of different probes.
    """
    means = np.trace(noise) / len(noise) + variances * np.trace(signal) / len(noise)
    others = ~np.eye(len(noise), dtype=bool)
    within = (noise[others] + variances[:, None] * signal[others]) ** 2
    across = variances[:, None] * (both + both.T)[others] ** 2
    shapes = means**2 / (2 * (within + across).mean(axis=1))
    scaled = shapes * square / means
    likelihood = shapes * np.log(scaled) - scaled - gammaln(shapes)
    weights = np.exp(likelihood - likelihood.max()) * np.sqrt(variances)
    return float(weights @ variances / weights.sum())
