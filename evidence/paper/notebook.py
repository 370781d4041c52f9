"""Training as the authors' published code does it, with our chains.

μ begins at the logarithms of the single features' shares, θ at 0, the intercept stays at the log-odds of the
base rate. Each iteration moves all chains by a sweep and takes a step of length α = 0.01,

    μ ← μ − α·(d̂ − d + 2λ_μ μ) / ((d̂ + d)/2 + 2λ_μ),
    θ ← θ − α·(g_θ + 2λ_θ θ) / ((ĉ + c)/2 + 2λ_θ),

with g_θ = ĉ·min(r, 1) − c·min(1/r, 1), r = (d + 1)/(d̂ + 1), for the rescaled gradient, and ĉ − c for the
plain one; the last weights are kept. This is not what the paper's algorithm says: that divides by d̂ + 2λ_μ
and ĉ + 2λ_θ, and rescales by d/d̂ whichever is larger. agglearn divides by the larger of d̂ and d.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.train.loop import begin
from agglearn.train.settings import FitSettings, TrainingSettings
from evidence.paper.nllh_fits import with_steps
from evidence.paper.published import CHAINS, NOTEBOOK_ITERATIONS, NOTEBOOK_STEP, TYPICAL_LAMBDA_MU
from evidence.splits import Part
from evidence.timing import THREADS

LAMBDA_THETA = 100.0
"""λ_θ of the notebook's runs by the number of chains and by the gradient."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Notebook:
    """The notebook's settings. It has 10,000 chains in most runs, as the paper has."""

    lambda_theta: float = LAMBDA_THETA
    lambda_mu: float = TYPICAL_LAMBDA_MU
    gradient: str = "rescaled"
    chains: int = CHAINS["adult"]
    iterations: int = NOTEBOOK_ITERATIONS
    seed: int = 0


def authors_training(part: Part, settings: Notebook) -> Iterator[Field]:
    """The field after each iteration on a part's tables."""
    problem = part.problem
    how = TrainingSettings(start="independent", growth=1)
    first = FitSettings(chains=settings.chains, seed=settings.seed, training=how)
    engine, _, state = begin(problem, first, THREADS)
    field = state.weights.now
    for iteration in range(settings.iterations):
        expected = engine.expect(field, iteration)
        gap_c = expected.c - problem.c
        if settings.gradient == "rescaled":
            ratio = (problem.d + 1) / (expected.d + 1)
            gap_c = expected.c * np.minimum(ratio, 1) - problem.c * np.minimum(1 / ratio, 1)
        gap_d = expected.d - problem.d
        field = replace(
            field,
            mu=_moved(field.mu, gap_d, (expected.d + problem.d) / 2, settings.lambda_mu),
            theta=_moved(field.theta, gap_c, (expected.c + problem.c) / 2, settings.lambda_theta),
        )
        yield field


def train_as_authors(part: Part, settings: Notebook) -> Field:
    """The field after the last iteration."""
    for field in authors_training(part, settings):
        last = field
    return last


def constant_steps(layout: Layout, settings: Notebook, start: str) -> FitSettings:
    """The same with agglearn's own step, at the notebook's constant length, and either start."""
    length = NOTEBOOK_STEP * layout.n_tables  # ours are counted in 1/tables
    method = with_steps(length, length)
    return replace(
        method,
        lambda_theta=settings.lambda_theta,
        lambda_mu=settings.lambda_mu,
        chains=settings.chains,
        iterations=settings.iterations,
        seed=settings.seed,
        training=replace(method.training, start=start, gradient=settings.gradient),
    )


def _moved(weights: Floats, gap: Floats, curvature: Floats, penalty: float) -> Floats:
    step: Floats = (gap + 2 * penalty * weights) / (curvature + 2 * penalty)
    return np.asarray(weights - NOTEBOOK_STEP * step)
