"""Weights on their way to blocks of chains, and what the blocks count on its way back.

Both are vectors over all cells. They go in as few bytes as lose nothing (:mod:`..kernels.packed`), and, where
there are many, in shards: runs of cells in the order of the tables. A shard of the weights is broadcast by
itself; a shard of the tallies is summed by one executor for all blocks, and the driver gets each sum once.

**When.** A tree of b blocks adds up √b tallies in an executor and then √b in the driver, each of them as
long as all cells; the driver alone adds up b where these are few. By shards every executor sends its tally
out once and takes in as much, all of them at the same time, and the driver takes in one: three in all, and
one more stage with a task for each shard. So shards are worth while where

    (tallies in a row − 3) · cells · seconds a cell > seconds of a stage + shards · seconds of a task,

and they are needed where Java has no array that is long enough for a tally.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import ceil, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.field.engines.local import UNIT, Counts, Moves
from agglearn.field.kernels.packed import Packed, pack, unpack, whole

Vector = npt.NDArray[Any]

FEW = 4
"""Blocks whose tallies the driver sums by itself."""

# Seconds that a tally which is sent and added takes a cell, that one more stage takes, and a task of it.
CELL_SECONDS, STAGE_SECONDS, TASK_SECONDS = 1.5e-8, 0.2, 0.004
_MOST_CELLS = 1 << 26  # of a shard: 12 bytes each, where Java's longest array has 2³¹
_FEWEST_CELLS = 1 << 16  # of a shard that is worth a task


def n_shards(blocks: int, cells: int) -> int:
    """In how many shards weights and tallies go, by what each way costs."""
    in_a_row = blocks if blocks <= FEW else 2 * ceil(sqrt(blocks))
    needed = ceil(cells / _MOST_CELLS)
    wanted = max(needed, min(blocks, cells // _FEWEST_CELLS))
    gained = (in_a_row - 3) * cells * CELL_SECONDS
    return wanted if gained > STAGE_SECONDS + wanted * TASK_SECONDS else needed


def cut(cells: int, shards: int) -> list[slice]:
    """The cells of each shard."""
    edges = [cells * k // shards for k in range(shards + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


@dataclass(frozen=True, eq=False)
class Shared:
    """Vectors over the cells that executors have, in shards.

    Attributes
    ----------
    size
        How many cells.
    pieces
        Of each shard a broadcast (anything with a ``value``) of the vectors, packed.
    """

    size: int
    pieces: tuple[Any, ...]

    @classmethod
    def of(cls, vectors: Sequence[Vector], shards: int, send: Callable[[Callable[[], Any]], Any]) -> Shared:
        """Vectors that are sent shard by shard; ``send`` is given what makes one."""
        parts = cut(vectors[0].size, shards)
        return cls(vectors[0].size, tuple(send(partial(_packed, vectors, part)) for part in parts))

    @property
    def value(self) -> list[Any]:
        """The vectors, whole."""
        found = [np.empty(self.size, packed.dtype) for packed in self.pieces[0].value]
        for part, piece in zip(cut(self.size, len(self.pieces)), self.pieces, strict=True):
            for vector, packed in zip(found, piece.value, strict=True):
                unpack(packed, vector[part])
        return found

    def leave(self) -> None:
        """Have executors forget the vectors, which are not to be asked for by these pieces again.

        An executor that fetches a broadcast a second time writes it to the same file, and Java deletes that
        file when it gets round to what was there first.
        """
        for piece in self.pieces:
            piece.unpersist()

    def again(self, send: Callable[[Callable[[], Any]], Any]) -> Shared:
        """The same vectors in pieces that are sent anew."""
        return replace(self, pieces=tuple(send(partial(_read, piece)) for piece in self.pieces))


def _read(piece: Any) -> Any:
    """What a broadcast holds, read once more where it was sent from, and not held there."""
    found = piece.value
    vars(piece).pop("_value", None)
    return found


def _packed(vectors: Sequence[Vector], part: slice) -> tuple[Packed, ...]:
    return tuple(pack(vector[part]) for vector in vectors)


@dataclass(eq=False)
class Tally:
    """What some blocks count, in whole numbers: of chains, and of multiples of :data:`~.local.UNIT`.

    The arrays are of all cells or of a shard of them, the numbers always of all.
    """

    d: npt.NDArray[np.int32]
    c: npt.NDArray[np.int64]
    positives: int
    spread: int | None
    chains: int
    moves: Moves
    seconds: float  # that the slowest block's kernels took

    @classmethod
    def of(cls, counts: Counts) -> Tally:
        """The same counts as whole numbers."""
        spread = None if counts.spread is None else int(counts.spread / UNIT)
        positives = int(counts.positives / UNIT)
        d, c = whole(counts.d, 1.0, np.int32), whole(counts.c, UNIT, np.int64)
        return cls(d, c, positives, spread, counts.chains, counts.moves, 0.0)

    def plus(self, other: Tally) -> Tally:
        """The tally of both together; this one's arrays are used for it."""
        self.d[:] += other.d
        self.c[:] += other.c
        return Tally(
            self.d,
            self.c,
            self.positives + other.positives,
            None if self.spread is None or other.spread is None else self.spread + other.spread,
            self.chains + other.chains,
            Moves(*map(sum, zip(self.moves, other.moves, strict=True))),
            max(self.seconds, other.seconds),
        )

    def shards(self, parts: Sequence[slice]) -> list[Tally]:
        """The tally in shards."""
        return [replace(self, d=self.d[part], c=self.c[part]) for part in parts]

    @classmethod
    def joined(cls, shards: Sequence[Tally]) -> Tally:
        """The tally of its shards."""
        d, c = (np.concatenate([getattr(shard, name) for shard in shards]) for name in ("d", "c"))
        return replace(shards[0], d=d, c=c)

    def counts(self) -> Counts:
        """The counts as the engine of one machine has them."""
        c = self.c.astype(np.float64)
        c *= UNIT
        spread = None if self.spread is None else self.spread * UNIT
        return Counts(self.d.astype(np.float64), c, self.positives * UNIT, spread, self.chains, self.moves)

    def __reduce__(self) -> tuple[Any, ...]:
        numbers = (self.positives, self.spread, self.chains, self.moves, self.seconds)
        return _unpacked, (pack(self.d), pack(self.c), *numbers)


def _unpacked(d: Packed, c: Packed, *numbers: Any) -> Tally:
    return Tally(unpack(d), unpack(c), *numbers)
