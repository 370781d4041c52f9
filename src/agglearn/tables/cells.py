"""Which cell a combination of modalities has: the one place that knows what kinds of table there are.

- :class:`DenseCells`: a cell for every combination, in C order, the last feature fastest.
- :class:`HashedCells`: a number of buckets; every combination falls into one of them by a fixed mixing
  function of the codes, so that data and model agree on it for ever.

A further kind is a further class here: whoever counts, writes, reads or sums tables asks these.
Kernels that find cells one at a time call :mod:`.hashing`, or multiply by strides themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

CellNumbers = npt.NDArray[np.int64]


class Cells(ABC):
    """The cells of one table.

    Attributes
    ----------
    size
        How many there are.
    shape
        Of an array over them: an axis for each feature, where the features can be told apart.
    apart
        Whether the cells tell the features apart, so that margins can be summed.
    buckets
        How many buckets the combinations are hashed to, or 0 where they are not: what kernels ask.
    """

    shape: tuple[int, ...]
    apart: bool
    buckets: int = 0

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __str__(self) -> str:
        return f"{' × '.join(f'{n:,}' for n in self.shape)} cells"

    @abstractmethod
    def fits(self, cards: Sequence[int]) -> bool:
        """Whether a table of features with so many modalities each may have these cells."""

    @abstractmethod
    def find(self, codes: npt.NDArray[np.integer]) -> CellNumbers:
        """The cell of each combination; ``codes`` has a row for each feature, and every code is known."""

    @abstractmethod
    def codes(self, cell: int) -> tuple[int, ...] | None:
        """The modalities that a cell counts, or None where no one can tell."""

    @abstractmethod
    def all_codes(self, cells: CellNumbers) -> npt.NDArray[np.int64]:
        """The modalities of many cells, a row for each feature; only where features are told apart."""

    @abstractmethod
    def margin(self, numbers: npt.NDArray[Any], kept: Sequence[int]) -> npt.NDArray[Any]:
        """Numbers of the cells (on the last axes) summed over all features but those at ``kept``.

        An axis for each of these; only where features are told apart.
        """


@dataclass(frozen=True)
class DenseCells(Cells):
    """A cell for every combination of modalities."""

    shape: tuple[int, ...]
    apart = True

    def fits(self, cards: Sequence[int]) -> bool:
        """Whether there is a cell for every combination."""
        return self.shape == tuple(cards)

    def find(self, codes: npt.NDArray[np.integer]) -> CellNumbers:
        """The cell of each combination, in C order."""
        cells = np.zeros(codes.shape[1], np.int64)
        for card, row in zip(self.shape, codes, strict=True):
            cells = cells * card + row
        return cells

    def codes(self, cell: int) -> tuple[int, ...]:
        """The modalities that a cell counts."""
        return tuple(int(code) for code in np.unravel_index(cell, self.shape))

    def all_codes(self, cells: CellNumbers) -> npt.NDArray[np.int64]:
        """The modalities of many cells."""
        return np.stack(np.unravel_index(cells, self.shape))

    def margin(self, numbers: npt.NDArray[Any], kept: Sequence[int]) -> npt.NDArray[Any]:
        """Numbers summed over all features but those at ``kept``."""
        leading = numbers.ndim - len(self.shape)
        gone = tuple(leading + i for i in range(len(self.shape)) if i not in kept)
        summed: npt.NDArray[Any] = numbers.sum(axis=gone)
        return summed


@dataclass(frozen=True)
class HashedCells(Cells):
    """Buckets that combinations are hashed to."""

    buckets: int
    apart = False

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.buckets,)

    def __str__(self) -> str:
        return f"{self.buckets:,} buckets"

    def fits(self, cards: Sequence[int]) -> bool:
        """Any combinations can be hashed."""
        return True

    def find(self, codes: npt.NDArray[np.integer]) -> CellNumbers:
        """The bucket of each combination."""
        from agglearn.tables.hashing import hashed_cells  # compiles: only whoever hashes waits for that

        found: CellNumbers = hashed_cells(np.ascontiguousarray(codes), self.buckets)
        return found

    def codes(self, cell: int) -> None:
        """A bucket counts whatever falls into it."""
        return

    def all_codes(self, cells: CellNumbers) -> npt.NDArray[np.int64]:
        """No one can tell."""
        raise TypeError("buckets do not tell features apart")

    def margin(self, numbers: npt.NDArray[Any], kept: Sequence[int]) -> npt.NDArray[Any]:
        """No one can tell."""
        raise TypeError("buckets do not tell features apart")


def cells_for(shape: Sequence[int], hash_size: int | None = None) -> Cells:
    """Dense cells, or buckets where there would be more cells than ``hash_size``."""
    dense = DenseCells(tuple(shape))
    return dense if hash_size is None or dense.size <= hash_size else HashedCells(hash_size)


def stored_cells(shape: Sequence[int], buckets: int | None) -> Cells:
    """The cells that a file describes: so many buckets, or one for every combination."""
    return DenseCells(tuple(shape)) if buckets is None else HashedCells(buckets)
