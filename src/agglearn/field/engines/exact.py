"""The field by enumeration: exact expectations, and the optimum every other engine is measured by.

With states x = (x_1 … x_D) few enough to list, everything about

    π(x, y) = exp( Σ_k φ_k(x)·(μ_k + y·θ_k) + y·θ₀ ) / Z

is a sum over the tensor of shape ``cards``. A table's weights are a small tensor that broadcasts
along the axes of the features it does not hold; its expected counts are the big tensor summed over
those axes. No index of cells is kept, so that memory is a few numbers a state however many the tables.
The features are taken one at a time: a table is added (or summed) when its first feature appears,
while the tensor of the features after it is still small, which leaves only the tables that hold the
first feature to be done at full size.

The oracle minimises the convex

    F(μ, θ, θ₀) = n·log Z − d·μ − c·θ − positives·θ₀ + λ_θ‖θ‖² + λ_μ‖μ − μ₀‖²,

the first four terms being −log π(A = a) up to a constant, whose gradient is

    E(D) − d + 2λ_μ(μ − μ₀),    E(C) − c + 2λ_θ θ,    E(positives) − positives,

and whose Hessian is n times the covariance of the sufficient statistics, plus 2λ on the diagonal. At
λ = 0 many weights give the same field (a constant may move from one table to another): the weights
are then not unique, the distribution is. A cell with d = 0 has no finite optimum at λ_μ = 0: its
weight goes to −∞ and stops as soon as its expected count is within the tolerance of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log10, prod
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from agglearn.errors import TooLargeError
from agglearn.field.engines.protocol import Expectation
from agglearn.field.layout import Layout
from agglearn.tables.cells import hashed_cells

Floats = npt.NDArray[np.float64]

_BYTES_PER_STATE = 64  # two probabilities and the temporaries of one expectation, float64
_DESCENT_STEPS = 2_000
_NEWTON_STEPS = 60
_CONJUGATE_STEPS = 500
_HALVINGS = 30


class ExactEngine:
    """Expectations by summing over every state; an engine without chains and without noise.

    Parameters
    ----------
    layout
        Features and tables of the field.
    rows
        Number of records the expectations are scaled to.
    max_states
        Refuse above this many states of x (about 64 bytes each).

    Raises
    ------
    TooLargeError
        When the features have more joint states than ``max_states``.
    """

    def __init__(self, layout: Layout, rows: float, max_states: int = 2_000_000) -> None:
        n_states = prod(layout.cards)
        if n_states > max_states:
            raise TooLargeError(
                f"exact engine: the {layout.n_features} features have {_count(n_states)} joint "
                f"states (about {_count(n_states * _BYTES_PER_STATE // 1_000_000)} MB), over the "
                f"limit of {max_states:,}: use the local engine, or fewer features or modalities"
            )
        self.layout = layout
        self.rows = float(rows)
        self.n_states = n_states
        # A feature of one modality needs no axis; numpy allows only so many.
        axes = {f: i for i, f in enumerate(f for f, card in enumerate(layout.cards) if card > 1)}
        self._shape = tuple(layout.cards[f] for f in axes)
        self._scopes = [tuple(axes[f] for f in scope if f in axes) for scope in layout.scopes]
        self._by_first: list[list[int]] = [[] for _ in range(len(axes) + 1)]
        for t, scope in enumerate(self._scopes):
            self._by_first[scope[0] if scope else len(axes)].append(t)
        self._buckets = {
            t: hashed_cells(_all_codes([layout.cards[f] for f in layout.scopes[t]]), size)
            for t, size in enumerate(layout.hash_sizes)
            if size
        }

    @cached_property
    def codes(self) -> npt.NDArray[np.uint16]:
        """Every state x, one row each, the last feature fastest."""
        return np.ascontiguousarray(_all_codes(self.layout.cards).T)

    def probabilities(
        self, mu: npt.NDArray[np.floating], theta: npt.NDArray[np.floating], intercept: float
    ) -> Floats:
        """π(x, y) of every state, rows as in ``codes``, columns y = 0 and y = 1."""
        return self._distribution(mu, theta, intercept)[0]

    def expect(
        self,
        mu: npt.NDArray[np.floating],
        theta: npt.NDArray[np.floating],
        intercept: float,
        iteration: int = 0,
    ) -> Expectation:
        """Exact expected tables; ``iteration`` is not used, since nothing is drawn."""
        joint, log_partition = self._distribution(mu, theta, intercept)
        joint *= self.rows
        positive = joint[:, 1]
        return Expectation(
            d=self._tally(joint.sum(axis=1)),
            c=self._tally(positive),
            positives=float(positive.sum()),
            info={"log_partition": log_partition},
        )

    def sample(
        self,
        n: int,
        mu: npt.NDArray[np.floating],
        theta: npt.NDArray[np.floating],
        intercept: float,
        seed: int,
    ) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
        """Draw ``n`` independent (x, y) of the field: codes (n, D) and labels (n,)."""
        cumulated = np.cumsum(self.probabilities(mu, theta, intercept))
        uniform = np.random.Generator(np.random.Philox(seed)).random(n)
        # Scaled by the last entry, not by 1, so that rounding can never point past the end.
        drawn = np.searchsorted(cumulated, uniform * cumulated[-1], side="right")
        return self.codes[drawn // 2], (drawn % 2).astype(np.uint8)

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """Nothing: an expectation depends on the weights alone."""
        return {}

    def set_state(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Nothing to take back."""

    def scores(self, vector: npt.NDArray[np.floating]) -> Floats:
        """φ(x)·vector for every state."""
        total = np.zeros(())
        for t in self._by_first[-1]:
            total = total + self._dense(vector, t)
        for first in reversed(range(len(self._shape))):
            shape = self._shape[first:]
            total = np.broadcast_to(total, shape).copy()
            for t in self._by_first[first]:
                scope = {axis - first for axis in self._scopes[t]}
                own = [card if axis in scope else 1 for axis, card in enumerate(shape)]
                total += self._dense(vector, t).reshape(own)
        return total.reshape(-1)

    def _tally(self, weights: Floats) -> Floats:
        """Σ_x weight(x)·φ(x): the tables of weighted states (the transpose of ``scores``)."""
        tables = np.empty(self.layout.n_cells)
        rest = weights.reshape(self._shape)
        for first in range(len(self._shape) + 1):
            for t in self._by_first[first]:
                scope = {axis - first for axis in self._scopes[t]}
                others = tuple(axis for axis in range(rest.ndim) if axis not in scope)
                cells = rest.sum(axis=others).reshape(-1)
                if t in self._buckets:
                    size = self.layout.hash_sizes[t]
                    cells = np.bincount(self._buckets[t], cells, minlength=size)
                tables[self.layout.offsets[t] : self.layout.offsets[t + 1]] = cells
            if rest.ndim:
                rest = rest.sum(axis=0)
        return tables

    def curvature(self, joint: Floats, direction: Floats) -> Floats:
        """Hessian of n·log Z times a direction: n times the covariance with it, under ``joint``.

        ``direction`` and the result are points as in :func:`objective_and_gradient`.
        """
        along = np.empty_like(joint)
        n_cells = self.layout.n_cells
        along[:, 0] = self.scores(direction[:n_cells])
        along[:, 1] = along[:, 0] + self.scores(direction[n_cells:-1]) + direction[-1]
        along -= np.vdot(joint, along)
        along *= joint
        along *= self.rows
        positive = along[:, 1]
        return np.concatenate([self._tally(along.sum(axis=1)), self._tally(positive), [positive.sum()]])

    def _dense(self, vector: npt.NDArray[np.floating], t: int) -> Floats:
        """Weights of a table over all the combinations of its features, flat."""
        part = vector[self.layout.offsets[t] : self.layout.offsets[t + 1]]
        return np.asarray(part[self._buckets[t]] if t in self._buckets else part, np.float64)

    def _distribution(
        self, mu: npt.NDArray[np.floating], theta: npt.NDArray[np.floating], intercept: float
    ) -> tuple[Floats, float]:
        joint = np.empty((self.n_states, 2))
        joint[:, 0] = self.scores(mu)
        joint[:, 1] = joint[:, 0] + self.scores(theta) + intercept
        highest = float(joint.max())
        joint -= highest
        np.exp(joint, out=joint)
        total = float(joint.sum())
        joint /= total
        return joint, highest + float(np.log(total))


@dataclass(frozen=True)
class Optimum:
    """Where the penalised likelihood is best.

    Attributes
    ----------
    mu, theta, intercept
        Weights of the field. Not unique at λ = 0; the distribution is.
    objective
        Value of F there (see the module).
    converged
        Whether no gradient coordinate exceeds the tolerance times the number of rows. False when
        tables that contradict one another leave F without a minimum (λ = 0 and noise).
    """

    mu: Floats
    theta: Floats
    intercept: float
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
    n_cells = engine.layout.n_cells
    mu, theta, intercept = point[:n_cells], point[n_cells:-1], float(point[-1])
    expected = engine.expect(mu, theta, intercept)
    shift = mu - mu0
    value = (
        engine.rows * expected.info["log_partition"]
        - np.dot(d, mu)
        - np.dot(c, theta)
        - positives * intercept
        + lambda_theta * np.dot(theta, theta)
        + lambda_mu * np.dot(shift, shift)
    )
    gradient = np.concatenate(
        [
            expected.d - d + 2 * lambda_mu * shift,
            expected.c - c + 2 * lambda_theta * theta,
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
    n_cells = engine.layout.n_cells
    return Optimum(
        mu=point[:n_cells],
        theta=point[n_cells:-1],
        intercept=float(point[-1]),
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
    n_cells = engine.layout.n_cells
    joint = engine.probabilities(point[:n_cells], point[n_cells:-1], float(point[-1]))
    rows = max(engine.rows, 1.0)
    step = np.zeros_like(gradient)
    residual = -gradient
    direction = residual.copy()
    square = float(np.dot(residual, residual))
    enough = square * 1e-6
    for _ in range(_CONJUGATE_STEPS):
        bent = engine.curvature(joint, direction) / rows + penalty * direction
        bend = float(np.dot(direction, bent))
        if bend <= 0:
            break
        length = square / bend
        step += length * direction
        residual -= length * bent
        previous, square = square, float(np.dot(residual, residual))
        if square <= enough:
            break
        direction = residual + square / previous * direction
    return step


def _all_codes(cards: Sequence[int]) -> npt.NDArray[np.uint16]:
    """Every combination of modalities, a row per feature, the last feature fastest."""
    codes = np.empty((len(cards), prod(cards)), np.uint16)
    for f, card in enumerate(cards):
        codes[f].reshape(prod(cards[:f]), card, -1)[:] = np.arange(card)[:, None]
    return codes


def _count(number: int) -> str:
    """A count to read: in full while that is short."""
    return f"{number:,}" if number < 10**12 else f"10^{log10(number):.0f}"
