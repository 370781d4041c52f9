# mypy: disallow-untyped-decorators=False
"""Laws to propose from that are no longer than the cells seen.

Of feature f given the value z of its neighbour, with n_z records of z of which n_zv have value v,

    q(v | z) = s_z · n_zv/n_z + (1 − s_z) · P(v),   s_z = 0.8 · n_z/(n_z + 1),

which is the law of :mod:`.proposals`, 0.8 · (n_zv + P(v))/(n_z + 1) + 0.2 · P(v), in another order. It is
drawn from in two steps: with probability s_z from the values seen with z, by an alias table of these alone,
and else from the marginal law P, by one of its own. The density of a value seen with z stands where it is
drawn from, so that one trip to memory brings both, and once more by its cell, where it is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout
from agglearn.runtime.compiled import njit
from agglearn.tables.cells import SparseCells

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.uint64]


class SeenLaws(NamedTuple):
    """The laws of some features as flat arrays; feature ``f`` has the rows ``first[f]:first[f + 1]``, if any.

    A spot of a row stands for its own value with probability kept/2³², and for that of the row's spot
    ``other`` otherwise; those of the marginal law stand for the values in order.
    """

    first: Index
    row_start: Index
    share: Floats  # s_z of each row
    spots: npt.NDArray[np.uint32]  # kept, other, value, and the bits of −log q, side by side
    marginal: Index  # where a feature's marginal law begins
    marginal_kept: npt.NDArray[np.uint32]
    marginal_other: npt.NDArray[np.uint32]
    marginal_law: npt.NDArray[np.float32]
    table: npt.NDArray[np.int64]  # in whose list the cell of (v, z) is found; -1: it is the rank
    stride: Index  # ranks from one v to the next
    other_stride: Index  # and from one z to the next
    cells: Index  # of the table, its rest apart
    first_cell: Index
    surprise: npt.NDArray[np.float32]  # −log q of each cell


@dataclass(frozen=True, eq=False)
class SeenLaw:
    """The law of one feature."""

    rows: npt.NDArray[np.int64]  # where each row begins, and the last ends
    share: Floats
    value: npt.NDArray[np.uint32]
    weight: Floats  # of each entry, summing to 1 in each row
    marginal: Floats
    table: int
    stride: int
    other_stride: int
    surprise: npt.NDArray[np.float32]  # of each cell, and of each entry
    of_entry: npt.NDArray[np.float32]

    @classmethod
    def of(cls, layout: Layout, d: Floats, f: int, t: int, marginal: Floats, most: float) -> SeenLaw:
        """From the counts of table ``t``, or from the marginal law alone where that is -1."""
        nothing = np.zeros(0)
        if t < 0:
            rows, share, none = np.zeros(2, np.int64), np.zeros(1), nothing.astype(np.float32)
            return cls(rows, share, nothing.astype(np.uint32), nothing, marginal, -1, 1, 0, none, none)
        cells, axis = layout.cells[t], layout.scopes[t].index(f)
        counts = np.maximum(d[layout.part(t)].reshape(-1), 0.0)
        if isinstance(cells, SparseCells):
            codes, counts = cells.listed_codes.astype(np.int64), counts[:-1]
        else:
            codes = np.stack(np.unravel_index(np.arange(counts.size), cells.shape))
        z, v = codes[1 - axis], codes[axis]
        n_z = np.bincount(z, counts, minlength=layout.cards[layout.scopes[t][1 - axis]])
        law = np.divide(counts, n_z[z], out=np.zeros(counts.size), where=n_z[z] > 0)
        seen = np.flatnonzero(law)
        order = seen[np.argsort(z[seen], kind="stable")]
        second = layout.cards[layout.scopes[t][1]]
        share = most * n_z / (n_z + 1)
        surprise = _surprise(z, v, share, marginal.astype(np.float32), law.astype(np.float32))
        return cls(
            rows=np.searchsorted(z[order], np.arange(n_z.size + 1)),
            share=share,
            value=v[order].astype(np.uint32),
            weight=law[order],
            marginal=marginal,
            table=t if isinstance(cells, SparseCells) else -1,
            stride=second if axis == 0 else 1,
            other_stride=1 if axis == 0 else second,
            surprise=surprise,
            of_entry=surprise[order],
        )


def seen_laws(n_features: int, laws: Mapping[int, SeenLaw]) -> SeenLaws:
    """Some features' laws, one after the other."""
    zeros = np.zeros(n_features, np.int64)
    first, marginal, stride, other, cells, first_cell = (zeros.copy() for _ in range(6))
    table = zeros - 1
    rows, starts, n_entries, n_marginal, n_cells = 0, [np.zeros(0, np.int64)], 0, 0, 0
    for f in range(n_features):
        first[f] = rows
        if f not in laws:
            continue
        own = laws[f]
        table[f], stride[f], other[f] = own.table, own.stride, own.other_stride
        marginal[f], first_cell[f], cells[f] = n_marginal, n_cells, own.surprise.size
        starts.append(n_entries + own.rows[:-1])
        rows += len(own.share)
        n_entries += own.value.size
        n_marginal += own.marginal.size
        n_cells += own.surprise.size
    parts = list(laws.values())
    row_start = np.concatenate([*starts, [n_entries]])
    weight = np.concatenate([np.zeros(0), *(own.weight for own in parts)])
    spots = np.empty((weight.size, 4), np.uint32)
    spots[:, 0], spots[:, 1] = _alias(row_start, weight)
    spots[:, 2] = np.concatenate([np.zeros(0, np.uint32), *(own.value for own in parts)])
    spots.view(np.float32)[:, 3] = np.concatenate([np.zeros(0, np.float32), *(own.of_entry for own in parts)])
    alone = np.concatenate([np.zeros(0), *(own.marginal for own in parts)])
    ends = np.cumsum([0, *(own.marginal.size for own in parts)])
    marginal_kept, marginal_other = _alias(ends.astype(np.int64), alone)
    return SeenLaws(
        first=np.append(first, rows).astype(np.uint64),
        row_start=row_start.astype(np.uint64),
        share=np.concatenate([np.zeros(0), *(own.share for own in parts)]),
        spots=spots,
        marginal=marginal.astype(np.uint64),
        marginal_kept=marginal_kept,
        marginal_other=marginal_other,
        marginal_law=alone.astype(np.float32),
        table=table,
        stride=stride.astype(np.uint64),
        other_stride=other.astype(np.uint64),
        cells=cells.astype(np.uint64),
        first_cell=first_cell.astype(np.uint64),
        surprise=np.concatenate([np.zeros(0, np.float32), *(own.surprise for own in parts)]),
    )


@njit(nogil=True)
def _surprise(z, v, share, marginal, law):  # type: ignore[no-untyped-def]
    """−log q of each cell (z, v)."""
    found = np.empty(z.size, np.float32)
    for k in range(z.size):
        s = share[z[k]]
        found[k] = -np.float32(log((1.0 - s) * np.float64(marginal[v[k]]) + s * np.float64(law[k])))
    return found


@njit(nogil=True)
def _alias(row_start, law):  # type: ignore[no-untyped-def]
    """Vose's algorithm for each row; 2⁻³² of rounding is far below that of the weights themselves."""
    kept, other = np.empty(law.size, np.uint32), np.empty(law.size, np.uint32)
    longest = 0
    for z in range(row_start.size - 1):
        longest = max(longest, row_start[z + 1] - row_start[z])
    share = np.empty(longest)
    small, large = np.empty(longest, np.int64), np.empty(longest, np.int64)
    for z in range(row_start.size - 1):
        row, length = row_start[z], row_start[z + 1] - row_start[z]
        n_small = n_large = 0
        for v in range(length):
            share[v] = law[row + v] * length
            kept[row + v], other[row + v] = np.uint32(2**32 - 1), np.uint32(v)
            if share[v] < 1.0:
                small[n_small] = v
                n_small += 1
            else:
                large[n_large] = v
                n_large += 1
        while n_small and n_large:
            n_small -= 1
            s, g = small[n_small], large[n_large - 1]
            kept[row + s] = np.uint32(min(share[s] * 4294967296.0, 4294967295.0))
            other[row + s] = np.uint32(g)
            share[g] -= 1.0 - share[s]
            if share[g] < 1.0:
                n_large -= 1
                small[n_small] = g
                n_small += 1
    return kept, other
