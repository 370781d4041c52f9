"""Chains beside records: a law of X between the field's own and that of the few records there are.

The chains' law is that of maximum entropy: right in every table, and too smooth beyond them. The records' is
right beyond them too, up to the chance of a sample. Expectations are taken under a mixture, records counting

    a = B²/(B² + V),

V the squared error that the records' chance leaves in the rates of the cells, B² by how much rates by records
and by chains differ beyond both their chances: the chains' bias. Both are sums over the cells of the squared
error of a rate beside that of the tables' own labels, d/(p(1 − p)) times it. Records that are part of those
behind the tables err less: V is (1 − m/n) times that of m records of their own. The shares are found anew
every few iterations, at the weights of that moment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.engines.local import LocalEngine, open_local
from agglearn.field.engines.protocol import Engine, EngineOptions, Expectation, State
from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.members import Members
from agglearn.field.population import Population
from agglearn.field.problem import Problem
from agglearn.field.start import Starter
from agglearn.runtime.random import Numbers

Floats = npt.NDArray[np.float64]

_EVERY = 10  # iterations between two looks at what the records and the chains tell
_FEWEST = 5.0  # records in a cell whose rate says anything of the chains'
_MEMORY = 0.7  # of what was found before: chains are noisy
FIXED: float | None = None


class MixtureEngine:
    """Chains of the local engine, and records.

    Parameters
    ----------
    local
        The chains.
    records
        The records, over the same tables.
    """

    longest_step_mu = np.inf
    still = False

    def __init__(self, local: LocalEngine, records: Members) -> None:
        self.layout, self.rows = local.layout, local.rows
        self._local, self._records = local, records
        self._shares = records.shares()
        self._moments = np.zeros(2)  # running B² and V

    @property
    def n_chains(self) -> int:
        return self._local.n_chains

    @property
    def chains(self) -> Codes:
        """The chains to keep with a model."""
        return self._local.chains

    @property
    def share(self) -> float:
        """What all records together count."""
        if FIXED is not None:
            return FIXED
        bias, chance = self._moments
        return float(bias / (bias + chance)) if bias + chance > 0 else 0.0

    def expect(self, field: Field, iteration: int) -> Expectation:
        """Move the chains one sweep at these weights, then tally them and the records."""
        found = self._local.expect(field, iteration)
        if iteration % _EVERY == 0 and iteration > 0:
            self._weigh(field)
        p = expit(self._records.scores(field.theta, field.intercept))
        share = self.share

        def mixed(chains: Any, records: Any) -> Any:
            return (1 - share) * chains + share * self.rows * records

        return Expectation(
            d=mixed(found.d, self._shares),
            c=mixed(found.c, self._records.cells(p)),
            positives=float(mixed(found.positives, self._records.mean(p))),
            info={**found.info, "records": share},
        )

    def _weigh(self, field: Field) -> None:
        """Take another look at B² and V."""
        chains = self._local.population()
        of_chains, of_records = (_rates(law, field) for law in (chains, self._records))
        m, n, k = self._records.size, self.rows, chains.size
        told = (self._shares * m >= _FEWEST) & (of_chains.shares * k >= _FEWEST)
        share, spread = self._shares[told], of_records.spread[told]
        gap = np.square(of_records.rates[told] - of_chains.rates[told])
        p = np.clip(of_chains.rates[told], 1e-6, 1 - 1e-6)
        worth = n * share / (p * (1 - p))
        chance = spread / (m * share)
        between = spread / (k * of_chains.shares[told])
        found = np.array(
            [np.sum(worth * (gap - chance - between)), max(0.0, 1 - m / n) * np.sum(worth * chance)]
        )
        found[0] = max(found[0], 0.0)
        known = self._moments.any()
        self._moments = _MEMORY * self._moments + (1 - _MEMORY) * found if known else found

    def settle(self, field: Field, sweeps: int, numbers: Numbers) -> None:
        """Bring the chains to these weights."""
        self._local.settle(field, sweeps, numbers)

    def grow(self, n_chains: int, iteration: int) -> None:
        """Go on with so many chains."""
        self._local.grow(n_chains, iteration)

    def use(self, numbers: Numbers) -> None:
        """From here on, draw by these random numbers."""
        self._local.use(numbers)

    def population(self, field: Field | None = None) -> Population:
        """Chains and records together."""
        return Members.mixed(self._records, self.share, self._local.population())

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """The chains, and what the records were found to be worth."""
        return {**self._local.get_state(), "moments": self._moments.copy()}

    def set_state(self, state: State) -> None:
        """Go back to a state that :meth:`get_state` gave."""
        self._local.set_state(state)
        self._moments = np.array(state["moments"])


class _Rates:
    """Rates of cells under a law of X, and the variance of p within each."""

    def __init__(self, shares: Floats, first: Floats, second: Floats) -> None:
        self.shares = shares
        some = shares > 0
        self.rates = np.divide(first, shares, out=np.zeros_like(shares), where=some)
        square = np.divide(second, shares, out=np.zeros_like(shares), where=some)
        self.spread = np.maximum(square - self.rates**2, 0.0)


def _rates(law: Population, field: Field) -> _Rates:
    p = law.map(expit, law.scores(field.theta, field.intercept))
    return _Rates(law.shares(), law.cells(p), law.cells(law.map(np.square, p)))


def open_mixture(problem: Problem, start: Starter, options: EngineOptions) -> tuple[Engine, Floats]:
    """Records alone where there are as many as behind the tables, chains and records otherwise."""
    assert problem.records is not None
    local, mu = open_local(problem, start, options)
    return MixtureEngine(local, problem.records.over(problem.layout)), mu
