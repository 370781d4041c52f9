"""From a fit at one λ_θ to the fit at another, by a Newton step on the chains.

At the weights of λ₀ the gradient of the likelihood penalised with λ₁ is 2(λ₁ − λ₀)θ, so

    (H + 2λ₁)Δ = −2(λ₁ − λ₀)θ,   H = n/n′ Σ_x̃ p(1 − p) φ(x̃)φ(x̃)ᵀ,

moves them to those of λ₁, to second order, as long as the law of X stays the same. The intercept moves along
without penalty. Conjugate gradients solve it with the field's own gather and tally.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.kernels.score import score_codes, tally
from agglearn.field.problem import Problem
from agglearn.field.solve import solve

Floats = npt.NDArray[np.float64]

_MOST_STEPS = 10  # 30 or 200 moved the NLLH of Adult and Bank by 0.0003 at most
_TOLERANCE = 1e-2


def newton_step(
    problem: Problem,
    codes: npt.NDArray[np.uint16],
    theta: Floats,
    intercept: float,
    old: float,
    new: float,
    threads: int = 1,
    *,
    steps: int = _MOST_STEPS,
    tolerance: float = _TOLERANCE,
) -> tuple[Floats, float]:
    """θ and θ₀ at another penalty.

    Parameters
    ----------
    problem
        The tables the field was fitted to.
    codes
        Its chains, a row per feature.
    theta, intercept, old
        The weights fitted with λ_θ = ``old``.
    new
        The λ_θ to go to.
    steps, tolerance
        When to stop the conjugate gradients.
    """
    layout, cells = problem.layout, problem.layout.n_cells
    p = expit(score_codes(codes, layout, theta, intercept, threads))
    curvature = p * (1 - p) * (problem.rows / p.size)
    penalty = np.append(np.full(cells, 2 * new), 0.0)
    free = np.ones(cells + 1, bool) if problem.free is None else np.append(problem.free, True)
    diagonal = np.append(tally(codes, curvature, layout, threads)[1], curvature.sum()) + penalty

    def hessian(v: Floats) -> Floats:
        moved = curvature * score_codes(
            codes, layout, np.ascontiguousarray(v[:cells]), float(v[cells]), threads
        )
        product: Floats = np.append(tally(codes, moved, layout, threads)[1], moved.sum()) + penalty * v
        product *= free
        return product

    move = solve(
        hessian,
        np.append(-2 * (new - old) * theta, 0.0) * free,
        diagonal,
        steps=steps,
        tolerance=tolerance,
    )
    return theta + move[:cells], intercept + float(move[cells])
