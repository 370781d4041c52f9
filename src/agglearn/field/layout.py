"""Where each cell's weight sits in the flat parameter vectors μ and θ.

The tables stand one after the other; within a table the cells are in the order of its
:class:`~agglearn.tables.cells.Cells`. Everything in :mod:`agglearn.field` that speaks of "cell k" means this
order.

The last cell of a sparse table, its *rest*, stands for all combinations that were never seen: a sparse table
is a dense one whose unseen cells share one weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from agglearn.tables.cells import Cells, DenseCells, HashedCells


@dataclass(frozen=True)
class Layout:
    """Shapes of a field: features, tables over them, and the flat order of the cells.

    Attributes
    ----------
    cards
        Number of modalities of each feature.
    scopes
        For each table the indices of its features, increasing.
    cells
        For each table its cells.
    """

    cards: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    cells: tuple[Cells, ...]

    @classmethod
    def plain(cls, cards: Sequence[int], scopes: Sequence[Sequence[int]]) -> Layout:
        """A layout whose tables have a cell for every combination."""
        return cls.hashed(cards, scopes, [0] * len(scopes))

    @classmethod
    def hashed(cls, cards: Sequence[int], scopes: Sequence[Sequence[int]], buckets: Sequence[int]) -> Layout:
        """A layout with so many buckets for each table, 0 for one that is not hashed."""
        cells = tuple(
            HashedCells(size) if size else DenseCells(tuple(cards[f] for f in scope))
            for scope, size in zip(scopes, buckets, strict=True)
        )
        return cls(tuple(cards), tuple(tuple(s) for s in scopes), cells)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each table."""
        return tuple(cells.size for cells in self.cells)

    @cached_property
    def buckets(self) -> tuple[int, ...]:
        """Buckets of each table, 0 where it is not hashed."""
        return tuple(cells.buckets for cells in self.cells)

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """First cell of each table, and past the last one the number of cells."""
        return np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)]).astype(np.int64)

    @cached_property
    def tied(self) -> npt.NDArray[np.int64]:
        """The cells that stand for several combinations each: the rest of every sparse table."""
        ends = [int(end) - 1 for end, cells in zip(self.offsets[1:], self.cells, strict=True) if cells.tied]
        return np.array(ends, np.int64)

    @cached_property
    def ties(self) -> npt.NDArray[np.float64]:
        """How many combinations each of :attr:`tied` stands for."""
        return np.array([cells.tied for cells in self.cells if cells.tied], np.float64)

    @cached_property
    def own(self) -> tuple[int, int]:
        """How many tables, and cells of them, are not coarser ones of others, which stand at the end."""
        tables = sum(cells.level == 0 for cells in self.cells)
        return tables, int(self.offsets[tables])

    @property
    def n_features(self) -> int:
        return len(self.cards)

    @property
    def n_tables(self) -> int:
        return len(self.scopes)

    @property
    def n_cells(self) -> int:
        return int(self.offsets[-1])

    def part(self, t: int) -> slice:
        """Where the cells of table ``t`` stand in a flat vector."""
        return slice(int(self.offsets[t]), int(self.offsets[t + 1]))

    def table(self, vector: npt.NDArray[np.floating], t: int) -> npt.NDArray[np.floating]:
        """The part of a flat vector that belongs to table ``t``, in the table's own shape (a view)."""
        return vector[self.part(t)].reshape(self.cells[t].shape)
