"""A population of chains that are spread over machines.

Values of its members are never brought together: they are functions of a block's chains, worked out where the
block is whenever a mean is taken. Sums are exact (:mod:`..sums`), so that they are those of the same chains
in one place, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from operator import add
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.field.engines.local import LocalEngine
from agglearn.field.kernels.score import Codes, tally
from agglearn.field.layout import Layout
from agglearn.field.population import Chains, Moments, Shifts
from agglearn.field.sums import exact_sum, grid, on_grid
from agglearn.runtime.threads import thread_count

Floats = npt.NDArray[np.float64]
Column: TypeAlias = Callable[[Chains], npt.NDArray[Any]]


class Cluster(Protocol):
    """Blocks of chains at one moment, and a way to ask them all."""

    def ask(self, work: Callable[[LocalEngine], Any], add: Callable[[Any, Any], Any]) -> Any:
        """The sum of what each block says."""
        ...

    def ask_cells(self, work: Callable[[LocalEngine], Floats]) -> Floats:
        """The sum of vectors over cells."""
        ...

    def share(self, vector: Floats) -> Any:
        """A vector over cells that executors get as the only one of its ``value``."""
        ...

    def send(self, value: Any) -> Any:
        """Anything else that executors get as its ``value``."""
        ...


@dataclass(frozen=True, eq=False)
class SpreadChains:
    """Members in the memory of many machines.

    Attributes
    ----------
    layout
        The tables they are counted in.
    cluster
        Where they are.
    n_chains
        How many chains there are in all.
    half
        0 or 1 for every other chain, None for all.
    """

    layout: Layout
    cluster: Cluster
    n_chains: int
    half: int | None = None
    _layout: Any = None  # for the executors, where it is not the engine's own

    @property
    def size(self) -> float:
        return float(self._size)

    @property
    def _size(self) -> int:
        return self.n_chains if self.half is None else (self.n_chains + 1 - self.half) // 2

    def scores(self, weights: npt.NDArray[np.floating], shift: Any = 0.0) -> Column:
        """φ(x)·w + shift of each member."""
        if weights.ndim > 1:
            raise InputError("several sets of weights at once need their chains in one place: engine local")
        return partial(_scored, self.cluster.share(np.asarray(weights, np.float64)), shift)

    def map(self, function: Callable[..., npt.NDArray[Any]], *values: Column) -> Column:
        """A function of values, member by member."""
        return partial(_mapped, function, values)

    def mean(self, values: Column) -> float:
        """The mean over the members."""
        return float(self._ask(partial(_summed, values)) / self._size)

    def moments(self, values: Column) -> Moments:
        """Mean, spread and standard error."""
        mean, n = self.mean(values), self._size
        deviance = float(self._ask(partial(_summed, partial(_squared_gap, values, mean))))
        return Moments(n, mean, deviance, n, deviance)

    def shares(self) -> Floats:
        """E[φ]: the share of the members in each cell."""
        return np.asarray(self._ask_cells(_counted) / self.size)

    def cells(self, values: Column) -> Floats:
        """E[v·φ]: the mean of values counted in each cell."""
        largest = self._ask(partial(_largest, values), max)
        sums = self._ask_cells(partial(_tallied, values, grid(largest, self._size)))
        sums /= self.size
        return sums

    def halves(self) -> tuple[SpreadChains, SpreadChains]:
        """Every other chain, and the rest."""
        return replace(self, half=0), replace(self, half=1)

    def over(self, layout: Layout) -> SpreadChains:
        """The same members, counted in other tables of the same features."""
        if layout == self.layout:
            return self
        return replace(self, layout=layout, _layout=self.cluster.send(layout))

    def some(self, most: int) -> Codes:
        """Codes of at most so many members, evenly chosen, a row for each feature."""
        n = self._size
        wanted = np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)
        if self.half is not None:
            wanted = 2 * wanted + self.half
        parts = self.cluster.ask(partial(_taken, wanted if n > most else None, self.half), add)
        ids = np.concatenate([ids for ids, _ in parts])
        codes = np.concatenate([codes for _, codes in parts], axis=1)
        found = np.argsort(ids)
        return np.ascontiguousarray(codes[:, found[np.searchsorted(ids[found], wanted)]])

    def here(self, most: int) -> Chains:
        """The same law by at most so many members, brought to this process."""
        return Chains(self.layout, self.some(most), threads=thread_count())

    def draw(self, variance: Column, generators: Sequence[np.random.Generator]) -> Shifts:
        """Not here: draws of weights are for a fitted model, whose chains are in one place."""
        raise InputError("weights are drawn by chains in one place: engine local")

    def _ask_cells(self, work: Callable[[Chains], Floats]) -> Floats:
        return self.cluster.ask_cells(partial(_of_members, work, self.half, self._layout))

    def _ask(self, work: Callable[[Chains], Any], plus: Callable[[Any, Any], Any] = add) -> Any:
        return self.cluster.ask(partial(_of_members, work, self.half, self._layout), plus)


def _of_members(work: Callable[[Chains], Any], half: int | None, layout: Any, engine: LocalEngine) -> Any:
    """What the members of one block say."""
    members = engine.population()
    if half is not None:
        members = members.part(engine.ids % np.uint64(2) == half)
    return work(members if layout is None else members.over(layout.value))


def _scored(weights: Any, shift: float, members: Chains) -> npt.NDArray[Any]:
    return np.asarray(members.scores(weights.value[0], shift))


def _mapped(function: Callable[..., Any], values: Sequence[Column], members: Chains) -> npt.NDArray[Any]:
    return np.asarray(function(*(column(members) for column in values)))


def _squared_gap(values: Column, mean: float, members: Chains) -> npt.NDArray[Any]:
    return np.square(values(members) - mean)


def _summed(values: Column, members: Chains) -> Fraction:
    return exact_sum(values(members))


def _largest(values: Column, members: Chains) -> float:
    return float(np.abs(values(members)).max(initial=0.0))


def _counted(members: Chains) -> Floats:
    return tally(members.codes, np.zeros(members.codes.shape[1]), members.layout, members.threads)[0]


def _tallied(values: Column, unit: float, members: Chains) -> Floats:
    return tally(members.codes, on_grid(values(members), unit), members.layout, members.threads)[1]


def _taken(
    wanted: npt.NDArray[np.int64] | None, half: int | None, engine: LocalEngine
) -> list[tuple[npt.NDArray[np.uint64], Codes]]:
    ids, codes = engine.ids, engine.chains
    if wanted is not None:
        chosen = np.isin(ids, wanted)
    else:
        chosen = np.ones(ids.size, np.bool_) if half is None else ids % np.uint64(2) == half
    return [(ids[chosen], codes[:, chosen])]
