"""Which cell a combination of modalities has: the one place that knows what kinds of table there are.

- :class:`DenseCells`: a cell for every combination, in C order, the last feature fastest.
- :class:`SparseCells`: a cell for each of the combinations that are listed, and a last one, the *rest*, for
  all the others together: a dense table whose unlisted cells are tied.
- :class:`HashedCells`: a number of buckets; every combination falls into one of them by a fixed mixing
  function of the codes, so that data and model agree on it for ever.

A further kind is a further class here: whoever counts, writes, reads or sums tables asks these.
Kernels that find cells one at a time call :mod:`.hashing`, look a combination up by :mod:`.lookup`, or
multiply by strides themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

CellNumbers = npt.NDArray[np.int64]

_ALWAYS_DENSE = 1 << 12  # combinations: so small a table costs nothing
_DENSE_SHARE = 3  # a table is dense where more than one in so many of its combinations is seen


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
    dense
        Whether there is a cell for every combination.
    buckets
        How many buckets the combinations are hashed to, or 0 where they are not: what kernels ask.
    tied
        How many combinations share the last cell: 0 where none do, and it is a cell like the others.
    level
        How much coarser than another table's, of whose cells these are sums: 0 where they are a table's own.
    """

    shape: tuple[int, ...]
    apart: bool
    dense: bool = False
    buckets: int = 0
    tied: int = 0
    level: int = 0

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

    def nameless(self, cell: int) -> str:
        """What a cell is called whose modalities no one can tell."""
        return f"bucket {cell}"

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
    dense = True

    def fits(self, cards: Sequence[int]) -> bool:
        """Whether there is a cell for every combination."""
        return self.shape == tuple(cards)

    def find(self, codes: npt.NDArray[np.integer]) -> CellNumbers:
        """The cell of each combination, in C order."""
        return ranks(self.shape, codes)

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


@dataclass(frozen=True, eq=False)
class SparseCells(Cells):
    """A cell for each listed combination, and the rest.

    Attributes
    ----------
    cards
        Modalities of each feature.
    listed
        The rank of each listed combination (its place in C order), increasing.
    """

    cards: tuple[int, ...]
    listed: CellNumbers
    apart = True

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (len(self.listed) + 1,)

    @property
    def tied(self) -> int:  # type: ignore[override]
        return prod(self.cards) - len(self.listed)

    def __str__(self) -> str:
        of = " × ".join(f"{n:,}" for n in self.cards)
        return f"{len(self.listed):,} cells seen of {of}"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, SparseCells)
            and self.cards == other.cards
            and np.array_equal(self.listed, other.listed)
        )

    def __hash__(self) -> int:
        return hash((self.cards, self.digest))

    @cached_property
    def digest(self) -> str:
        """A checksum of the list."""
        return sha256(np.ascontiguousarray(self.listed, np.int64).data).hexdigest()

    def fits(self, cards: Sequence[int]) -> bool:
        """Whether the list is one of combinations of so many modalities."""
        return self.cards == tuple(cards)

    def find(self, codes: npt.NDArray[np.integer]) -> CellNumbers:
        """The cell of each combination: its place in the list, or the rest."""
        wanted = ranks(self.cards, codes)
        found: CellNumbers = np.searchsorted(self.listed, wanted)
        there = found < len(self.listed)
        there[there] = self.listed[found[there]] == wanted[there]
        return np.where(there, found, len(self.listed))

    def codes(self, cell: int) -> tuple[int, ...] | None:
        """The modalities that a cell counts; the rest counts many."""
        if cell >= len(self.listed):
            return None
        return tuple(int(code) for code in np.unravel_index(self.listed[cell], self.cards))

    def nameless(self, cell: int) -> str:
        """The rest."""
        return "all cells that no record was seen in"

    def all_codes(self, cells: CellNumbers) -> npt.NDArray[np.int64]:
        """The modalities of many cells, none of them the rest."""
        return np.stack(np.unravel_index(self.listed[cells], self.cards))

    @property
    def listed_codes(self) -> npt.NDArray[np.int32]:
        """The modalities of every listed cell, a row for each feature; found anew, not kept."""
        codes = np.empty((len(self.cards), len(self.listed)), np.int32)
        left = self.listed
        for axis in reversed(range(len(self.cards))):
            left, codes[axis] = np.divmod(left, self.cards[axis])
        return codes

    def margin(self, numbers: npt.NDArray[Any], kept: Sequence[int]) -> npt.NDArray[Any]:
        """Numbers summed over all features but those at ``kept``; the rest is spread evenly over its own."""
        shape = tuple(self.cards[i] for i in kept)
        within = ranks(shape, self.listed_codes[list(kept)])
        layers = numbers.reshape(-1, self.size)
        summed = np.zeros((len(layers), prod(shape)), numbers.dtype)
        for to, layer in zip(summed, layers, strict=True):
            if np.issubdtype(numbers.dtype, np.integer):
                np.add.at(to, within, layer[:-1])
            else:
                to += np.bincount(within, layer[:-1], minlength=to.size)
            if layer[-1]:
                unlisted = prod(self.cards) // to.size - np.bincount(within, minlength=to.size)
                to += (layer[-1] / self.tied * unlisted).astype(numbers.dtype)
        return summed.reshape(*numbers.shape[:-1], *shape)


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


def seen_cells(cards: Sequence[int], listed: CellNumbers) -> DenseCells | SparseCells:
    """The cells of a table of which these combinations (increasing ranks) were seen, by what is smaller."""
    if is_dense(cards, len(listed)):
        return DenseCells(tuple(cards))
    return SparseCells(tuple(cards), np.ascontiguousarray(listed, np.int64))


def is_dense(cards: Sequence[int], seen: int) -> bool:
    """Whether a table of which so many combinations were seen has a cell for each there could be."""
    combinations = prod(cards)
    return combinations <= _ALWAYS_DENSE or seen * _DENSE_SHARE > combinations or len(cards) == 1


def ranks(cards: Sequence[int], codes: npt.NDArray[np.integer]) -> CellNumbers:
    """The place in C order of each combination; ``codes`` has a row for each feature."""
    found = np.zeros(codes.shape[1], np.int64)
    for card, row in zip(cards, codes, strict=True):
        found = found * card + row
    return found


def stored_cells(shape: Sequence[int], buckets: int | None) -> Cells:
    """The cells that a file describes before its rows are read: buckets, or one for each combination."""
    return DenseCells(tuple(shape)) if buckets is None else HashedCells(buckets)
