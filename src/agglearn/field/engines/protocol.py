"""What every engine of the field offers to those who train with it.

An engine keeps the chains (or, the exact one, the whole distribution) and answers one question at
given weights: how many examples, and how many positive ones, does the field expect in each cell? Nothing
outside an engine's own module asks which kind it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.field.population import Population
from agglearn.field.problem import Problem
from agglearn.field.start import Starter
from agglearn.runtime.random import Numbers

KEPT_CHAINS = 1 << 20  # chains that a model keeps at most, as its law of X: more would tell nothing more

Floats = npt.NDArray[np.float64]
State: TypeAlias = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Expectation:
    """The field's expected aggregates, scaled to the number of rows of the data.

    Attributes
    ----------
    d
        Expected examples in each cell.
    c
        Expected sum of the label in each cell.
    positives
        Expected sum of the label over all rows.
    info
        Diagnostics of the move, such as ``moves`` (share of values that changed) and
        ``acceptance`` (share of Metropolis proposals accepted, and of groups ``group_acceptance``).
    spread
        Expected sum of p(1 − p) over all rows, p being the probability of a positive label; None where
        labels are drawn.
    """

    d: Floats
    c: Floats
    positives: float
    info: dict[str, float]
    spread: float | None = None


@dataclass(frozen=True)
class EngineOptions:
    """How an engine goes about it.

    Attributes
    ----------
    chains
        How many chains there are to be in the end.
    first_chains
        How many there are at first.
    numbers
        The random numbers of every draw.
    exact_up_to, proposals
        Features with more modalities than this move by so many Metropolis proposals.
    marginal_label
        Whether ĉ sums the label out of each chain, rather than use the drawn label.
    groups
        Whether features that determine one another are also redrawn together.
    threads
        Threads to use, all cores by default; they change the time, never the result.
    storage
        A folder for what does not fit into one process, where the fit has one that lasts.
    """

    chains: int
    first_chains: int
    numbers: Numbers
    exact_up_to: int = 100
    proposals: int = 2
    marginal_label: bool = True
    groups: bool = True
    threads: int | None = None
    storage: str | None = None


class Engine(Protocol):
    """Expectations of a field, whatever they are found by.

    Attributes
    ----------
    layout, rows
        Features and tables, and the number of records that expectations are scaled to.
    longest_step_mu
        The longest step on μ that is stable, in units of 1/tables.
    still
        Whether its law of X stays where it is whatever the weights, so that θ can be solved for.
    """

    layout: Layout
    rows: float
    longest_step_mu: float
    still: bool

    @property
    def n_chains(self) -> int:
        """How many chains there are now; 0 for an engine that needs none."""
        ...

    @property
    def chains(self) -> Codes | None:
        """The chains to keep with a model, a row for each feature; None where there are none."""
        ...

    def expect(self, field: Field, iteration: int, law: Field | None = None) -> Expectation:
        """Move the chains one sweep at these weights, then tally them.

        With a ``law`` the chains move at its weights, and the label alone follows the field's.
        """
        ...

    def settle(self, field: Field, sweeps: int, numbers: Numbers) -> None:
        """Bring the chains to these weights, by random numbers of their own."""
        ...

    def grow(self, n_chains: int, iteration: int) -> None:
        """Go on with so many chains, if there are fewer."""
        ...

    def use(self, numbers: Numbers) -> None:
        """From here on, draw by these random numbers."""
        ...

    def population(self, field: Field) -> Population:
        """The law of X: the chains as they stand, or that of these weights where there are none."""
        ...

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything needed to go on bit for bit from here."""
        ...

    def set_state(self, state: State) -> None:
        """Go back to a state that :meth:`get_state` gave."""
        ...


class Opener(Protocol):
    """How an engine is made: from tables, a way to start, and options; it comes with μ₀."""

    def __call__(self, problem: Problem, start: Starter, options: EngineOptions) -> tuple[Engine, Floats]: ...
