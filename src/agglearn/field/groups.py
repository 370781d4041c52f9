"""Features that determine one another, to be redrawn together.

A draw of one feature given all others hardly moves it where another all but fixes it: education and its
number, an industry and its branch, five columns that are "not applicable" at once. Such features are a
*group*. It is proposed as a whole from a tree of the tables, every member given its parent, the topmost given
its parent outside the group if it has one,

    q(x_G | rest) = Π_{f∈G} p(x_f | x_parent(f)),

and accepted with probability min(1, π(x'_G | rest)·q(x_G) / (π(x_G | rest)·q(x'_G))): a step of Metropolis,
which leaves the field's law as it is whatever q. The label stays.

**Which.** The tree is the spanning tree of greatest mutual information, as at the start (:mod:`.start`). An
edge of it joins its features where they share more than a third of what there is to know of the simpler one,
I > min(H_f, H_g)/3; the closest ones first, as long as a group has at most :data:`_LARGEST` features: the
more there are, the rarer all of them fit the rest at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from agglearn.field.layout import Layout
from agglearn.field.margins import information, marginal, mutual_information, pair_tables, single
from agglearn.field.tree import rooted, spanning_tree

Floats = npt.NDArray[np.float64]

_SHARE = 1 / 3  # of what there is to know of the simpler feature
_LARGEST = 8  # features
_MOST_VALUES = 1 << 18  # of a pair whose law is written out
_SMOOTHING = 1.0  # records spread as the product of the singles
_NOBODY = -1  # whom a member without a parent follows


class Groups(NamedTuple):
    """Groups as flat arrays; group ``g`` has ``members[first[g]:first[g + 1]]``, parents before children.

    Attributes
    ----------
    first, member
        The features of each group.
    parent, row
        Of each member the feature that it follows, -1 if none; and where that one's proposed code is: the
        same, or ``n_features + k`` for the k-th member of its own group.
    law
        Where its law begins in ``upto`` and ``log_law``: a row for each value of the parent.
    upto, log_law
        Cumulated probabilities, and the logarithm of each.
    first_table, table, first_row, rows
        The tables that hold a member, and of each where the codes that it counts are, with the group's
        proposed.
    """

    first: npt.NDArray[np.int64]
    member: npt.NDArray[np.int64]
    parent: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    law: npt.NDArray[np.int64]
    upto: Floats
    log_law: Floats
    first_table: npt.NDArray[np.int64]
    table: npt.NDArray[np.uint64]
    first_row: npt.NDArray[np.int64]
    rows: npt.NDArray[np.uint64]

    @property
    def size(self) -> int:
        """How many groups there are."""
        return self.first.size - 1

    @property
    def largest(self) -> int:
        """Features of the largest."""
        return int(np.diff(self.first).max(initial=0))


def find_groups(layout: Layout, d: npt.NDArray[np.floating]) -> Groups:
    """The groups of a layout with so many records in each cell."""
    edges = rooted(layout.n_features, spanning_tree(mutual_information(layout, d)))
    tables = pair_tables(layout)
    laws: dict[int, Floats] = {}
    close = []
    for parent, child in edges:
        t = tables[min(parent, child), max(parent, child)]
        if not layout.cells[t].dense or layout.cards[parent] * layout.cards[child] > _MOST_VALUES:
            continue
        counts = np.maximum(marginal(layout, d, t, (parent, child)), 0.0)
        counts = counts if parent < child else counts.T
        laws[child] = _given(counts)
        shared = _shared(counts)
        if shared > _SHARE:
            close.append((-shared, parent, child))
    order = {f: place for place, f in enumerate(_downwards(layout.n_features, edges))}
    groups = [sorted(group, key=order.__getitem__) for group in _joined(sorted(close))]
    return _written(layout, d, sorted(groups), {child: parent for parent, child in edges}, laws)


def _joined(close: Sequence[tuple[float, int, int]]) -> list[list[int]]:
    """Features joined by edges in turn, as long as groups do not get too large."""
    held: dict[int, list[int]] = {}
    for _, parent, child in close:
        one, other = held.get(parent, [parent]), held.get(child, [child])
        if len(one) + len(other) <= _LARGEST:
            both = one + other
            held |= dict.fromkeys(both, both)
    return list({id(group): group for group in held.values()}.values())


def _written(
    layout: Layout,
    d: npt.NDArray[np.floating],
    groups: Sequence[Sequence[int]],
    parents: Mapping[int, int],
    laws: Mapping[int, Floats],
) -> Groups:
    """The arrays of groups whose members stand behind their parents."""
    parent, row, written = [], [], []
    table: list[int] = []
    rows: list[int] = []
    first_table, first_row = [0], []
    for group in groups:
        place = {f: layout.n_features + k for k, f in enumerate(group)}
        for f in group:
            above = parents[f] if f in laws else _NOBODY
            parent.append(above)
            row.append(place.get(above, above))
            if f in laws:
                written.append(laws[f])
            else:
                written.append(_given(np.maximum(single(layout, d, f)[0], 0.0)[None, :]))
        for t, scope in enumerate(layout.scopes):
            if not place.keys().isdisjoint(scope):
                table.append(t)
                first_row.append(len(rows))
                rows += [place.get(f, f) for f in scope]
        first_table.append(len(table))
    laws_upto = [_cumulated(law) for law in written]
    with np.errstate(divide="ignore"):
        logs = [np.log(np.diff(upto, axis=1, prepend=0.0)) for upto in laws_upto]
    sizes = [law.size for law in written]
    return Groups(
        first=np.cumsum([0, *(len(group) for group in groups)]),
        member=np.array([f for group in groups for f in group], np.int64),
        parent=np.array(parent, np.int64),
        row=np.array(row, np.int64),
        law=np.cumsum([0, *sizes])[:-1],
        upto=np.concatenate([np.zeros(0), *(upto.reshape(-1) for upto in laws_upto)]),
        log_law=np.concatenate([np.zeros(0), *(log.reshape(-1) for log in logs)]),
        first_table=np.array(first_table, np.int64),
        table=np.array(table, np.uint64),
        first_row=np.array(first_row, np.int64),
        rows=np.array(rows, np.uint64),
    )


def _given(counts: Floats) -> Floats:
    """The law of the second feature given the first, lightly smoothed as at the start."""
    more = _SMOOTHING / (counts.sum() + _SMOOTHING)
    own, by = counts.sum(axis=0), counts.sum(axis=1)
    child = own * ((1 - more) / max(own.sum(), 1.0)) + more / own.size
    parent = by * ((1 - more) / max(by.sum(), 1.0)) + more / by.size
    joint = counts + _SMOOTHING * np.multiply.outer(parent, child)
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def _cumulated(law: Floats) -> Floats:
    """Upper ends of the values' shares of the unit interval, a row for each value of the parent."""
    upto: Floats = np.minimum(law.cumsum(axis=1), 1.0)
    upto[:, -1] = 1.0
    return upto


def _shared(counts: Floats) -> float:
    """What two features tell of one another, as a share of all there is to know of the simpler one."""
    total = counts.sum()
    if total <= 0:
        return 0.0
    shares = [counts.sum(axis=axis) / total for axis in (0, 1)]
    least = min(float(-xlogy(p, p).sum()) for p in shares)
    return information(counts) / least if least > 0 else 0.0


def _downwards(n_features: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """All features, parents before their children."""
    children = [child for _, child in edges]
    return [*sorted(set(range(n_features)) - set(children)), *children]
