"""One table: counts of records and of positives over the combinations of some features.

A :class:`Table` counts records (``counts``, the *d* of the mathematics) and positives (``sums``, the *c*, one
layer per label) over every combination of its features' modalities, or over the buckets those combinations
are hashed to. Where few of the combinations were ever seen it lists those, and counts all the others in one
cell, the rest. Records with an unknown value in one of the features have no cell; they are kept in
``unknown``, so that every table of one data set accounts for every record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from agglearn.errors import TableError
from agglearn.runtime.display import clip
from agglearn.schema.schema import some
from agglearn.tables.cells import Cells, DenseCells, SparseCells, ranks, seen_cells
from agglearn.tables.noise import Moments, Noise, noise_of_sum

Array: TypeAlias = npt.NDArray[Any]  # int64 where exact, float64 where noisy
Scope: TypeAlias = tuple[str, ...]

LARGEST = 2.0**63
"""What no number in a table is beyond, whole or not: products of larger ones run over."""

_AS_COUNTED = DenseCells(())  # no table is without features


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Counts over one set of features.

    Attributes
    ----------
    features
        Names of the features, in the order of the axes.
    counts
        Records in each cell, an array of the cells' shape. Integers where exact, floats where noisy.
    sums
        Positives in each cell, with a leading axis over the labels.
    unknown
        Records that fell into no cell, then the positives among them for each label.
    cells
        Which cell a combination of modalities has; by default one for each, with an axis per feature.
    noise
        The law of the noise on each number, if any; :attr:`noise_moments` is what it comes to.
    measured
        Which cells were measured at all; None where all were.
    variances
        Of each count by sampling, where records weigh differently; None where each counts once, and the
        variance of a count is the count.
    """

    features: Scope
    counts: Array
    sums: Array
    unknown: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    cells: Cells = _AS_COUNTED
    noise: Noise | None = None
    measured: npt.NDArray[np.bool_] | None = None
    variances: Array | None = None

    def __post_init__(self) -> None:
        if self.sums.shape[1:] != self.counts.shape:
            raise TableError(f"table {self.title}: counts and sums differ in shape")
        if self.cells is _AS_COUNTED:
            object.__setattr__(self, "cells", DenseCells(self.counts.shape))
        if self.cells.shape != self.counts.shape:
            raise TableError(f"table {self.title}: counts do not have the shape of its cells")
        if not len(self.unknown):
            object.__setattr__(self, "unknown", np.zeros(1 + len(self.sums), self.counts.dtype))

    def __repr__(self) -> str:
        return f"<Table {clip(self.title, 60)}: {', '.join(self.summary)}>"

    @property
    def summary(self) -> list[str]:
        """Its cells, records and positives, and its noise if there is any, each in a few words."""
        positives = self.sums.reshape(len(self.sums), -1).sum(axis=1) + self.unknown[1:]
        shown = [str(self.cells)]
        if self.measured is not None:
            shown.append(f"{int(self.measured.sum()):,} of them measured")
        shown += [f"{self.total:,.0f} records", f"{' and '.join(f'{p:,.0f}' for p in positives)} positive"]
        return shown if self.noise is None else [*shown, f"noise {self.noise}"]

    @property
    def title(self) -> str:
        """The table's name in messages."""
        return " × ".join(self.features)

    @property
    def total(self) -> float:
        """Records counted, in a cell or as unknown."""
        return float(self.counts.sum() + self.unknown[0])

    @property
    def n_cells(self) -> int:
        return int(self.counts.size)

    @property
    def exact(self) -> bool:
        """Whether the numbers are plain counts, with no noise on them."""
        return self.noise is None and bool(np.issubdtype(self.counts.dtype, np.integer))

    @property
    def noise_moments(self) -> Moments:
        """Variances of the noise on a count and on a sum, and their covariance; zeros where it is exact."""
        return self.noise.moments(len(self.sums)) if self.noise else Moments(0.0, 0.0, 0.0)

    @property
    def sampling(self) -> npt.NDArray[np.float64]:
        """Variance of each count by sampling."""
        found = np.maximum(self.counts, 0) if self.variances is None else self.variances
        return np.asarray(found, np.float64)

    def __add__(self, other: Table) -> Table:
        a, b = self.alike(other)
        weighed = self.variances is not None or other.variances is not None
        added = replace(
            a,
            counts=a.counts + b.counts,
            sums=a.sums + b.sums,
            unknown=a.unknown + b.unknown,
            noise=_noise_of_sum(a, b),
            measured=_both(a.measured, b.measured),
            variances=a.sampling + b.sampling if weighed else None,
        )
        return added if self.cells == other.cells else added.compact()

    def __sub__(self, other: Table) -> Table:
        """Without a table that was added to it."""
        a, b = self.alike(other)
        weighed = self.variances is not None
        left = replace(
            a,
            counts=a.counts - b.counts,
            sums=a.sums - b.sums,
            unknown=a.unknown - b.unknown,
            noise=_noise_left(a, b),
            variances=a.sampling - b.sampling if weighed else None,
        )
        return left if left.cells.dense else left.compact()

    def alike(self, other: Table) -> tuple[Table, Table]:
        """Both tables in the same cells, which tell apart what either's tell apart."""
        mine, its = self.cells, other.cells
        if self.features != other.features:
            raise TableError(f"tables {self.title} and {other.title} cannot be added: they differ in shape")
        if mine == its:
            return self, other
        if not (mine.apart and its.apart and _cards(mine) == _cards(its)):
            raise TableError(f"tables {self.title} and {other.title} cannot be added: they differ in shape")
        cells = mine if mine.dense else its
        if isinstance(mine, SparseCells) and isinstance(its, SparseCells):
            cells = SparseCells(mine.cards, np.union1d(mine.listed, its.listed))
        return self.over(cells), other.over(cells)

    def over(self, cells: Cells) -> Table:
        """The same numbers in other cells: all that the new ones do not tell apart is added up."""
        if cells == self.cells:
            return self
        if not (cells.apart and self.cells.apart and _cards(cells) == _cards(self.cells)):
            raise TableError(f"table {self.title} cannot be counted in {cells}")
        given = np.arange(self.cells.size - bool(self.cells.tied))
        return self._placed(cells, cells.find(self.cells.all_codes(given)), given)

    def _placed(self, cells: Cells, to: npt.NDArray[np.int64], given: npt.NDArray[np.int64]) -> Table:
        """The numbers of given cells in others; what was not measured is not measured there."""

        def counted(numbers: Array) -> Array:
            layers = numbers.reshape(-1, self.cells.size)
            new = np.zeros((len(layers), cells.size), numbers.dtype)
            for layer, old in zip(new, layers, strict=True):
                np.add.at(layer, to, old[given])
            leading = numbers.shape[: numbers.ndim - len(self.cells.shape)]
            return new.reshape(*leading, *cells.shape)

        measured = None
        if self.measured is not None:
            flat = self.measured.reshape(-1)
            known = np.full(cells.size, flat[-1] if self.cells.tied else True, bool)
            known[to] = flat[given]
            measured = known.reshape(cells.shape)
        return replace(
            self,
            counts=counted(self.counts),
            sums=counted(self.sums),
            cells=cells,
            measured=measured,
            variances=None if self.variances is None else counted(self.variances),
        )

    def __mul__(self, weight: float) -> Table:
        """The table with each of its records counting so much."""
        noise = self.noise and replace(self.noise, scale=self.noise.scale * weight)
        return replace(
            self,
            counts=self.counts * weight,
            sums=self.sums * weight,
            unknown=self.unknown * weight,
            noise=noise,
            variances=self.sampling * weight**2,
        )

    def moved(self, positions: Sequence[npt.NDArray[np.int64]], shape: Sequence[int]) -> Table:
        """The table in more cells: the modalities of each feature at new positions, none at the others.

        What had no cell was not withheld: no record had it.
        """
        given = np.arange(self.cells.size - bool(self.cells.tied))
        codes = self.cells.all_codes(given)
        to = ranks(shape, np.stack([place[row] for place, row in zip(positions, codes, strict=True)]))
        if self.cells.dense:
            return self._placed(DenseCells(tuple(shape)), to, given)
        order = np.argsort(to, kind="stable")
        return self._placed(SparseCells(tuple(shape), to[order]), given, given[order])

    def compact(self) -> Table:
        """The same table with the cells that suit it: only those that say something, where they are few."""
        if not self.cells.apart:
            return self
        flat = np.concatenate([self.counts[None], self.sums]).reshape(1 + len(self.sums), -1)
        says = np.asarray(flat.any(axis=0)) if self.measured is None else self.measured.reshape(-1).copy()
        if self.noise is not None and self.measured is None and self.cells.dense:
            return self  # where every number is noisy, a zero says as much as any other
        if self.cells.tied:
            says[-1] = False
        given = np.flatnonzero(says)
        seen = self.cells.listed[given] if isinstance(self.cells, SparseCells) else given
        return self.over(seen_cells(_cards(self.cells), seen))

    def marginalise(self, features: Sequence[str]) -> Table:
        """The table over some of its features only, in their old order."""
        kept = [i for i, name in enumerate(self.features) if name in set(features)]
        if len(kept) != len(set(features)) or not kept:
            raise TableError(f"table {self.title} does not hold all of {some(list(features))}")
        if len(kept) == len(self.features):
            return self
        if not self.cells.apart:
            raise TableError(f"table {self.title} is hashed: its features cannot be told apart")
        if self.measured is not None:
            raise TableError(f"table {self.title} lacks cells: its margins cannot be summed")
        if self.noise is not None:
            raise TableError(f"table {self.title} is noisy: sum its counts yourself, and the noise with them")
        features = tuple(self.features[i] for i in kept)
        if isinstance(self.cells, SparseCells):
            return self._summed(features, kept)
        counts = self.cells.margin(self.counts, kept)
        return replace(
            self,
            features=features,
            counts=counts,
            sums=self.cells.margin(self.sums, kept),
            cells=DenseCells(counts.shape),
            variances=None if self.variances is None else self.cells.margin(self.variances, kept),
        )

    def _summed(self, features: Scope, kept: Sequence[int]) -> Table:
        """The listed cells summed over all features but those at ``kept``: as few as there are."""
        assert isinstance(self.cells, SparseCells)
        cards = tuple(self.cells.cards[i] for i in kept)
        listed, to = np.unique(ranks(cards, self.cells.listed_codes[list(kept)]), return_inverse=True)
        cells = SparseCells(cards, listed)
        counted = np.zeros((1 + len(self.sums), cells.size), self.counts.dtype)
        for layer, old in zip(counted, [self.counts, *self.sums], strict=True):
            np.add.at(layer, to, old[:-1])
        variances = None
        if self.variances is not None:
            variances = np.append(np.bincount(to, self.variances[:-1], minlength=len(listed)), 0.0)
        summed = replace(
            self, features=features, counts=counted[0], sums=counted[1:], cells=cells, variances=variances
        )
        return summed.compact()


def _cards(cells: Cells) -> tuple[int, ...]:
    """Modalities along each axis of cells that tell the features apart."""
    return cells.cards if isinstance(cells, SparseCells) else cells.shape


def _both(a: npt.NDArray[np.bool_] | None, b: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _noise_of_sum(a: Table, b: Table) -> Noise | None:
    if a.noise is None or b.noise is None:
        return b.noise if a.noise is None else a.noise
    noise = noise_of_sum(a.noise, b.noise)
    if noise is None:
        raise TableError(
            f"tables {a.title} with noise {a.noise} and {b.noise} cannot be added: one is on counts and "
            "sums, the other on negatives and positives"
        )
    return noise


def _noise_left(whole: Table, part: Table) -> Noise | None:
    """The noise of a sum less that of a part, which leaves with it."""
    if whole.noise is None or part.noise is None:
        return whole.noise
    left = whole.noise.sigma**2 - part.noise.sigma**2
    # Exactly the part's own noise is left with nothing, up to the rounding of two squares.
    if left <= 1e-9 * whole.noise.sigma**2:
        return None
    law = "gaussian" if whole.noise.law == "gaussian" else "mixed"
    return Noise(law, float(np.sqrt(left)), whole.noise.of)
