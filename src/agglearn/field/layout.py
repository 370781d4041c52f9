"""Where each cell's weight sits in the flat parameter vectors μ and θ.

The tables stand one after the other; within a plain table the cells are in C order (last feature
fastest), within a hashed one they are its buckets. Everything in :mod:`agglearn.field` that speaks of
"cell k" means this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Layout:
    """Shapes of a field: features, tables over them, and the flat order of the cells.

    Attributes
    ----------
    cards
        Number of modalities of each feature.
    scopes
        For each table the indices of its features, increasing.
    hash_sizes
        For each table its number of buckets, or 0 where the table is not hashed.
    """

    cards: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    hash_sizes: tuple[int, ...]

    @classmethod
    def plain(cls, cards: Sequence[int], scopes: Sequence[Sequence[int]]) -> Layout:
        """A layout with no hashed table."""
        return cls(tuple(cards), tuple(tuple(s) for s in scopes), (0,) * len(scopes))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each table."""
        return tuple(
            hashed or prod(self.cards[f] for f in scope)
            for scope, hashed in zip(self.scopes, self.hash_sizes, strict=True)
        )

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """First cell of each table, and past the last one the number of cells."""
        return np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)]).astype(np.int64)

    @property
    def n_features(self) -> int:
        return len(self.cards)

    @property
    def n_tables(self) -> int:
        return len(self.scopes)

    @property
    def n_cells(self) -> int:
        return int(self.offsets[-1])

    def table(self, vector: npt.NDArray[np.floating], t: int) -> npt.NDArray[np.floating]:
        """The part of a flat vector that belongs to table ``t``, in the table's own shape (a view)."""
        part = vector[self.offsets[t] : self.offsets[t + 1]]
        if self.hash_sizes[t]:
            return part
        return part.reshape([self.cards[f] for f in self.scopes[t]])
