"""What the tables of a field share, as a preconditioner of (I + ρ).

A feature's main effect can be written into every table that holds it, and the intercept into any. Along
those directions the information is that of all tables together and next to no penalty, where the diagonal of
I knows a table alone; conjugate gradients take hundreds of steps for that. With P the map from a weight for
each (table, feature, value) and the intercept to the cells, R = the penalties summed over the cells of each,
and G the information of main effects (a number for each two values of features), (I + ρ) restricted to P is
about R + S·G·Sᵀ, S adding up over tables, whose inverse is small by Woodbury's identity:

    R⁻¹ − R⁻¹·S·(G − G(G + V)⁻¹G)·Sᵀ·R⁻¹,   V⁻¹ = SᵀR⁻¹S.

What is left, interactions, goes by the diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from agglearn.field.layout import Layout
from agglearn.field.population import Population, Values

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

_MOST_VALUES = 1_500  # of the features that are treated so, the smallest first: G is a dense matrix
_LEAST_PENALTY = 1e-4  # of the information of all records, where there is none: only how fast, never what


class Shared:
    """A preconditioner: an approximate (I + ρ)⁻¹.

    Parameters
    ----------
    population, variance
        The law of X, and n·p(1 − p) of each member, in double precision: sums over many records that are off
        by a millionth leave G not quite positive.
    diagonal
        Of I, cell by cell, and for the intercept.
    precision
        ρ of each cell.
    """

    def __init__(self, population: Population, variance: Values, diagonal: Floats, precision: Floats) -> None:
        layout = self._layout = population.layout
        total = float(diagonal[-1])
        self._divisor = np.append(diagonal[:-1] + precision, total)
        chosen = _chosen(layout)
        self._first = dict(
            zip(chosen, np.cumsum([1, *(layout.cards[f] for f in chosen)]).tolist(), strict=False)
        )
        self._size = 1 + sum(layout.cards[f] for f in chosen)
        g = _main_information(population, variance, total, chosen, self._first, self._size)
        least = _LEAST_PENALTY * total
        self._penalties = {
            (t, f): np.maximum(_sum_to(layout, precision[:, None], t, f)[:, 0], least)
            for t, f in self._places()
        }
        inverse = np.full(self._size, 0.0)
        inverse[0] = 1 / least
        for (_, f), r in self._penalties.items():
            inverse[self._of(f)] += 1 / r
        self._least = least
        v = np.where(inverse > 0, 1 / np.maximum(inverse, 1e-300), total)
        # As in :mod:`.solve`: more threads of BLAS change bits, and on a busy machine wait for each other.
        with threadpool_limits(1, user_api="blas"):
            factor = cho_factor(g + np.diag(v))
            self._middle = g - g @ cho_solve(factor, g)

    def __call__(self, residual: Array) -> Array:
        """The approximate inverse times each column."""
        found: Array = residual / self._divisor.astype(residual.dtype)[:, None]
        inner: dict[tuple[int, int], Floats] = {}
        gathered = np.zeros((self._size, residual.shape[1]))
        gathered[0] = residual[-1].astype(np.float64) / self._least
        for (t, f), r in self._penalties.items():
            inner[t, f] = _sum_to(self._layout, residual[:-1], t, f) / r[:, None]
            gathered[self._of(f)] += inner[t, f]
        shared = np.einsum("ij,jk->ik", self._middle, gathered)
        found[-1] += ((residual[-1].astype(np.float64) - shared[0]) / self._least).astype(found.dtype)
        for (t, f), r in self._penalties.items():
            move = inner[t, f] - shared[self._of(f)] / r[:, None]
            _add_along(self._layout, found[:-1], t, f, move.astype(found.dtype))
        return found

    def _places(self) -> Iterator[tuple[int, int]]:
        for t, scope in enumerate(self._layout.scopes):
            if self._layout.cells[t].dense:
                yield from ((t, f) for f in scope if f in self._first)

    def _of(self, f: int) -> slice:
        return slice(self._first[f], self._first[f] + self._layout.cards[f])


def _chosen(layout: Layout) -> list[int]:
    """The features of fewest values that have a table, as many as there is room for."""
    held = {f for t, scope in enumerate(layout.scopes) if layout.cells[t].dense for f in scope}
    chosen: list[int] = []
    room = _MOST_VALUES
    for f in sorted(held, key=lambda f: layout.cards[f]):
        if layout.cards[f] <= room:
            chosen.append(f)
            room -= layout.cards[f]
    return sorted(chosen)


def _main_information(
    population: Population,
    variance: Values,
    total: float,
    chosen: Sequence[int],
    first: dict[int, int],
    size: int,
) -> Floats:
    """n·E[p(1 − p)·χχᵀ], χ marking the intercept and the values of the chosen features."""
    cards = population.layout.cards
    scopes = [(f,) for f in chosen] + list(combinations(chosen, 2))
    g = np.zeros((size, size))
    g[0, 0] = total
    if not scopes:
        return g
    pairs = Layout.plain(cards, scopes)
    told = np.asarray(population.over(pairs).cells(variance), np.float64)
    for t, scope in enumerate(scopes):
        part = pairs.table(told, t)
        a = slice(first[scope[0]], first[scope[0]] + cards[scope[0]])
        if len(scope) == 1:
            g[a, a] = np.diag(part)
            g[0, a] = g[a, 0] = part
        else:
            b = slice(first[scope[1]], first[scope[1]] + cards[scope[1]])
            g[a, b], g[b, a] = part, part.T
    return g


def _sum_to(layout: Layout, cells: Array, t: int, f: int) -> Floats:
    """Numbers of a table's cells (a column each) summed for each value of one of its features."""
    shape, axis = layout.cells[t].shape, layout.scopes[t].index(f)
    numbers = cells[layout.part(t)].reshape(*shape, -1)
    gone = tuple(i for i in range(len(shape)) if i != axis)
    return np.asarray(numbers.sum(axis=gone, dtype=np.float64))


def _add_along(layout: Layout, cells: Array, t: int, f: int, move: Array) -> None:
    """Add a number for each value of a feature to all cells of a table that have it, in place."""
    shape, axis = layout.cells[t].shape, layout.scopes[t].index(f)
    numbers = cells[layout.part(t)].reshape(*shape, -1)
    wide = [1] * len(shape)
    wide[axis] = shape[axis]
    numbers += move.reshape(*wide, -1)
