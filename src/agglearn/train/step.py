"""One step of the weights: gradients, preconditioning and averaging in a single pass over the cells.

With d̂, ĉ the engine's expectations, d̄, c̄ their running means, in which the past counts
:attr:`StepSettings.rate_memory` times as much at each iteration (few chains visit a rare cell, and a rate
needs several visits), and p̂ = c̄/d̄:

- g_μ = d̂ − d + 2λ_μ(μ − μ₀)
- g_θ = (d·ĉ − c·d̂)/max(d̄, d) + ρθ (rescaled: a cell's rate counts as often as chains visit the cell, on
  average as if they were d), or plainly ĉ − c + ρθ; where there is a prior, θ less its mean stands in the
  penalty
- μ ← μ − α_μ g_μ / (max(d̂, d) + 2λ_μ)
- v ← β·v + α_θ g_θ / (max(d̂, d)·p̂·s + ρ),   θ ← θ − v

where s is by how much the label's variance given x is below its variance as it is, E[p(1 − p)] / q(1 − q), at
least :data:`LEAST_SPREAD`: the surer predictions get, the less they bend.

**Two speeds.** θ has momentum β, which a law of X that follows θ at once cannot bear: the chains lag behind,
and the two chase each other. So X follows θ′, which goes a share :attr:`StepSettings.lag` of the way to θ at
each iteration, and μ gives back what that changes, −p̂·Δθ′, so that the law of X stays where it is to first
order. In the end θ′ and θ are the same. A field that is apart has no θ′.

No weight moves by more than :data:`LARGEST_MOVE` in one step, which bounds the damage of a step that is too
long until the training loop notices it. The m unseen cells of a sparse table share one μ, each with its own
penalty: together their gradient is d̂ − d + 2mλ_μ(μ − μ₀), and 2mλ_μ stands for 2λ_μ; their θ is 0. Sums are
taken chunk by chunk in a fixed order, so they do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agglearn.field.engines.protocol import Expectation
from agglearn.field.problem import Problem
from agglearn.runtime.compiled import njit
from agglearn.runtime.threads import in_threads
from agglearn.train.state import Iterates

Floats = npt.NDArray[np.float64]

LARGEST_MOVE = 1.0  # a factor e in the expected count of a cell
LEAST_SPREAD = 0.1  # of the label's variance
_CHUNK = 1 << 14  # cells summed at a time: their vectors stay in the L2 cache


@dataclass(frozen=True)
class StepSettings:
    """Everything a step needs beside the weights and the expectations."""

    lambda_mu: float
    step_mu: float
    step_theta: float
    momentum: float
    lag: float
    rescaled: bool
    preconditioned: bool
    rate_memory: float
    mean_weight: float


@dataclass(frozen=True)
class StepInfo:
    """How far the expectations were from the tables before the step.

    ``misfit_d`` and ``misfit_c`` are half the summed differences as a share of the records (of the
    positives), averaged over tables; ``chi2_d`` is the mean of (d̂ − d)²/max(d, 1) over the cells that
    count a record; ``grad_mu`` and ``grad_theta`` are norms of the preconditioned gradients, as √(Σ g²/H) in
    units of √records.
    """

    misfit_d: float
    misfit_c: float
    chi2_d: float
    grad_mu: float
    grad_theta: float

    @property
    def finite(self) -> bool:
        return bool(np.isfinite([self.misfit_d, self.misfit_c, self.grad_mu, self.grad_theta]).all())


@njit(nogil=True)
def _step(  # type: ignore[no-untyped-def]
    mu, theta, mu_mean, theta_mean, theta_law, velocity, d_run, c_run, mu0, d, c, d_hat, c_hat, free,
    precision, prior,
    lambda_mu, step_mu, step_theta, momentum, lag, rescaled, flat_mu, flat_theta, memory, mean_weight,
    spread, own, sums, worker, workers,
):  # fmt: skip
    cells = mu.size
    for chunk in range(worker, sums.shape[0], workers):
        miss_d = miss_c = chi2 = seen = norm_mu = norm_theta = 0.0
        for k in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, cells)):
            d_run[k] = memory * d_run[k] + (1.0 - memory) * d_hat[k]
            c_run[k] = memory * c_run[k] + (1.0 - memory) * c_hat[k]
            known = d_run[k] > 0.0
            rate = c_run[k] / d_run[k] if known else 0.0
            scale = max(d_hat[k], d[k], 0.0)
            gap_d = d_hat[k] - d[k]
            gap_c = c_hat[k] - c[k]
            if rescaled:
                gap_c = (d[k] * c_hat[k] - c[k] * d_hat[k]) / max(d_run[k], d[k]) if known else 0.0
            g_mu = gap_d + 2.0 * lambda_mu * (mu[k] - mu0[k])
            g_theta = gap_c + precision[k] * (theta[k] - (prior[k] if prior.size > 0 else 0.0))
            h_mu = flat_mu if flat_mu > 0.0 else scale + 2.0 * lambda_mu
            h_theta = flat_theta if flat_theta > 0.0 else scale * rate * spread + precision[k]
            miss_d += abs(gap_d)
            miss_c += abs(gap_c)
            if d[k] > 0.0:
                chi2 += gap_d * gap_d / max(d[k], 1.0)
                seen += 1.0
            if free.size == 0 or free[k]:
                if h_mu > 0.0 and k < own:
                    norm_mu += g_mu * g_mu / h_mu
                    mu[k] -= min(max(step_mu * g_mu / h_mu, -LARGEST_MOVE), LARGEST_MOVE)
                if h_theta > 0.0:
                    norm_theta += g_theta * g_theta / h_theta
                    move = min(max(step_theta * g_theta / h_theta, -LARGEST_MOVE), LARGEST_MOVE)
                    velocity[k] = momentum * velocity[k] + move
                    theta[k] -= velocity[k]
                if lag > 0.0:
                    follow = lag * (theta[k] - theta_law[k])
                    theta_law[k] += follow
                    if lag < 1.0:
                        mu[k] -= rate * follow
            mu_mean[k] += mean_weight * (mu[k] - mu_mean[k])
            theta_mean[k] += mean_weight * (theta[k] - theta_mean[k])
        sums[chunk, 0], sums[chunk, 1], sums[chunk, 2] = miss_d, miss_c, chi2
        sums[chunk, 3], sums[chunk, 4], sums[chunk, 5] = seen, norm_mu, norm_theta


_NO_MASK = np.zeros(0, np.bool_)


def step(
    weights: Iterates,
    mu0: Floats,
    problem: Problem,
    expected: Expectation,
    settings: StepSettings,
    threads: int = 1,
) -> StepInfo:
    """Move the weights in place, and say how well the tables were fitted before."""
    n, tables = problem.rows, problem.layout.n_tables
    flat_mu = flat_theta = 0.0
    if not settings.preconditioned:  # one scale for all cells: the largest curvature there is
        flat_mu = float(problem.d.max()) + 2 * settings.lambda_mu
        flat_theta = float(problem.c.max()) + float(weights.precision.max())
    sums = np.zeros((-(-weights.mu.size // _CHUNK), 6))
    arrays = (
        weights.mu,
        weights.theta,
        weights.mu_mean,
        weights.theta_mean,
        weights.theta_law,
        weights.velocity,
        weights.d_run,
        weights.c_run,
        mu0,
        problem.d,
        problem.c,
        expected.d,
        expected.c,
        _NO_MASK if problem.learnt is None else problem.learnt,
        weights.precision,
        weights.prior,
    )
    numbers = (
        settings.lambda_mu,
        settings.step_mu,
        settings.step_theta,
        settings.momentum,
        0.0 if weights.apart else settings.lag,
        settings.rescaled,
        flat_mu,
        flat_theta,
        settings.rate_memory,
        settings.mean_weight,
        share_given_x(expected.spread, problem),
        problem.layout.own[1],
    )
    workers = max(1, min(threads, len(sums)))
    in_threads(workers, lambda worker: _step(*arrays, *numbers, sums, worker, workers))
    _step_tied(weights, mu0, problem, expected, settings, flat_mu)
    gap = expected.positives - problem.positives
    scale = max(expected.positives, problem.positives)
    move = settings.step_theta * gap / (scale * share_given_x(expected.spread, problem))
    weights.push = settings.momentum * weights.push + float(np.clip(move, -LARGEST_MOVE, LARGEST_MOVE))
    weights.intercept -= weights.push
    weights.intercept_law += settings.lag * (weights.intercept - weights.intercept_law)
    weights.intercept_mean += settings.mean_weight * (weights.intercept - weights.intercept_mean)
    totals = sums.sum(axis=0)
    return StepInfo(
        misfit_d=float(totals[0] / (2 * n * tables)),
        misfit_c=float(totals[1] / (2 * problem.positives * tables)),
        chi2_d=float(totals[2] / max(totals[3], 1.0)),
        grad_mu=float(np.sqrt(totals[4] / n)),
        grad_theta=float(np.sqrt(totals[5] / n)),
    )


def share_given_x(spread: float | None, problem: Problem) -> float:
    """The label's variance given x, as a share of its variance as it is."""
    if spread is None:
        return 1.0
    whole = problem.rows * problem.rate * (1 - problem.rate)
    return float(np.clip(spread / whole, LEAST_SPREAD, 1.0))


def _step_tied(
    weights: Iterates,
    mu0: Floats,
    problem: Problem,
    expected: Expectation,
    settings: StepSettings,
    flat_mu: float,
) -> None:
    """Move the weight that the unseen cells of each sparse table share; their averages have seen it stay."""
    layout = problem.layout
    cells, ties = layout.tied, layout.ties
    if problem.free is not None:
        ties = ties[problem.free[cells]]
        cells = cells[problem.free[cells]]
    if not cells.size:
        return
    d, d_hat = problem.d[cells], expected.d[cells]
    pull = 2 * settings.lambda_mu * ties
    gradient = d_hat - d + pull * (weights.mu[cells] - mu0[cells])
    curvature = np.full(cells.size, flat_mu) if flat_mu else np.maximum(d_hat, d) + pull
    there = curvature > 0
    move = np.divide(settings.step_mu * gradient, curvature, out=np.zeros(cells.size), where=there)
    move = np.clip(move, -LARGEST_MOVE, LARGEST_MOVE)
    weights.mu[cells] -= move
    weights.mu_mean[cells] -= settings.mean_weight * move
