"""The tables of a model as few arrays, for places where each look-up costs.

An array has a place for every combination of codes of its features, and on each axis one more for *unknown*.
What a table adds to a combination that it knows nothing of is 0, so tables can be added up in one array of
all their features, and the sum over arrays is the log-odds for any codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from agglearn.model.model import Model

Floats = npt.NDArray[np.float64]

_LARGER = 4096  # places that an array may have although none of its tables is as large: it stays in cache


@dataclass(frozen=True, eq=False)
class Folded:
    """One array: its features, and a weight for each combination of their codes, unknown last."""

    features: tuple[int, ...]
    weights: Floats


def padded_size(cards: Sequence[int], features: Sequence[int]) -> int:
    """Places of an array over some features."""
    return prod(cards[f] + 1 for f in features)


def fold(model: Model, tables: Sequence[int]) -> list[Folded]:
    """The sum of some of a model's tables as a sum of arrays, fewer where small tables go together."""
    layout = model.layout
    groups: list[tuple[tuple[int, ...], list[int]]] = []
    for t in sorted(tables, key=lambda t: -padded_size(layout.cards, layout.scopes[t])):
        place = _place(groups, layout.scopes[t], layout.cards)
        if place is None:
            groups.append((layout.scopes[t], [t]))
        else:
            features, members = groups[place]
            groups[place] = (tuple(sorted({*features, *layout.scopes[t]})), [*members, t])
    return [Folded(features, _sum(model, features, members)) for features, members in groups]


def _place(
    groups: Sequence[tuple[tuple[int, ...], list[int]]], scope: tuple[int, ...], cards: Sequence[int]
) -> int | None:
    """The group that a table goes to: one that has its features, or the smallest that may grow by them."""
    best, size = None, _LARGER + 1
    for k, (features, _) in enumerate(groups):
        union = {*features, *scope}
        if len(union) == len(features):
            return k
        grown = padded_size(cards, sorted(union))
        if grown < size:
            best, size = k, grown
    return best


def _sum(model: Model, features: tuple[int, ...], members: Sequence[int]) -> Floats:
    cards = model.layout.cards
    total = np.zeros([cards[f] + 1 for f in features])
    for t in members:
        scope = model.layout.scopes[t]
        own = np.zeros([cards[f] + 1 for f in scope])
        own[tuple(slice(cards[f]) for f in scope)] = _weights(model, t)
        total += own.reshape([cards[f] + 1 if f in scope else 1 for f in features])
    return total


def _weights(model: Model, t: int) -> Floats:
    """The weight of every combination of a table's codes; buckets and unseen cells are written out."""
    layout = model.layout
    weights = np.asarray(layout.table(model.field.theta, t), float)
    if layout.cells[t].dense:
        return weights
    cards = [layout.cards[f] for f in layout.scopes[t]]
    codes = np.indices(cards).reshape(len(cards), -1)
    return weights[layout.cells[t].find(codes)].reshape(cards)
