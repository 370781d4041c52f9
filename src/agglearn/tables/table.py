"""One table: counts of records and of positives over the combinations of some features.

A :class:`Table` counts records (``counts``, the *d* of the mathematics) and positives (``sums``, the
*c*, one layer per label) over every combination of its features' modalities, or over the buckets those
combinations are hashed to. Records with an unknown value in one of the features have no cell; they are
kept in ``unknown``, so that every table of one data set accounts for every record.
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
from agglearn.tables.cells import Cells, DenseCells
from agglearn.tables.noise import Noise

Array: TypeAlias = npt.NDArray[Any]  # int64 where exact, float64 where noisy
Scope: TypeAlias = tuple[str, ...]

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
        The law of the noise on each number, if any.
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
    def sampling(self) -> npt.NDArray[np.float64]:
        """Variance of each count by sampling."""
        found = np.maximum(self.counts, 0) if self.variances is None else self.variances
        return np.asarray(found, np.float64)

    def __add__(self, other: Table) -> Table:
        self._require_same_shape(other)
        weighed = self.variances is not None or other.variances is not None
        return replace(
            self,
            counts=self.counts + other.counts,
            sums=self.sums + other.sums,
            unknown=self.unknown + other.unknown,
            noise=_noise_of_sum(self, other),
            measured=_both(self.measured, other.measured),
            variances=self.sampling + other.sampling if weighed else None,
        )

    def __sub__(self, other: Table) -> Table:
        """Without a table that was added to it."""
        self._require_same_shape(other)
        weighed = self.variances is not None
        return replace(
            self,
            counts=self.counts - other.counts,
            sums=self.sums - other.sums,
            unknown=self.unknown - other.unknown,
            noise=_noise_left(self, other),
            variances=self.sampling - other.sampling if weighed else None,
        )

    def _require_same_shape(self, other: Table) -> None:
        if self.features != other.features or self.cells != other.cells:
            raise TableError(f"tables {self.title} and {other.title} cannot be added: they differ in shape")

    def __mul__(self, weight: float) -> Table:
        """The table with each of its records counting so much."""
        noise = self.noise and Noise(self.noise.law, self.noise.scale * weight)
        return replace(
            self,
            counts=self.counts * weight,
            sums=self.sums * weight,
            unknown=self.unknown * weight,
            noise=noise,
            variances=self.sampling * weight**2,
        )

    def moved(self, positions: Sequence[npt.NDArray[np.int64]], shape: Sequence[int]) -> Table:
        """The table in more cells: the modalities of each feature at new positions, none at the others."""
        place: tuple[Any, ...] = (..., *np.ix_(*positions))

        def placed(numbers: Array, fill: Any = 0) -> Array:
            leading = numbers.shape[: numbers.ndim - len(shape)]
            new = np.full((*leading, *shape), fill, numbers.dtype)
            new[place] = numbers
            return new

        return replace(
            self,
            counts=placed(self.counts),
            sums=placed(self.sums),
            cells=DenseCells(tuple(shape)),
            # What had no cell was not withheld: no record had it.
            measured=None if self.measured is None else placed(self.measured, True),
            variances=None if self.variances is None else placed(self.variances),
        )

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
        counts = self.cells.margin(self.counts, kept)
        return replace(
            self,
            features=tuple(self.features[i] for i in kept),
            counts=counts,
            sums=self.cells.margin(self.sums, kept),
            cells=DenseCells(counts.shape),
            variances=None if self.variances is None else self.cells.margin(self.variances, kept),
        )


def _both(a: npt.NDArray[np.bool_] | None, b: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _noise_of_sum(a: Table, b: Table) -> Noise | None:
    if a.noise is None or b.noise is None:
        return b.noise if a.noise is None else a.noise
    if a.noise.law != b.noise.law or a.noise.law != "gaussian":
        raise TableError(
            f"tables {a.title} with noise {a.noise} and {b.noise} cannot be added: only Gaussian noises "
            "add up to a known law"
        )
    return Noise("gaussian", float(np.hypot(a.noise.scale, b.noise.scale)))


def _noise_left(whole: Table, part: Table) -> Noise | None:
    """The noise of a sum less that of a part, which leaves with it."""
    if whole.noise is None or part.noise is None:
        return whole.noise
    left = whole.noise.scale**2 - part.noise.scale**2
    # Exactly the part's own noise is left with nothing, up to the rounding of two squares.
    return Noise(whole.noise.law, float(np.sqrt(left))) if left > 1e-9 * whole.noise.scale**2 else None
