"""The optimum of a small field, which every engine and every training is measured by.

Minimises the convex

    F(μ, θ, θ₀) = n·log Z − d·μ − c·θ − positives·θ₀ + λ_θ‖θ‖² + λ_μ‖μ − μ₀‖²,

the first four terms being −log π(A = a) up to a constant, whose gradient is

    E(D) − d + 2λ_μ(μ − μ₀),    E(C) − c + 2λ_θ θ,    E(positives) − positives,

and whose Hessian is n times the covariance of the sufficient statistics, plus 2λ on the diagonal. At
λ = 0 many weights give the same field (a constant may move from one table to another): the weights
are then not unique, the distribution is. A cell with d = 0 has no finite optimum at λ_μ = 0: its
weight goes to −∞ and stops as soon as its expected count is within the tolerance of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from agglearn.field.engines.exact import ExactEngine
from agglearn.field.field import Field
from agglearn.field.solve import solve

Floats = npt.NDArray[np.float64]

_DESCENT_STEPS = 2_000  # of L-BFGS-B, which ends by its tolerance: a safeguard
_NEWTON_STEPS = 60  # a weight on its way to −∞ moves by about 1 a step, and e⁻⁶⁰ is nothing
_CONJUGATE_STEPS = 500  # they end by their tolerance: a safeguard
_HALVINGS = 30  # 2⁻³⁰ of a Newton step is no step


@dataclass(frozen=True)
class Optimum:
    """Where the penalised likelihood is best.

    Attributes
    ----------
    field
        Its weights are not unique at λ = 0; the distribution is.
    objective
        Value of F there (see the module).
    converged
        Whether no gradient coordinate exceeds the tolerance times the number of rows. False when
        tables that contradict one another leave F without a minimum (λ = 0 and noise).
    """

    field: Field
    objective: float
    converged: bool


def objective_and_gradient(
    engine: ExactEngine,
    point: Floats,
    d: npt.NDArray[np.floating],
    c: npt.NDArray[np.floating],
    positives: float,
    lambda_mu: float,
    lambda_theta: float,
    mu0: npt.NDArray[np.floating],
) -> tuple[float, Floats]:
    """The penalised objective F (see the module) and its gradient.

    Parameters
    ----------
    engine
        The field, its states and its number of rows.
    point
        μ, θ and θ₀ end to end, 2K + 1 numbers; the gradient comes in the same order.
    d, c, positives
        Observed counts and positives of each cell, and positives in all.
    lambda_mu, lambda_theta
        Strength of the penalties; the intercept has none.
    mu0
        Weights toward which μ is shrunk: the start.
    """
    field = _field(engine, point)
    expected = engine.expect(field)
    shift = field.mu - mu0
    value = (
        engine.rows * expected.info["log_partition"]
        - np.dot(d, field.mu)
        - np.dot(c, field.theta)
        - positives * field.intercept
        + lambda_theta * np.dot(field.theta, field.theta)
        + lambda_mu * np.dot(shift, shift)
    )
    gradient = np.concatenate(
        [
            expected.d - d + 2 * lambda_mu * shift,
            expected.c - c + 2 * lambda_theta * field.theta,
            [expected.positives - positives],
        ]
    )
    return float(value), gradient


def exact_optimum(
    engine: ExactEngine,
    d: npt.NDArray[np.floating],
    c: npt.NDArray[np.floating],
    positives: float,
    lambda_mu: float,
    lambda_theta: float,
    mu0: npt.NDArray[np.floating],
    *,
    tolerance: float = 1e-9,
) -> Optimum:
    """Minimise the penalised objective: L-BFGS-B most of the way, Newton steps at the end.

    Parameters
    ----------
    engine, d, c, positives, lambda_mu, lambda_theta, mu0
        As in :func:`objective_and_gradient`.
    tolerance
        Greatest gradient coordinate allowed, as a share of the rows: at λ = 0 this is the greatest
        error of an expected cell, E(D)/n against d/n.

    Returns
    -------
    Optimum
        The weights, and whether the tolerance was reached.
    """
    rows = max(engine.rows, 1.0)

    def scaled(point: Floats) -> tuple[float, Floats]:
        value, gradient = objective_and_gradient(engine, point, d, c, positives, lambda_mu, lambda_theta, mu0)
        return value / rows, gradient / rows

    rate = float(np.clip(positives, 0.5, rows - 0.5)) / rows
    start = np.concatenate([mu0, np.zeros(engine.layout.n_cells), [np.log(rate / (1 - rate))]])
    descent = minimize(
        scaled,
        start,
        jac=True,
        method="L-BFGS-B",
        # ftol 0: where F is flat to rounding the gradient still has digits to give.
        options={"maxiter": _DESCENT_STEPS, "maxcor": 30, "ftol": 0.0, "gtol": tolerance},
    )
    penalty = 2 / rows * np.repeat([lambda_mu, lambda_theta], engine.layout.n_cells)
    point = _newton(engine, scaled, np.asarray(descent.x), np.append(penalty, 0.0), tolerance)
    value, gradient = scaled(point)
    return Optimum(
        field=_field(engine, point),
        objective=value * rows,
        converged=bool(np.abs(gradient).max() <= tolerance),
    )


def _newton(
    engine: ExactEngine,
    scaled: Callable[[Floats], tuple[float, Floats]],
    point: Floats,
    penalty: Floats,
    tolerance: float,
) -> Floats:
    """Newton steps, each solved by conjugate gradients, until the gradient is within tolerance.

    A weight on its way to −∞ moves by about 1 a step, so that its cell shrinks by a factor e.
    """
    value, gradient = scaled(point)
    for _ in range(_NEWTON_STEPS):
        slack = float(np.abs(gradient).max())
        if slack <= tolerance:
            break
        step = _newton_step(engine, point, gradient, penalty)
        slope = float(np.dot(gradient, step))
        for halving in range(_HALVINGS):
            tried = point + 0.5**halving * step
            tried_value, tried_gradient = scaled(tried)
            # Close to the optimum a decrease of F drowns in rounding, one of the gradient does not.
            if tried_value <= value + 1e-4 * 0.5**halving * slope or np.abs(tried_gradient).max() < slack:
                break
        else:
            break
        point, value, gradient = tried, tried_value, tried_gradient
    return point


def _newton_step(engine: ExactEngine, point: Floats, gradient: Floats, penalty: Floats) -> Floats:
    """Solve H·step = −gradient by conjugate gradients.

    H is singular at λ = 0, but the gradient lies in its range, and so does every iterate.
    """
    joint = engine.probabilities(_field(engine, point))
    rows = max(engine.rows, 1.0)

    def hessian(direction: Floats) -> Floats:
        return engine.curvature(joint, direction) / rows + penalty * direction

    return solve(hessian, -gradient, np.ones_like(gradient), steps=_CONJUGATE_STEPS, tolerance=1e-3)


def _field(engine: ExactEngine, point: Floats) -> Field:
    """μ, θ and θ₀ that stand end to end."""
    n_cells = engine.layout.n_cells
    return Field(engine.layout, point[:n_cells], point[n_cells:-1], float(point[-1]))
