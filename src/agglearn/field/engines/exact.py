"""The field by enumeration: an engine without chains and without noise.

With states x = (x_1 … x_D) few enough to list (:mod:`agglearn.field.states`), the expectations of

    π(x, y) = exp( Σ_k φ_k(x)·(μ_k + y·θ_k) + y·θ₀ ) / Z

are sums over all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.engines.protocol import EngineOptions, Expectation, State
from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.field.population import Enumeration
from agglearn.field.problem import Problem
from agglearn.field.start import Starter
from agglearn.field.states import MOST_STATES, States
from agglearn.runtime.random import Numbers, Use, generator

Floats = npt.NDArray[np.float64]


class ExactEngine:
    """Expectations by summing over every state.

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

    longest_step_mu = 1.5  # no chain lags behind the weights: 2 is where a step overshoots for good
    still = False
    n_chains = 0
    chains = None

    def __init__(self, layout: Layout, rows: float, max_states: int = MOST_STATES) -> None:
        self.layout, self.rows = layout, float(rows)
        self.states = States(layout, max_states)

    def probabilities(self, field: Field) -> Floats:
        """π(x, y) of every state, rows as in ``states.codes``, columns y = 0 and y = 1."""
        return self._distribution(field)[0]

    def expect(self, field: Field, iteration: int = 0, law: Field | None = None) -> Expectation:
        """Exact expected tables; ``iteration`` is not used, since nothing is drawn."""
        joint, log_partition = self._distribution(law or field)
        joint *= self.rows
        members = joint.sum(axis=1)
        p = expit(self._log_odds(field))
        positive = joint[:, 1] if law is None else members * p
        return Expectation(
            d=self.states.tally(members),
            c=self.states.tally(positive),
            positives=float(positive.sum()),
            info={"log_partition": log_partition},
            spread=float((members * p * (1 - p)).sum()),
        )

    def population(self, field: Field) -> Enumeration:
        """The law of X at these weights."""
        return Enumeration(self.states, self.probabilities(field).sum(axis=1))

    def sample(self, n: int, field: Field, seed: int) -> tuple[Codes, npt.NDArray[np.uint8]]:
        """Draw ``n`` independent (x, y) of the field: codes, a row for each feature, and labels."""
        cumulated = np.cumsum(self.probabilities(field))
        uniform = generator(seed, Use.EXACT).random(n)
        # Scaled by the last entry, not by 1, so that rounding can never point past the end.
        drawn = np.searchsorted(cumulated, uniform * cumulated[-1], side="right")
        return np.ascontiguousarray(self.states.codes[:, drawn // 2]), (drawn % 2).astype(np.uint8)

    def settle(self, field: Field, sweeps: int, numbers: Numbers) -> None:
        """Nothing: there is nothing that lags behind."""

    def grow(self, n_chains: int, iteration: int) -> None:
        """Nothing to grow."""

    def use(self, numbers: Numbers) -> None:
        """Nothing is drawn."""

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """Nothing: an expectation depends on the weights alone."""
        return {}

    def set_state(self, state: State) -> None:
        """Nothing to take back."""

    def curvature(self, joint: Floats, direction: Floats) -> Floats:
        """Hessian of n·log Z times a direction: n times the covariance with it, under ``joint``.

        ``direction`` and the result are points as in :func:`agglearn.field.optimum.objective_and_gradient`.
        """
        along = np.empty_like(joint)
        n_cells = self.layout.n_cells
        along[:, 0] = self.states.scores(direction[:n_cells])
        along[:, 1] = along[:, 0] + self.states.scores(direction[n_cells:-1]) + direction[-1]
        along -= np.vdot(joint, along)
        along *= joint
        along *= self.rows
        positive = along[:, 1]
        return np.concatenate(
            [self.states.tally(along.sum(axis=1)), self.states.tally(positive), [positive.sum()]]
        )

    def _log_odds(self, field: Field) -> Floats:
        """Log-odds of a positive label in every state."""
        return np.asarray(self.states.scores(field.theta) + field.intercept)

    def _distribution(self, field: Field) -> tuple[Floats, float]:
        """π(x, y) of every state, and log Z."""
        joint = np.empty((self.states.size, 2))
        joint[:, 0] = self.states.scores(field.mu)
        odds = self._log_odds(field)
        if field.apart:  # y takes nothing from x, and gives nothing to it
            joint[:, 0] -= np.logaddexp(0.0, odds)
        joint[:, 1] = joint[:, 0] + odds
        highest = float(joint.max())
        joint -= highest
        np.exp(joint, out=joint)
        total = float(joint.sum())
        joint /= total
        return joint, highest + float(np.log(total))


def open_exact(problem: Problem, start: Starter, options: EngineOptions) -> tuple[ExactEngine, Floats]:
    """The engine, and μ₀ of a start of the tables."""
    engine = ExactEngine(problem.layout, problem.rows)
    return engine, start(problem.layout, problem.d, problem.rows, 2, options.numbers).mu
