"""An engine whose field has coarser tables beside its tables (:mod:`agglearn.field.levels`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from agglearn.field.engines.protocol import Engine, Expectation, Floats, State
from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.levels import Levels, WidePopulation
from agglearn.runtime.random import Numbers
from agglearn.runtime.threads import in_threads


class Levelled:
    """Another engine, which knows the tables alone: weights are folded to it, what it counts is lifted.

    With ``threads`` vectors that are folded or lifted together are so side by side.
    """

    def __init__(self, inner: Engine, levels: Levels, threads: int = 1) -> None:
        self.inner, self.levels, self.threads = inner, levels, threads
        self.layout, self.rows = levels.wide, inner.rows
        self.longest_step_mu, self.still = inner.longest_step_mu, inner.still

    @property
    def n_chains(self) -> int:
        return self.inner.n_chains

    @property
    def chains(self) -> Codes | None:
        """The chains, a row for each feature."""
        return self.inner.chains

    def expect(self, field: Field, iteration: int, law: Field | None = None) -> Expectation:
        """The expected aggregates of all levels."""
        weights = [field.mu, field.theta, *([] if law is None else [law.theta])]  # a law has the same μ
        mu, *thetas = self._each(self.levels.fold, weights)
        own = replace(field, layout=self.levels.base, mu=mu, theta=thetas[0])
        of_law = None if law is None else replace(own, theta=thetas[1], intercept=law.intercept)
        found = self.inner.expect(own, iteration, of_law)
        d, c = self._each(self.levels.lift, [found.d, found.c])
        return Expectation(d, c, found.positives, found.info, found.spread)

    def _each(self, work: Callable[[Floats], Floats], vectors: Sequence[Floats]) -> list[Floats]:
        workers = min(self.threads, len(vectors))
        found = in_threads(workers, lambda w: [work(vector) for vector in vectors[w::workers]])
        return [found[k % workers][k // workers] for k in range(len(vectors))]

    def settle(self, field: Field, sweeps: int, numbers: Numbers) -> None:
        """Bring the chains to these weights, by random numbers of their own."""
        self.inner.settle(self.levels.fold_field(field), sweeps, numbers)

    def grow(self, n_chains: int, iteration: int) -> None:
        """Go on with that many chains, if there are fewer."""
        self.inner.grow(n_chains, iteration)

    def use(self, numbers: Numbers) -> None:
        """From here on, draw by these random numbers."""
        self.inner.use(numbers)

    def population(self, field: Field) -> WidePopulation:
        """The law of X at these weights."""
        return WidePopulation(self.inner.population(self.levels.fold_field(field)), self.levels)

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """What the engine has to keep."""
        return self.inner.get_state()

    def set_state(self, state: State) -> None:
        """Go back to a state that :meth:`get_state` gave."""
        self.inner.set_state(state)
