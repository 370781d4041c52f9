"""Newton's method for sums of convex functions of linear scores, over a population.

Minimises

    F(w, w₀) = n·E[f(s)] − target·w − total·w₀ + ½·Σ_k ρ_k(w_k − m_k)²,   s = φ(x)·w + w₀,

whose gradient n·E[f'(s)ψ] and curvature n·E[f''(s)ψψᵀ] are tallies of the population. Each step solves
(I + ρ)Δ = −g by conjugate gradients, as well as is worth while, and goes as far along Δ as F falls: scores
are linear in the weights, so trying a length costs a pass over the members and no gather.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.field import Field
from agglearn.field.information import Information
from agglearn.field.population import Population

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

_HALVINGS = 30  # 2⁻³⁰ of a step is no step
_CONJUGATE_STEPS = 300  # they end by their tolerance: a safeguard


@dataclass(frozen=True)
class Link:
    """A convex function of a score, its slope, and the curvature as a function of the slope."""

    potential: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    curvature: Callable[[Array], Array]


def _softplus(s: Array) -> Array:
    """log(1 + e^s), to rounding beside 1: what numpy does many times faster than logaddexp."""
    small = np.abs(s)
    np.negative(small, out=small)
    np.exp(small, out=small)
    small += 1.0
    np.log(small, out=small)
    small += np.maximum(s, 0.0)
    return small


def _bernoulli(p: Array) -> Array:
    return np.asarray(p * (1 - p))


LOGISTIC = Link(_softplus, expit, _bernoulli)


@dataclass(frozen=True, eq=False)
class Objective:
    """What is minimised (see the module).

    Attributes
    ----------
    population, rows
        The law of X, and n.
    link
        f.
    target, total
        What the tallies of f' are to be, in each cell and in all.
    precision, prior
        ρ and m of each cell.
    free
        Which cells have a weight to learn; None for all.
    """

    population: Population
    rows: float
    link: Link
    target: Floats
    total: float
    precision: Floats
    prior: Floats
    free: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """A step: where it leads, what the weights before it expected in each cell, and how far it went.

    Attributes
    ----------
    field
        The weights after the step, as θ and θ₀.
    expected
        n·E[f'(s)φ] before it.
    gradient
        √(Σ g²/H) in units of √n before it.
    length
        The share of a whole Newton step that was taken.
    moved
        Root mean square of the move of the scores.
    solved
        The tolerance that its equations were solved to.
    """

    field: Field
    expected: Floats
    gradient: float
    length: float
    moved: float
    solved: float

    @property
    def left(self) -> float:
        """About how far the scores are still off."""
        return left_after(self.moved, self.solved)


def left_after(moved: float, solved: float) -> float:
    """About how far a step that moved scores so far leaves them off: what is unsolved, and not linear."""
    return moved * (solved + moved)


def newton_step(at: Field, goal: Objective, tolerance: float, threads: int = 1) -> Step:
    """One step from the weights θ and θ₀ of a field; the equations are solved to the tolerance."""
    n, population = goal.rows, goal.population
    information = Information(population, at, n, threads, goal.link.slope, goal.link.curvature)
    expected, total = information.expected()
    away = at.theta - goal.prior
    gradient = expected - goal.target + goal.precision * away
    if goal.free is not None:
        gradient[~goal.free] = 0.0
    rest = total - goal.total
    right = -np.append(gradient, rest).astype(np.float32)[:, None]
    move = information.solve(right, goal.precision, tolerance, _CONJUGATE_STEPS, goal.free, shared=True)[:, 0]
    shift, lift = move[:-1].astype(np.float64), float(move[-1])
    scores, along = population.scores(at.theta, at.intercept), population.scores(shift, lift)
    linear = float(goal.target @ shift + goal.total * lift)

    def value(length: float) -> float:
        loss = population.mean(
            population.map(lambda s, a: goal.link.potential(s + length * a), scores, along)
        )
        bent = away + length * shift
        return float(n * loss - length * linear + 0.5 * np.dot(goal.precision, bent * bent))

    slope = float(gradient @ shift + rest * lift)
    here, length = value(0.0), 1.0
    # Close to the optimum F is flat to rounding, and the step is taken as it is.
    close = abs(slope) < 1e-9 * max(abs(here), 1.0)
    for _ in range(_HALVINGS):
        if close or value(length) <= here + 1e-4 * length * slope:
            break
        length /= 2
    else:
        length = 0.0
    diagonal = information.diagonal() + goal.precision
    scaled = np.divide(gradient**2, diagonal, out=np.zeros_like(gradient), where=diagonal > 0)
    return Step(
        field=Field(at.layout, at.mu, at.theta + length * shift, at.intercept + length * lift),
        expected=expected,
        gradient=float(np.sqrt(scaled.sum() / n)),
        length=length,
        moved=length * float(np.sqrt(population.mean(population.map(np.square, along)))),
        solved=tolerance,
    )
