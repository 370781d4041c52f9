"""Where μ and the chains begin: a tree of the strongest pairs, or independent features.

The Chow-Liu start takes the spanning tree of greatest total mutual information among the pairs whose
counts the plain tables tell,

    I(f, g) = Σ_ab p(a,b)·log( p(a,b) / (p(a)·p(b)) ),

and the tree distribution that agrees with those pairs,

    p(x) = Π_f p(x_f) · Π_{f→g} p(x_g | x_f) / p(x_g).

Each factor is a function of one feature or of one pair, so it can be written into the cells of a table
that holds them: exp(φ(x)·μ) ∝ p(x) for every x. With θ = 0 and any intercept the field's law of x is
then the tree itself, and chains drawn from the tree start in equilibrium. The independent start is
the tree without edges.

**Which counts.** A pair is read in the table with the fewest cells that holds both features, summed over
the others. A single is the mean over all tables that hold the feature, each weighted by the inverse of
the number of cells summed for one modality: the best weights if all cells carry the same noise, and
no matter if the tables agree. Negative (noisy) counts are taken as 0 after summing.

**Smoothing.** ``smoothing`` pseudo-records, 1 by default, are added to each single (uniform over its
modalities) and to each pair (spread as the product of its singles); the pair is then raked to its
singles. So no logarithm is infinite, the margins stay what they were, and the pull is toward
independence. One record is the lightest amount that has a meaning: among as many chains as there are
records, about one starts on a cell never seen. More would put mass where d = 0, which training has to
take out again.

**Sparse tables.** With p the laws of the singles, s the pseudo-records and n_ab the counts, the raked pair is
p_ab = r_a·c_b·(n_ab + s·p_a·p_b)/(n + s), so that log(p_ab/(p_a·p_b)) is a function of a, one of b, and a
number that all unseen cells share: log(s/(n + s)). The first two are written where the singles are, and
neither raking nor drawing touches a cell that was not seen: what they share is one law, drawn from with the
probability that is left.

**What cannot be placed.** No function of one feature can be written into hashed buckets, nor into the cells
of a sparse table that share one weight. A feature that no dense table holds starts uniform, which needs no
weight; pairs that only hashed tables hold are no candidates for the tree. So the chains always follow the
field that μ describes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.field.edge import RAKING_STEPS, RAKING_TOLERANCE, Edge
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.field.margins import (
    entries,
    holders,
    is_sparse,
    marginal,
    mutual_information,
    pair_tables,
    single,
)
from agglearn.field.tree import rooted, spanning_tree
from agglearn.runtime.random import Numbers
from agglearn.schema.rules import code_type

Floats = npt.NDArray[np.float64]

_BLOCK = 1 << 20  # chains drawn together, however many machines they are spread over


class FirstChains(Protocol):
    """Chains to begin with, any part of which can be had by itself."""

    def part(self, first: int, last: int) -> Codes:
        """Codes of the chains of these numbers, a row for each feature."""
        ...


@dataclass(frozen=True, eq=False)
class TreeChains:
    """Chains drawn from a tree.

    Attributes
    ----------
    roots
        The laws of the features that follow no other.
    links
        Of each edge its parent, its child, and the law of the one given the other.
    dtype, size, numbers
        Type of the codes, how many chains, and the random numbers that they are drawn by.
    """

    roots: Mapping[int, Floats]
    links: Sequence[tuple[int, int, Edge | Floats]]
    dtype: npt.DTypeLike
    size: int
    numbers: Numbers

    def part(self, first: int, last: int) -> Codes:
        """Codes of the chains of these numbers: blocks of them are drawn as a whole."""
        drawn = []
        for block in range(first // _BLOCK, -(-last // _BLOCK)):
            begin = block * _BLOCK
            codes = self._draw(block, min(_BLOCK, self.size - begin))
            drawn.append(codes[:, max(first - begin, 0) : last - begin])
        return np.concatenate(drawn, axis=1) if len(drawn) > 1 else np.ascontiguousarray(drawn[0])

    def _draw(self, block: int, n: int) -> Codes:
        rng = self.numbers.generator(block)
        codes: Codes = np.empty((len(self.roots) + len(self.links), n), self.dtype)
        for root, law in self.roots.items():
            codes[root] = _draw(rng, np.zeros(n, codes.dtype), law[None, :])
        for parent, child, given in self.links:
            if isinstance(given, Edge):
                codes[child] = given.draw(rng, codes[parent])
            else:
                codes[child] = _draw(rng, codes[parent], given)
        return codes


@dataclass(frozen=True, eq=False)
class GivenChains:
    """Chains that are there already."""

    codes: Codes

    def part(self, first: int, last: int) -> Codes:
        """Codes of the chains of these numbers."""
        return np.ascontiguousarray(self.codes[:, first:last])


@dataclass(frozen=True)
class Start:
    """Weights and chains to begin from.

    Attributes
    ----------
    mu
        Weight of each cell, float64; θ and the intercept are left to the trainer.
    first
        The chains.
    size
        How many.
    edges
        Tree edges as (parent, child), parents before their children.
    """

    mu: Floats
    first: FirstChains
    size: int
    edges: tuple[tuple[int, int], ...]

    @cached_property
    def chains(self) -> Codes:
        """Codes of the chains, a row for each feature."""
        return self.first.part(0, self.size)


def tree_start(
    layout: Layout,
    d: npt.NDArray[np.floating],
    rows: float,
    n_chains: int,
    numbers: Numbers,
    *,
    smoothing: float = 1.0,
) -> Start:
    """Chow-Liu start: the best tree, μ that describes it, and chains drawn from it.

    Parameters
    ----------
    layout
        Features and tables.
    d
        Count of each cell.
    rows
        Number of records.
    n_chains
        Number of chains to draw.
    numbers
        The random numbers of the draws; the same chains come back whatever the machine or its threads.
    smoothing
        Pseudo-records added to each single and each pair, more than 0.
    """
    told = mutual_information(layout, d)
    for pair, t in pair_tables(layout).items():
        if is_sparse(layout, t) and None in (_home(layout, pair[0]), _home(layout, pair[1])):
            del told[pair]
    edges = rooted(layout.n_features, spanning_tree(told))
    return _start(layout, d, rows, n_chains, numbers, smoothing, edges)


def independent_start(
    layout: Layout,
    d: npt.NDArray[np.floating],
    rows: float,
    n_chains: int,
    numbers: Numbers,
    *,
    smoothing: float = 1.0,
) -> Start:
    """The start with independent features; parameters as in :func:`tree_start`."""
    return _start(layout, d, rows, n_chains, numbers, smoothing, ())


# of a layout, d, rows, a number of chains, and random numbers
Starter: TypeAlias = Callable[[Layout, Floats, float, int, Numbers], Start]
STARTS: Mapping[str, Starter] = {"tree": tree_start, "independent": independent_start}


def _start(
    layout: Layout,
    d: npt.NDArray[np.floating],
    rows: float,
    n_chains: int,
    numbers: Numbers,
    smoothing: float,
    edges: tuple[tuple[int, int], ...],
) -> Start:
    if not smoothing > 0:
        raise InputError(
            f"smoothing is {smoothing}: it must be more than 0, or empty cells have no logarithm"
        )
    singles = [_law(layout, d, rows, smoothing, f) for f in range(layout.n_features)]
    tables = pair_tables(layout)
    mu = np.zeros(layout.n_cells)
    for f, share in enumerate(singles):
        home = _home(layout, f)
        if home is not None:
            _place(layout, mu, home, (f,), np.log(share))

    roots = sorted(set(range(layout.n_features)) - {child for _, child in edges})
    links: list[tuple[int, int, Edge | Floats]] = []
    for parent, child in edges:
        pair = (min(parent, child), max(parent, child))
        t = tables[pair]
        if is_sparse(layout, t):
            seen, at = entries(layout, d, t, (parent, child))
            edge = Edge.raked(seen, singles[parent], singles[child], rows, smoothing)
            links.append((parent, child, edge))
            mu[layout.part(t)] += np.append(edge.weights[at], edge.rest)
            for f, term in ((parent, edge.of_parent), (child, edge.of_child)):
                home = _home(layout, f)
                assert home is not None
                _place(layout, mu, home, (f,), term)
            continue
        counts = marginal(layout, d, t, pair)
        if parent > child:
            counts = counts.T
        given = _conditional(counts, singles[parent], singles[child], rows, smoothing)
        links.append((parent, child, given))
        ratio = np.log(given)
        ratio -= np.log(singles[child])
        _place(layout, mu, t, pair, ratio if parent < child else ratio.T)
    dtype = np.dtype(code_type(max(layout.cards, default=0)))
    chains = TreeChains({f: singles[f] for f in roots}, links, dtype, n_chains, numbers)
    return Start(mu, chains, n_chains, edges)


def _law(layout: Layout, d: npt.NDArray[np.floating], rows: float, smoothing: float, f: int) -> Floats:
    """Smoothed law of one feature, from every plain table that holds it; uniform if none can be written."""
    counts = np.zeros(layout.cards[f])
    if _home(layout, f) is not None:
        counts, _ = single(layout, d, f)
    return _shares(np.maximum(counts, 0.0), rows, smoothing, np.full(counts.size, 1 / counts.size))


def _conditional(counts: Floats, parent: Floats, child: Floats, rows: float, smoothing: float) -> Floats:
    """Smoothed law of the child given the parent, a row each, raked to the singles."""
    joint = _shares(np.maximum(counts, 0.0), rows, smoothing, np.multiply.outer(parent, child))
    for _ in range(RAKING_STEPS):
        gap = child / joint.sum(axis=0)
        joint *= gap
        joint *= (parent / joint.sum(axis=1))[:, None]
        if np.abs(gap - 1).max() < RAKING_TOLERANCE:
            break
    joint /= joint.sum(axis=1, keepdims=True)
    return joint


def _shares(counts: Floats, rows: float, smoothing: float, prior: Floats) -> Floats:
    """Counts as a law of ``rows`` records and ``smoothing`` more that follow the prior."""
    total = float(counts.sum())
    shares = counts * (rows / total) if total > 0 else rows * prior
    shares += smoothing * prior
    shares /= shares.sum()
    return shares


def _home(layout: Layout, f: int) -> int | None:
    """The dense table with the fewest cells that holds a feature."""
    dense = [t for t in holders(layout, f) if layout.cells[t].dense]
    return min(dense, key=lambda t: layout.sizes[t], default=None)


def _place(layout: Layout, mu: Floats, t: int, features: Sequence[int], term: Floats) -> None:
    """Add a function of some features of a table to the weights of its cells."""
    shape = [layout.cards[f] if f in features else 1 for f in layout.scopes[t]]
    cells = layout.table(mu, t)
    cells += term.reshape(shape)


def _draw(rng: np.random.Generator, parent: Codes, given: Floats) -> Codes:
    """Draw a value for each chain given its parent's, by systematic sampling within each group.

    The m chains that share a parent value, in random order, take the m points (j + u)/m of the
    conditional's cumulated law, with one uniform u a group. Each chain follows its law exactly, and
    the group's counts are within 1 of what is expected, where independent draws would spread by √m.
    """
    n_groups, n_values = given.shape
    shuffled = rng.permutation(parent.size)
    order = shuffled[np.argsort(parent[shuffled], kind="stable")]
    sizes = np.bincount(parent, minlength=n_groups)
    upto: Floats = given.cumsum(axis=1)
    upto /= upto[:, -1:]
    # Points j + u below m·F(b): as many as the integers below m·F(b) − u, from 0.
    upto *= sizes[:, None]
    upto -= rng.random((n_groups, 1))
    np.ceil(upto, out=upto)
    taken = np.diff(upto, axis=1, prepend=0.0).astype(np.int64)
    values = np.empty(parent.size, parent.dtype)
    every = np.arange(n_values, dtype=parent.dtype)
    values[order] = np.repeat(np.tile(every, n_groups), taken.reshape(-1))
    return values
