"""From a fit at one λ_θ to the fit at another, by a Newton step on a population of the field.

At the weights of λ₀ the gradient of the likelihood penalised with λ₁ is 2(λ₁ − λ₀)θ, so

    (I + 2λ₁)Δ = −2(λ₁ − λ₀)θ

moves them to those of λ₁, to second order, as long as the law of X stays the same
(:mod:`agglearn.field.information` has I); each table may have its own λ. The intercept moves along without
penalty.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from agglearn.field.field import Field
from agglearn.field.information import Information
from agglearn.field.population import Population
from agglearn.field.problem import Problem

Floats = npt.NDArray[np.float64]

_MOST_STEPS = 10  # 30 or 200 moved the NLLH of Adult and Bank by 0.0003 at most
_TOLERANCE = 1e-2  # of the step


def newton_step(
    problem: Problem,
    population: Population,
    field: Field,
    old: Floats,
    new: Floats,
    threads: int = 1,
    *,
    steps: int = _MOST_STEPS,
    tolerance: float = _TOLERANCE,
) -> Field:
    """The field at another penalty.

    Parameters
    ----------
    problem
        The tables the field was fitted to.
    population
        Members of it.
    field, old
        The weights, and the λ_θ of each table that they were fitted with.
    new
        Those to go to.
    steps, tolerance
        When to stop the conjugate gradients.
    """
    information = Information(population, field, problem.rows, threads)
    before, after = (np.repeat(2 * penalties, field.layout.sizes) for penalties in (old, new))
    right = np.append((before - after) * field.theta, 0.0).astype(np.float32)[:, None]
    move = information.solve(right, after, tolerance, steps, problem.learnt)[:, 0].astype(np.float64)
    return replace(field, theta=field.theta + move[:-1], intercept=field.intercept + float(move[-1]))
