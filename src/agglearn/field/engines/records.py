"""The engine that needs no field: X is known by its records, and only the labels come from tables.

Expectations are means over the records, so they depend on θ alone and carry no chance. With all records the
fit is the penalised logistic regression itself, whose gradient asks of the labels for nothing but c.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.engines.protocol import EngineOptions, Expectation, State
from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.members import Members
from agglearn.field.problem import Problem
from agglearn.field.start import Starter
from agglearn.runtime.random import Numbers

Floats = npt.NDArray[np.float64]

KEPT = 60_000  # records that a model keeps as its law of X, as many as are drawn of another's


class RecordsEngine:
    """Expectations by averaging over records.

    Parameters
    ----------
    records
        The records, over the tables of the field.
    rows
        Number of records the expectations are scaled to.
    """

    longest_step_mu = 1.5
    still = True
    n_chains = 0

    def __init__(self, records: Members, rows: float) -> None:
        self.layout, self.rows = records.layout, float(rows)
        self._records = records
        self._d = self.rows * records.shares()

    @property
    def chains(self) -> Codes:
        """Some of the records, each as often as it counts."""
        return self._records.some(KEPT)

    def expect(self, field: Field, iteration: int = 0, law: Field | None = None) -> Expectation:
        """Means over the records; nothing is drawn, and the law of X is theirs whatever the weights."""
        p = expit(self._records.scores(field.theta, field.intercept))
        c = self.rows * self._records.cells(p)
        return Expectation(self._d.copy(), c, self.rows * float(self._records.mean(p)), {})

    def population(self, field: Field | None = None) -> Members:
        """The records, whatever the weights."""
        return self._records

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


def open_records(problem: Problem, start: Starter, options: EngineOptions) -> tuple[RecordsEngine, Floats]:
    """The engine, and μ₀ of a start of the tables, which nothing moves."""
    assert problem.records is not None
    mu = start(problem.layout, problem.d, problem.rows, 2, options.numbers).mu
    return RecordsEngine(problem.records.over(problem.layout), problem.rows), mu
