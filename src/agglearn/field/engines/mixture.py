"""Chains beside records: rates of cells by whichever can tell them, or something between.

The chains' law is that of maximum entropy: right in every table, and too smooth beyond them. The records' is
right beyond them too, up to the chance of a sample: m records tell the rate of a cell that holds a share s of
them with a variance κv/(m·s), v that of the label's probability within the cell. (κ is 1 for records of their
own; for part of those behind the tables it is less, and shows in how well their counts agree with the
tables', :mod:`..rake`.) In the cells of one table let the chains' rates be off by draws of N(0, τ²). The best
estimate is then

    r = r_chains + b·(r_records − r_chains),   b = τ²/(τ² + κv/(m·s)):

the records' own in large cells, the chains' in small ones, and τ² is what the two differ by beyond both their
chances, a number for each table. It is found anew every few iterations, at the weights of that moment, less
two standard errors: records that tell nothing for certain are left alone. So are cells of few records, whose
rates are no normal draws: weights follow the records that are trusted, and with them their chance, so that
trust once given for nothing only grows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.engines.local import open_local
from agglearn.field.engines.protocol import KEPT_CHAINS, Engine, EngineOptions, Expectation, Opener, State
from agglearn.field.engines.records import open_records
from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.members import Members
from agglearn.field.population import Population
from agglearn.field.problem import Problem
from agglearn.field.start import Starter
from agglearn.runtime.random import Numbers

Floats = npt.NDArray[np.float64]

_EVERY = 10  # iterations between two looks at what the records and the chains tell
# Variance of a mean over records beside that of a label: with 90 % of Adult's records (0.11) a fit by records
# alone was the better one, with 60 % (0.67) that with chains.
_ENOUGH = 0.15
_MEMORY = 0.7  # of what was found before: chains are noisy
_SURE = 2.0  # standard errors: with one, 1 % of the records of Bank and fars lost 0.001 and 0.002 NLLH
# Records of a cell, below which they tell nothing of it. With none asked for, one of five draws of 1 % of the
# records lost 0.016 NLLH on fars, and one of two 0.038 on Adult; with this neither did, and 10 % of Credit's
# records gained the 0.002 that they had gained before. (With more standard errors instead, they gained none.)
_FEWEST = 20.0
_LENT = 5.0  # members' worth of the table's mean spread that a cell's own is judged by
_PRIOR_CELLS = 10.0  # cells' worth of all tables' mean bias that a table's own is judged by


class MixtureEngine:
    """Chains of another engine, and records.

    Parameters
    ----------
    moving
        The chains.
    records
        The records, over the same tables.
    """

    longest_step_mu = np.inf
    still = False

    def __init__(self, moving: Engine, records: Members) -> None:
        self.layout, self.rows = moving.layout, moving.rows
        self._moving, self._records = moving, records
        self._shares = records.shares()
        count = np.append(self._shares, 1.0) * records.size
        # What one unit of spread makes the records' rate err by.
        self._chance = np.divide(records.chance, count, out=np.full(count.size, np.inf), where=count > 0)
        self._enough = count >= _FEWEST
        self._bias = np.zeros(self.layout.n_tables + 1)
        self._trust = np.zeros(self.layout.n_cells + 1)  # b of each cell, and of all records together

    @property
    def n_chains(self) -> int:
        return self._moving.n_chains

    @property
    def chains(self) -> Codes | None:
        """The chains to keep with a model."""
        return self._moving.chains

    @property
    def share(self) -> float:
        """What the records are trusted with, in the mean over records and tables."""
        return float(self._trust[:-1] @ self._shares / self.layout.n_tables)

    def expect(self, field: Field, iteration: int, law: Field | None = None) -> Expectation:
        """Move the chains one sweep at these weights (or a law's), then tally them and the records."""
        found = self._moving.expect(field, iteration, law)
        if iteration % _EVERY == 0 and iteration > 0:
            self._weigh(field)
        p = expit(self._records.scores(field.theta, field.intercept))
        theirs = np.append(self._records.cells(p), self._records.mean(p))
        theirs = _ratio(theirs, np.append(self._shares, 1.0))
        d = np.append(found.d, self.rows)
        ours = _ratio(np.append(found.c, found.positives), d)
        c = d * (ours + self._trust * (theirs - ours))
        info = {**found.info, "records": self.share}
        return Expectation(found.d, c[:-1], float(c[-1]), info, found.spread)

    def _weigh(self, field: Field) -> None:
        """Take another look at how far the chains' rates are off."""
        chains = self._moving.population(field)
        ours, theirs = (_Rates(law, field) for law in (chains, self._records))
        count = ours.shares * chains.size
        spread = self._lent(ours.spread, count)
        told = self._enough & (count > 0)
        chance = spread * np.where(told, self._chance, 0.0)
        both = chance + spread / np.maximum(count, 1.0)
        off = np.square(theirs.rates - ours.rates) - both
        # Squares err as their variance does, which is as one over the cell's share.
        worth = np.where(told, np.square(ours.shares), 0.0)
        seen, cells = self._sums(worth * off), self._sums(worth)
        # All tables count the same records: their mean errs as much as one of them.
        error = np.sqrt(2 * _ratio(self._sums(np.square(worth * both)), np.square(cells)))
        own = _ratio(seen, cells) - _SURE * error
        common = float(own[:-1] @ cells[:-1] / max(float(cells[:-1].sum()), 1e-300))
        number = _ratio(np.square(cells), self._sums(np.square(worth)))
        bias = np.maximum((number * own + _PRIOR_CELLS * common) / (number + _PRIOR_CELLS), 0.0)
        self._bias = _MEMORY * self._bias + (1 - _MEMORY) * bias if self._bias.any() else bias
        each = self._spread_out(self._bias)
        self._trust = np.where(told, _ratio(each, each + chance), 0.0)

    def _lent(self, spread: Floats, count: Floats) -> Floats:
        """A spread for each cell: its own, as far as its members tell it, or the mean of its table."""
        mean = _ratio(self._sums(spread * count), self._sums(count))
        return np.asarray((count * spread + _LENT * self._spread_out(mean)) / (count + _LENT))

    def _sums(self, cells: Floats) -> Floats:
        """Numbers of the cells summed by table, that of all records together last."""
        return np.append(np.add.reduceat(cells[:-1], self.layout.offsets[:-1]), cells[-1])

    def _spread_out(self, tables: Floats) -> Floats:
        return np.append(np.repeat(tables[:-1], self.layout.sizes), tables[-1])

    def settle(self, field: Field, sweeps: int, numbers: Numbers) -> None:
        """Bring the chains to these weights."""
        self._moving.settle(field, sweeps, numbers)

    def grow(self, n_chains: int, iteration: int) -> None:
        """Go on with so many chains."""
        self._moving.grow(n_chains, iteration)

    def use(self, numbers: Numbers) -> None:
        """From here on, draw by these random numbers."""
        self._moving.use(numbers)

    def population(self, field: Field) -> Population:
        """Chains and records together, as the records are trusted in the mean."""
        chains = self._moving.population(field).some(KEPT_CHAINS)
        return Members.mixed(self._records, self.share, chains)

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """The chains, and what the records were found to be worth."""
        return {**self._moving.get_state(), "bias": self._bias.copy(), "trust": self._trust.copy()}

    def set_state(self, state: State) -> None:
        """Go back to a state that :meth:`get_state` gave."""
        self._moving.set_state(state)
        self._bias, self._trust = np.array(state["bias"]), np.array(state["trust"])


class _Rates:
    """Shares and rates of cells under a law of X, and the variance of p within each; all members last."""

    def __init__(self, law: Population, field: Field) -> None:
        p = law.map(expit, law.scores(field.theta, field.intercept))
        squared = law.map(np.square, p)
        self.shares = np.append(law.shares(), 1.0)
        self.rates = _ratio(np.append(law.cells(p), law.mean(p)), self.shares)
        square = _ratio(np.append(law.cells(squared), law.mean(squared)), self.shares)
        self.spread = np.maximum(square - self.rates**2, 0.0)


def _ratio(a: Floats, b: Floats) -> Floats:
    """a/b, and 0 where b is."""
    return np.divide(a, b, out=np.zeros_like(b), where=b > 0)


def open_mixture(
    problem: Problem, start: Starter, options: EngineOptions, chains: Opener = open_local
) -> tuple[Engine, Floats]:
    """Records alone where they tell all that the labels can follow, chains and records otherwise."""
    records = problem.records
    assert records is not None
    if records.chance * problem.rows <= _ENOUGH * records.size:
        return open_records(problem, start, options)
    moving, mu = chains(problem, start, options)
    return MixtureEngine(moving, records.over(problem.layout)), mu
