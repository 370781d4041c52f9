"""Members of X that were given rather than drawn, each with a weight of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.field.bundles import Bundles, bundles_of
from agglearn.field.kernels.score import Codes, score_codes, tally
from agglearn.field.kernels.sets import dot_sets, score_sets, tally_sets
from agglearn.field.layout import Layout
from agglearn.field.population import Moments, Shifts, Values, normals_of, with_intercept

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Members:
    """A population of weighted members in this process's memory.

    Attributes
    ----------
    layout
        The tables they are counted in.
    codes
        A row for each feature, a column for each member; every code is known.
    weights
        What each counts, all together 1.
    threads
        Threads to use; they change the time, never the result.
    chance
        Variance of means over them about those of the records behind the tables, beside that of as many drawn
        apart: 1 for a small sample, 0 for the very records.
    """

    layout: Layout
    codes: Codes
    weights: Floats
    threads: int = 1
    chance: float = 1.0

    @classmethod
    def evenly(cls, layout: Layout, codes: Codes, threads: int = 1) -> Members:
        """Members that count alike."""
        n = codes.shape[1]
        return cls(layout, codes, np.full(n, 1 / n), threads)

    @classmethod
    def mixed(cls, first: Members, share: float, second: Codes) -> Members:
        """The first, counting so large a share, and the second, counting the rest."""
        n = second.shape[1]
        return cls(
            first.layout,
            np.concatenate([first.codes, second], axis=1),
            np.concatenate([share * first.weights, np.full(n, (1 - share) / n)]),
            first.threads,
        )

    @cached_property
    def size(self) -> float:
        """How many members of equal weight would tell as much (Kish, 1965)."""
        return float(1 / np.square(self.weights).sum())

    @cached_property
    def even(self) -> bool:
        """Whether all count alike."""
        return bool((self.weights == self.weights[0]).all())

    @cached_property
    def _bundles(self) -> Bundles | None:
        """What many members are gathered and tallied by."""
        bundles = bundles_of(self.layout)
        return bundles if bundles is not None and bundles.pay(self.codes.shape[1]) else None

    def scores(self, weights: npt.NDArray[np.floating], shift: Any = 0.0) -> Values:
        """φ(x)·w + shift of each member; of several sets of weights, a column each."""
        if self._bundles is not None:
            return self._bundles.scores(self.codes, weights, self.threads) + shift
        if weights.ndim == 1:
            return score_codes(self.codes, self.layout, weights, float(shift), self.threads)
        return score_sets(self.codes, self.layout, weights, self.threads) + shift

    def map(self, function: Callable[..., npt.NDArray[Any]], *values: Values) -> Values:
        """A function of values, member by member."""
        return function(*values)

    def mean(self, values: Values) -> Any:
        """The weighted mean; of several sets, each is summed alone."""
        if values.ndim == 1:
            return float(np.einsum("i,i->", self.weights, values))
        scaled = values * self.weights.astype(values.dtype)[:, None]
        return dot_sets(scaled, np.ones_like(scaled), self.threads)

    def moments(self, values: Values) -> Moments:
        """Mean, spread and standard error, as of so many members as they are worth."""
        mean, n = self.mean(values), self.size
        deviance = n * self.mean(np.square(values - mean))
        return Moments(n, mean, deviance, n, deviance)

    def shares(self) -> Floats:
        """E[φ]: the share of each cell."""
        return self._shares

    @cached_property
    def _shares(self) -> Floats:
        return self._tally(self.weights)

    def _tally(self, values: Values) -> npt.NDArray[Any]:
        """The sum of values in each cell."""
        if self._bundles is not None:
            return self._bundles.tally(self.codes, values, self.threads)
        if values.ndim == 1:
            return tally(self.codes, values, self.layout, self.threads)[1]
        return tally_sets(self.codes, values, self.layout, self.threads)

    def cells(self, values: Values) -> npt.NDArray[Any]:
        """E[v·φ]: the mean of values counted in each cell; of several sets, a column each."""
        if values.ndim == 1:
            return self._tally(self.weights * values)
        # Numbers of the order of one are summed, so that float32 keeps what digits it has.
        n = values.dtype.type(self.codes.shape[1])
        scaled = values * (self.weights.astype(values.dtype) * n)[:, None]
        sums = self._tally(scaled)
        sums /= n
        return sums

    def halves(self) -> tuple[Members, Members]:
        """Every other member, and the rest."""
        return self._part(slice(0, None, 2)), self._part(slice(1, None, 2))

    def _part(self, which: slice) -> Members:
        weights = self.weights[which]
        codes = np.ascontiguousarray(self.codes[:, which])
        return replace(self, codes=codes, weights=weights / weights.sum())

    def over(self, layout: Layout) -> Members:
        """The same members, counted in other tables of the same features."""
        return self if layout == self.layout else replace(self, layout=layout)

    def some(self, most: int) -> Codes:
        """At most so many members, each as often as it counts, within one: by systematic sampling."""
        n = self.codes.shape[1]
        if self.even and n <= most:
            return self.codes
        upto = np.cumsum(self.weights)
        drawn = np.searchsorted(upto, (np.arange(min(n, most)) + 0.5) / min(n, most) * upto[-1])
        return np.ascontiguousarray(self.codes[:, np.minimum(drawn, n - 1)])

    def here(self, most: int) -> Members:
        """The members themselves: they are in this process."""
        return self

    def draw(self, variance: Values, generators: Sequence[np.random.Generator]) -> Shifts:
        """Sums over the members of ψ, each times its own normal number: covariance E[v·ψψᵀ]."""
        normals = normals_of(self.codes.shape[1], generators)
        normals *= np.sqrt(variance / self.weights).astype(np.float32)[:, None]
        return with_intercept(self.cells(normals), self.mean(normals))
