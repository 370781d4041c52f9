"""A law of X to take means over: all that anything needs of X once it is there.

A field's law of X is known by its members: chains, or every state there is. What is asked of it is always
the same: weights summed over each member's cells (*gather*), and values of members averaged in each cell
(*tally*). So scores from tables, Newton steps, information and intervals are written once, over this
protocol.

**Values** are a number (or a row of numbers, one for each of several sets of weights) for each member. Nobody
but the population knows what holds them, an array here, a column spread over machines elsewhere: others pass
them back to :meth:`Population.map`, :meth:`~Population.mean`, :meth:`~Population.cells` and
:meth:`~Population.moments`, and never index them. So no code needs all members in one process.

All means are sums in a fixed order: no number depends on how many threads there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.score import Codes, score_codes, tally
from agglearn.field.kernels.sets import dot_sets, score_sets, tally_sets
from agglearn.field.layout import Layout
from agglearn.field.states import States
from agglearn.field.sums import exact_sum, grid, on_grid

Floats = npt.NDArray[np.float64]
Values: TypeAlias = Any  # of members: known to their population alone
Shifts: TypeAlias = npt.NDArray[np.float32]  # of ψ = (φ, 1): a row for each cell and one for the intercept


@dataclass(frozen=True)
class Moments:
    """Mean and spread of values over members; those of two populations add up.

    Attributes
    ----------
    members, mean, deviance
        How many, their mean, and the summed squares of their differences to it.
    groups, group_deviance
        The same over the means of groups: a group are the draws of one chain, which depend on each other.
    """

    members: float
    mean: float
    deviance: float
    groups: float
    group_deviance: float

    @property
    def variance(self) -> float:
        """Variance of the values."""
        return self.deviance / self.members

    @property
    def variance_of_mean(self) -> float:
        """Square of the standard error of the mean."""
        return self.group_deviance / self.groups**2

    def __add__(self, other: Moments) -> Moments:
        """The moments of both together (Chan, Golub and LeVeque, 1979)."""
        members, groups = self.members + other.members, self.groups + other.groups
        gap = other.mean - self.mean
        return Moments(
            members=members,
            mean=self.mean + gap * other.members / members,
            deviance=self.deviance + other.deviance + gap**2 * self.members * other.members / members,
            groups=groups,
            group_deviance=(
                self.group_deviance + other.group_deviance + gap**2 * self.groups * other.groups / groups
            ),
        )


def with_intercept(cells: npt.NDArray[np.float32], intercept: npt.NDArray[np.floating]) -> Shifts:
    """Cells and intercepts of several sets as one array."""
    return np.concatenate([cells, np.asarray(intercept, np.float32)[None, :]])


def normals_of(n: int, generators: Sequence[np.random.Generator]) -> npt.NDArray[np.float32]:
    """A normal number for each of so many members: a column for each generator."""
    return np.stack([rng.standard_normal(n, np.float32) for rng in generators], axis=1)


class Population(Protocol):
    """Members of some law of X over a layout."""

    @property
    def layout(self) -> Layout:
        """The tables that members are counted in."""
        ...

    @property
    def size(self) -> float:
        """How many members there are; infinite where the law is known exactly."""
        ...

    def scores(self, weights: npt.NDArray[np.floating], shift: Any = 0.0) -> Values:
        """φ(x)·w + shift of each member; of several sets of weights, a column each."""
        ...

    def map(self, function: Callable[..., npt.NDArray[Any]], *values: Values) -> Values:
        """A function of values, member by member."""
        ...

    def mean(self, values: Values) -> Any:
        """The mean over the members; of several sets, one for each."""
        ...

    def moments(self, values: Values) -> Moments:
        """Mean, spread and standard error."""
        ...

    def shares(self) -> Floats:
        """E[φ]: the share of the members in each cell."""
        ...

    def cells(self, values: Values) -> npt.NDArray[Any]:
        """E[v·φ]: the mean of values counted in each cell; of several sets, a column each."""
        ...

    def halves(self) -> tuple[Population, Population]:
        """Two halves that nothing connects."""
        ...

    def over(self, layout: Layout) -> Population:
        """The same members, counted in other tables of the same features."""
        ...

    def some(self, most: int) -> Codes:
        """Codes of at most so many members, evenly chosen, a row for each feature."""
        ...

    def here(self, most: int) -> Population:
        """The same law by at most so many members, evenly chosen, in this process."""
        ...

    def draw(self, variance: Values, generators: Sequence[np.random.Generator]) -> Shifts:
        """Draws of a vector with covariance E[v·ψψᵀ], ψ = (φ, 1): a column for each generator."""
        ...


@dataclass(frozen=True, eq=False)
class Chains:
    """Members in this process's memory.

    Attributes
    ----------
    layout
        The tables they are counted in.
    codes
        A row for each feature, a column for each member.
    draws
        How often each chain was drawn: the columns of the first draw, of the second, and so on.
    threads
        Threads to use; they change the time, never the result.
    """

    layout: Layout
    codes: Codes
    draws: int = 1
    threads: int = 1

    @property
    def size(self) -> float:
        return float(self.codes.shape[1])

    def scores(self, weights: npt.NDArray[np.floating], shift: Any = 0.0) -> Values:
        """φ(x)·w + shift of each member; of several sets of weights, a column each."""
        if weights.ndim == 1:
            return score_codes(self.codes, self.layout, weights, float(shift), self.threads)
        return score_sets(self.codes, self.layout, weights, self.threads) + shift

    def map(self, function: Callable[..., npt.NDArray[Any]], *values: Values) -> Values:
        """A function of values, member by member."""
        return function(*values)

    def mean(self, values: Values) -> Any:
        """The mean over the members; of several sets, each is summed alone."""
        if values.ndim == 1:
            return float(exact_sum(values) / values.size)
        return dot_sets(values, np.ones_like(values), self.threads) / self.size

    def moments(self, values: Values) -> Moments:
        """Mean, spread and standard error."""
        mean = self.mean(values)
        groups = values.reshape(self.draws, -1).mean(axis=0)
        return Moments(
            members=values.size,
            mean=mean,
            deviance=float(exact_sum(np.square(values - mean))),
            groups=groups.size,
            group_deviance=float(exact_sum(np.square(groups - mean))),
        )

    def shares(self) -> Floats:
        """E[φ]: the share of the members in each cell."""
        return self._counts / self.size

    @cached_property
    def _counts(self) -> Floats:
        return tally(self.codes, np.zeros(self.codes.shape[1]), self.layout, self.threads)[0]

    def cells(self, values: Values) -> npt.NDArray[Any]:
        """E[v·φ]: the mean of values counted in each cell; of several sets, a column each."""
        if values.ndim == 1:
            unit = grid(float(np.abs(values).max()), values.size)
            sums: npt.NDArray[Any] = tally(self.codes, on_grid(values, unit), self.layout, self.threads)[1]
        else:
            sums = tally_sets(self.codes, values, self.layout, self.threads)
        sums /= sums.dtype.type(self.size)
        return sums

    def halves(self) -> tuple[Chains, Chains]:
        """Every other chain with all of its draws, and the rest."""
        n_chains = self.codes.shape[1] // self.draws
        second = np.arange(self.codes.shape[1]) % n_chains % 2 == 1
        return self.part(~second), self.part(second)

    def part(self, members: npt.NDArray[np.bool_]) -> Chains:
        """Those members, all draws of a chain or none."""
        return replace(self, codes=np.ascontiguousarray(self.codes[:, members]))

    def over(self, layout: Layout) -> Chains:
        """The same members, counted in other tables of the same features."""
        return replace(self, layout=layout)

    def some(self, most: int) -> Codes:
        """Codes of at most so many members, evenly chosen, a row for each feature."""
        n = self.codes.shape[1]
        if n <= most:
            return self.codes
        return np.ascontiguousarray(self.codes[:, np.linspace(0, n - 1, most).astype(np.int64)])

    def here(self, most: int) -> Chains:
        """The same law by at most so many members, evenly chosen."""
        return self if self.size <= most else replace(self, codes=self.some(most), draws=1)

    def draw(self, variance: Values, generators: Sequence[np.random.Generator]) -> Shifts:
        """Sums over the members of ψ, each times its own normal number: covariance E[v·ψψᵀ]."""
        normals = normals_of(self.codes.shape[1], generators)
        normals *= np.sqrt(variance * self.size).astype(np.float32)[:, None]
        return with_intercept(self.cells(normals), self.mean(normals))


@dataclass(frozen=True, eq=False)
class Enumeration:
    """Every state of X with its probability: a law that is known exactly.

    Attributes
    ----------
    states
        The states, and the tables they are counted in.
    law
        The probability of each.
    """

    states: States
    law: Floats
    size = np.inf

    @property
    def layout(self) -> Layout:
        return self.states.layout

    def scores(self, weights: npt.NDArray[np.floating], shift: Any = 0.0) -> Values:
        """φ(x)·w + shift of each state; of several sets of weights, a column each."""
        if weights.ndim == 1:
            return self.states.scores(weights) + shift
        columns = [self.states.scores(weights[:, k]) for k in range(weights.shape[1])]
        return np.stack(columns, axis=1) + shift

    def map(self, function: Callable[..., npt.NDArray[Any]], *values: Values) -> Values:
        """A function of values, state by state."""
        return function(*values)

    def mean(self, values: Values) -> Any:
        """The mean under the law; of several sets, one for each."""
        mean = np.einsum("i,i...->...", self.law, values)
        return float(mean) if values.ndim == 1 else mean

    def moments(self, values: Values) -> Moments:
        """Mean and spread; what is known exactly has no standard error."""
        mean = self.mean(values)
        return Moments(1.0, mean, self.mean(np.square(values - mean)), 1.0, 0.0)

    def shares(self) -> Floats:
        """E[φ]: the probability of each cell."""
        return self.states.tally(self.law)

    def cells(self, values: Values) -> npt.NDArray[Any]:
        """E[v·φ]: the mean of values counted in each cell; of several sets, a column each."""
        if values.ndim == 1:
            return self.states.tally(self.law * values)
        columns = [self.states.tally(self.law * values[:, k]) for k in range(values.shape[1])]
        return np.stack(columns, axis=1).astype(values.dtype)

    def halves(self) -> tuple[Enumeration, Enumeration]:
        """The law twice: there is no chance in it that one half could follow and the other not."""
        return self, self

    def over(self, layout: Layout) -> Enumeration:
        """The same law, counted in other tables of the same features."""
        return replace(self, states=States(layout))

    def some(self, most: int) -> Codes:
        """States drawn from the law by systematic sampling: each as often as it is likely, within one."""
        upto = np.cumsum(self.law)
        drawn = np.searchsorted(upto, (np.arange(most) + 0.5) / most * upto[-1])
        return np.ascontiguousarray(self.states.codes[:, drawn])

    def here(self, most: int) -> Enumeration:
        """The law itself: it is in this process."""
        return self

    def draw(self, variance: Values, generators: Sequence[np.random.Generator]) -> Shifts:
        """Sums over the states of ψ, each times its own normal number: covariance E[v·ψψᵀ]."""
        # Not by way of a mean, which multiplies by the law: √(v/law) overflows where a state is next to
        # impossible.
        normals = normals_of(self.law.size, generators) * np.sqrt(self.law * variance)[:, None]
        cells = np.stack([self.states.tally(column) for column in normals.T], axis=1)
        return with_intercept(cells.astype(np.float32), normals.sum(axis=0))
