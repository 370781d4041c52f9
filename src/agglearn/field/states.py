"""Every state of X, where they are few enough to list.

Everything about a law of states x = (x_1 … x_D) is a sum over the tensor of shape ``cards``. A table's
weights are a small tensor that broadcasts along the axes of the features it does not hold; its expected
counts are the big tensor summed over those axes. No index of cells is kept, so that memory is a few numbers a
state however many the tables. The features are taken one at a time: a table is added (or summed) when its
first feature appears, while the tensor of the features after it is still small, which leaves only the tables
that hold the first feature to be done at full size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import log10, prod

import numpy as np
import numpy.typing as npt

from agglearn.errors import TooLargeError
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.schema.rules import code_type

Floats = npt.NDArray[np.float64]

MOST_STATES = 2_000_000  # about 130 MB of temporaries
_BYTES_PER_STATE = 64  # two probabilities and the temporaries of one expectation, float64


class States:
    """The joint states of a layout's features.

    Raises
    ------
    TooLargeError
        When there are more of them than ``most``.
    """

    def __init__(self, layout: Layout, most: int = MOST_STATES) -> None:
        self.layout, self.size = layout, prod(layout.cards)
        if self.size > most:
            raise TooLargeError(
                f"exact engine: the {layout.n_features} features have {_count(self.size)} joint "
                f"states (about {_count(self.size * _BYTES_PER_STATE // 1_000_000)} MB), over the "
                f"limit of {most:,}: use the local engine, or fewer features or modalities"
            )
        # A feature of one modality needs no axis; numpy allows only so many.
        axes = {f: i for i, f in enumerate(f for f, card in enumerate(layout.cards) if card > 1)}
        self._shape = tuple(layout.cards[f] for f in axes)
        self._scopes = [tuple(axes[f] for f in scope if f in axes) for scope in layout.scopes]
        self._by_first: list[list[int]] = [[] for _ in range(len(axes) + 1)]
        for t, scope in enumerate(self._scopes):
            self._by_first[scope[0] if scope else len(axes)].append(t)
        self._found = {  # for cells that are not simply the states of their features
            t: layout.cells[t].find(_all_codes([layout.cards[f] for f in layout.scopes[t]]))
            for t in range(layout.n_tables)
            if not layout.cells[t].dense
        }

    @cached_property
    def codes(self) -> Codes:
        """Every state, a row for each feature, the last feature fastest."""
        return _all_codes(self.layout.cards)

    def scores(self, vector: npt.NDArray[np.floating]) -> Floats:
        """φ(x)·vector for every state."""
        total = np.zeros(())
        for t in self._by_first[-1]:
            total = total + self._dense(vector, t)
        for first in reversed(range(len(self._shape))):
            shape = self._shape[first:]
            total = np.broadcast_to(total, shape).copy()
            for t in self._by_first[first]:
                scope = {axis - first for axis in self._scopes[t]}
                own = [card if axis in scope else 1 for axis, card in enumerate(shape)]
                total += self._dense(vector, t).reshape(own)
        return total.reshape(-1)

    def tally(self, weights: Floats) -> Floats:
        """Σ_x weight(x)·φ(x): the tables of weighted states (the transpose of :meth:`scores`)."""
        tables = np.empty(self.layout.n_cells)
        rest = weights.reshape(self._shape)
        for first in range(len(self._shape) + 1):
            for t in self._by_first[first]:
                scope = {axis - first for axis in self._scopes[t]}
                others = tuple(axis for axis in range(rest.ndim) if axis not in scope)
                cells = rest.sum(axis=others).reshape(-1)
                if t in self._found:
                    cells = np.bincount(self._found[t], cells, minlength=self.layout.sizes[t])
                tables[self.layout.part(t)] = cells
            if rest.ndim:
                rest = rest.sum(axis=0)
        return tables

    def _dense(self, vector: npt.NDArray[np.floating], t: int) -> Floats:
        """Weights of a table over all the combinations of its features, flat."""
        part = vector[self.layout.part(t)]
        return np.asarray(part[self._found[t]] if t in self._found else part, np.float64)


def _all_codes(cards: Sequence[int]) -> Codes:
    """Every combination of modalities, a row per feature, the last feature fastest."""
    codes: Codes = np.empty((len(cards), prod(cards)), code_type(max(cards, default=0)))
    for f, card in enumerate(cards):
        codes[f].reshape(prod(cards[:f]), card, -1)[:] = np.arange(card)[:, None]
    return codes


def _count(number: int) -> str:
    """A count to read: in full while that is short."""
    return f"{number:,}" if number < 10**12 else f"10^{log10(number):.0f}"
