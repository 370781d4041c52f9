"""Margins of tables: what a table tells of fewer features, and what it tells beyond them.

**Reading.** A pair of features is read in the table with the fewest cells that holds both, summed over the
others. A single is the mean over all tables that hold the feature, each weighted by the inverse of the number
of cells summed for one modality: the best weights if all cells carry the same noise, and no matter if the
tables agree.

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
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import xlogy

from agglearn.field.layout import Layout
from agglearn.runtime.random import Use, generator

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
    others = tuple(axis for axis, f in enumerate(layout.scopes[t]) if f not in kept)
    return np.asarray(layout.table(vector, t).sum(axis=others, dtype=np.float64))


def mutual_information(layout: Layout, d: npt.NDArray[np.floating]) -> dict[tuple[int, int], float]:
    """Mutual information, in nats, of each pair of features that a plain table holds.

    Plug-in estimate: negative counts are taken as 0, and nothing is taken off for the upward bias
    (about (M_f − 1)(M_g − 1)/2n) of a finite number of records.
    """
    return {pair: information(marginal(layout, d, t, pair)) for pair, t in pair_tables(layout).items()}


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

    Margin cells that none of these cells is in have no row.
    """
    codes = np.unravel_index(cells, shape)
    found = []
    for gone in margins:
        kept = [i for i in range(len(shape)) if i not in gone]
        ids = np.ravel_multi_index([codes[i] for i in kept], [shape[i] for i in kept])
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


def unexplained(z: Floats, variance: Floats, margins: Sequence[Margin], seed: int) -> tuple[float, float]:
    """Σz² that the margins leave of a table's differences, and its degrees; no variance means not judged."""
    cells = np.flatnonzero(variance)
    if not cells.size:
        return 0.0, 0.0
    weights = variance.reshape(-1)[cells]
    root = np.sqrt(weights)[:, None]
    probes = max(1, min(_PROBES, _PROBED_CELLS // cells.size))
    drawn = generator(seed, Use.DEGREES).standard_normal((cells.size, probes))
    values = np.concatenate([z.reshape(-1, 1)[cells], drawn], axis=1) / root
    rest = beyond(values, weights, sums_over(margins, z.shape, cells))
    squares = np.square(root * rest).sum(axis=0)
    return float(squares[0]), float(squares[1:].mean())
