"""Margins of tables: what a table tells of fewer features, and what it tells beyond them.

**Reading.** A pair of features is read in the table with the fewest cells that holds both, summed over the
others; where that is sparse, as a list of the cells that were seen (:func:`entries`). A single is the mean
over all tables that hold the feature, each weighted by the inverse of the number of cells summed for one
modality: the best weights if all cells carry the same noise, and no matter if the tables agree.

**Beyond.** A function u of a table's cells, with weights w, is regressed on margins by turns: each margin
takes the weighted mean of what the others left, shrunk by a penalty λ,

    a_m ← a_m + (Σ w·rest − λ·a_m) / (Σ w + λ),   rest = u − Σ_m a_m.

What is left no weight of the margins can express. Features that nearly determine one another need many turns
and leave little; the turns end when they change no more. Of differences z with variances v, u = z/√v with
weights v; Σv·rest² is about χ² if only the margins are off, and has as many degrees as random z of variance 1
keep of their squares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import xlogy

from agglearn.field.layout import Layout
from agglearn.runtime.random import Use, generator
from agglearn.tables.cells import SparseCells, ranks

Floats = npt.NDArray[np.float64]
CellNumbers = npt.NDArray[np.int64]
Margin = tuple[int, ...]  # the axes that are summed out

_SETTLED = 1e-6  # of the weighted squares that a turn may still change
_PROBES = 500  # random functions that tell the degrees: a single one within √(2/500) = 6 %
_PROBED_CELLS = 20_000  # cells of all of them: large tables need fewer


def pair_tables(layout: Layout) -> dict[tuple[int, int], int]:
    """For each pair of features that a plain table holds, the one with the fewest cells."""
    best: dict[tuple[int, int], int] = {}
    for t, scope in enumerate(layout.scopes):
        if not layout.cells[t].apart:
            continue
        for pair in combinations(scope, 2):
            if pair not in best or layout.sizes[t] < layout.sizes[best[pair]]:
                best[pair] = t
    return dict(sorted(best.items()))


def holders(layout: Layout, f: int) -> list[int]:
    """The tables that hold a feature and tell it apart from their others."""
    return [t for t, scope in enumerate(layout.scopes) if f in scope and layout.cells[t].apart]


def single(layout: Layout, vector: npt.NDArray[np.floating], f: int) -> tuple[Floats, float]:
    """Weighted sum over tables of what each says of a feature's modalities, and the sum of the weights."""
    total, weight = np.zeros(layout.cards[f]), 0.0
    for t in holders(layout, f):
        cells_each = layout.sizes[t] / layout.cards[f]
        total += marginal(layout, vector, t, (f,)) / cells_each
        weight += 1 / cells_each
    return total, weight


def marginal(layout: Layout, vector: npt.NDArray[np.floating], t: int, features: Iterable[int]) -> Floats:
    """The cells of plain table ``t`` summed over all its features but those given."""
    kept = set(features)
    cells, scope = layout.cells[t], layout.scopes[t]
    if not cells.dense:
        own = np.asarray(vector[layout.part(t)], np.float64)
        return cells.margin(own, [axis for axis, f in enumerate(scope) if f in kept])
    others = tuple(axis for axis, f in enumerate(scope) if f not in kept)
    return np.asarray(layout.table(vector, t).sum(axis=others, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Entries:
    """The cells of a pair of features that were seen: the codes of the first, of the second, and a number."""

    first: CellNumbers
    second: CellNumbers
    values: Floats
    shape: tuple[int, int]

    @property
    def turned(self) -> Entries:
        """With the second feature first."""
        return Entries(self.second, self.first, self.values, self.shape[::-1])


def is_sparse(layout: Layout, t: int) -> bool:
    """Whether a table lists its cells."""
    return isinstance(layout.cells[t], SparseCells)


def entries(
    layout: Layout, vector: npt.NDArray[np.floating], t: int, pair: tuple[int, int]
) -> tuple[Entries, CellNumbers]:
    """What the listed cells of sparse table ``t`` say of two of its features, and the entry of each cell."""
    cells = layout.cells[t]
    assert isinstance(cells, SparseCells)
    axes = [layout.scopes[t].index(f) for f in pair]
    shape = (cells.cards[axes[0]], cells.cards[axes[1]])
    codes = cells.listed_codes[axes]
    values: Floats = np.asarray(vector[layout.part(t)][:-1], np.float64)
    at: CellNumbers = np.arange(values.size)
    if len(cells.cards) > 2:
        seen, at = np.unique(ranks(shape, codes), return_inverse=True)
        codes = np.stack(np.unravel_index(seen, shape)).astype(np.int32)
        values = np.asarray(np.bincount(at.reshape(-1), values), np.float64)
    return Entries(codes[0], codes[1], values, shape), at.reshape(-1)


def mutual_information(layout: Layout, d: npt.NDArray[np.floating]) -> dict[tuple[int, int], float]:
    """Mutual information, in nats, of each pair of features that a plain table holds.

    Plug-in estimate: negative counts are taken as 0, and nothing is taken off for the upward bias
    (about (M_f − 1)(M_g − 1)/2n) of a finite number of records.
    """
    return {pair: _information(layout, d, t, pair) for pair, t in pair_tables(layout).items()}


def _information(layout: Layout, d: npt.NDArray[np.floating], t: int, pair: tuple[int, int]) -> float:
    if is_sparse(layout, t):
        return sparse_information(entries(layout, d, t, pair)[0])
    return information(marginal(layout, d, t, pair))


def sparse_information(seen: Entries) -> float:
    """Mutual information, in nats, of two features of which some cells were seen."""
    counts = np.maximum(seen.values, 0.0)
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    counts /= total
    margins = (np.bincount(seen.first, counts), np.bincount(seen.second, counts), counts)
    entropies = [-xlogy(p, p).sum() for p in margins]
    return max(0.0, float(entropies[0] + entropies[1] - entropies[2]))


def information(counts: npt.NDArray[np.floating]) -> float:
    """Mutual information, in nats, of the two features of one table of counts."""
    counts = np.maximum(counts, 0.0)
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    counts /= total
    entropies = [-xlogy(p, p).sum() for p in (counts.sum(axis=1), counts.sum(axis=0), counts)]
    return max(0.0, float(entropies[0] + entropies[1] - entropies[2]))


def held_margins(features: Sequence[int], scopes: Sequence[Sequence[int]]) -> list[Margin]:
    """The largest margins of a set of features that tables hold, each by the axes to sum out."""
    kept = {frozenset(features) & frozenset(scope) for scope in scopes}
    largest = [m for m in kept if m and not any(m < other for other in kept)]
    return sorted(tuple(i for i, f in enumerate(features) if f not in m) for m in largest)


def sums_over(margins: Sequence[Margin], shape: Sequence[int], cells: CellNumbers) -> list[csr_array]:
    """For each margin the matrix that sums some cells of a table of this shape over it.

    Cells are given by their place in C order; margin cells that none of these is in have no row.
    """
    codes = np.unravel_index(cells, shape)
    found = []
    for gone in margins:
        kept = [i for i in range(len(shape)) if i not in gone]
        ids = ranks([shape[i] for i in kept], np.stack([codes[i] for i in kept]))
        rows = np.unique(ids, return_inverse=True)[1].reshape(-1)
        found.append(csr_array((np.ones(cells.size), (rows, np.arange(cells.size)))))
    return found


def beyond(
    values: Floats, weights: Floats, sums: Sequence[csr_array], penalty: float = 0.0, turns: int = 100
) -> Floats:
    """What the margins leave of functions of cells.

    Parameters
    ----------
    values
        The functions, a column each.
    weights
        Of the cells, above 0 unless there is a penalty.
    sums
        Of :func:`sums_over`.
    penalty
        That the margins' own weights are under.
    turns
        The most turns; for an average over random functions a few do.
    """
    rest, w = values.copy(), weights[:, None]
    back = [m.T.tocsr() for m in sums]
    held = [m @ w + penalty for m in sums]
    taken = [np.zeros((m.shape[0], values.shape[1])) for m in sums]
    total = float((w * rest**2).sum())
    for _ in range(turns):
        changed = 0.0
        for i, m in enumerate(sums):
            step = (m @ (w * rest) - penalty * taken[i]) / held[i]
            taken[i] += step
            rest -= back[i] @ step
            changed += float((held[i] * step**2).sum())
        if changed <= _SETTLED * total:
            break
    return rest


def unexplained(
    z: Floats, variance: Floats, margins: Sequence[Margin], seed: int, listed: SparseCells | None = None
) -> tuple[float, float]:
    """Σz² that the margins leave of a table's differences, and its degrees; no variance means not judged.

    ``listed`` are the cells of a sparse table, whose rest is in no margin and not judged.
    """
    cells = np.flatnonzero(variance if listed is None else variance[:-1])
    if not cells.size:
        return 0.0, 0.0
    weights = variance.reshape(-1)[cells]
    root = np.sqrt(weights)[:, None]
    probes = max(1, min(_PROBES, _PROBED_CELLS // cells.size))
    drawn = generator(seed, Use.DEGREES).standard_normal((cells.size, probes))
    values = np.concatenate([z.reshape(-1, 1)[cells], drawn], axis=1) / root
    shape, places = (z.shape, cells) if listed is None else (listed.cards, listed.listed[cells])
    rest = beyond(values, weights, sums_over(margins, shape, places))
    squares = np.square(root * rest).sum(axis=0)
    return float(squares[0]), float(squares[1:].mean())
