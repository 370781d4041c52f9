"""Tree-augmented Naive Bayes: a tree of pairs in each class (Friedman, Geiger and Goldszmidt 1997)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.field.layout import Layout
from agglearn.field.margins import entries, is_sparse, marginal, mutual_information, pair_tables
from agglearn.field.problem import Problem
from agglearn.field.tree import rooted, spanning_tree
from agglearn.judge.baselines import LogOddsModel, possible, single_counts
from agglearn.tables.cells import Cells, DenseCells, SparseCells, ranks

Floats = npt.NDArray[np.float64]

_PRECISION = 1e-12  # of counts


def tree_augmented_nb(problem: Problem, smoothing: float) -> LogOddsModel:
    """Tree-augmented Naive Bayes from pair tables.

    The tree has the greatest conditional mutual information I(X_i; X_j | Y); in each class the law of
    the features is P(x_root|y)·Π P(x_child|x_parent, y) along it.

    Parameters
    ----------
    problem
        The tables.
    smoothing
        Pseudo-records, above 0, by which P(x_f|y) is drawn toward P(x_f), and each
        P(x_child|x_parent, y) toward P(x_child|y).
    """
    if not (np.isfinite(smoothing) and smoothing > 0):
        raise InputError(f"smoothing {smoothing} must be above 0")
    layout = problem.layout
    classes = (problem.c, problem.d - problem.c)
    sizes = (problem.positives, problem.rows - problem.positives)
    singles = [_class_laws(problem, f, smoothing) for f in range(layout.n_features)]
    tables = pair_tables(layout)
    scopes: list[tuple[int, ...]] = []
    weights: list[Floats] = []
    kinds: list[Cells] = []
    for parent, child in _tree(problem):
        if parent is None:
            scopes.append((child,))
            kinds.append(DenseCells((layout.cards[child],)))
            weights.append(np.log(singles[child][0]) - np.log(singles[child][1]))
            continue
        pair = (min(parent, child), max(parent, child))
        if is_sparse(layout, tables[pair]):
            for scope, cells, own in _sparse_edge(problem, tables[pair], (parent, child), singles, smoothing):
                scopes.append(scope)
                weights.append(own)
                kinds.append(cells)
            continue
        logs = []
        for vector, size, law in zip(classes, sizes, singles[child], strict=True):
            counts = np.maximum(marginal(layout, vector, tables[pair], pair), 0.0)
            counts = counts if parent < child else counts.T
            counts *= size / max(counts.sum(), _PRECISION)
            joint = counts + smoothing * law
            logs.append(np.log(joint) - np.log(joint.sum(axis=1, keepdims=True)))
        ratio = logs[0] - logs[1]
        scopes.append(pair)
        kinds.append(DenseCells((layout.cards[pair[0]], layout.cards[pair[1]])))
        weights.append((ratio if parent < child else ratio.T).reshape(-1))
    built = Layout(layout.cards, tuple(scopes), tuple(kinds))
    return LogOddsModel(built, np.concatenate(weights), problem.base_log_odds)


def _class_laws(problem: Problem, f: int, smoothing: float) -> tuple[Floats, Floats]:
    """P(x_f|y) among positives and among negatives, each drawn toward P(x_f)."""
    d, c = possible(single_counts(problem, problem.d, f), single_counts(problem, problem.c, f))
    overall = (d + smoothing / d.size) / (d.sum() + smoothing)
    positive, negative = ((part + smoothing * overall) / (part.sum() + smoothing) for part in (c, d - c))
    return positive, negative


def _tree(problem: Problem) -> Sequence[tuple[int | None, int]]:
    """(parent, child) along the spanning forest of greatest I(X_i; X_j | Y); a root has no parent."""
    layout = problem.layout
    rate = problem.positives / problem.rows
    among_positives = mutual_information(layout, problem.c)
    among_negatives = mutual_information(layout, problem.d - problem.c)
    weights = {
        pair: rate * among_positives[pair] + (1 - rate) * among_negatives[pair] for pair in among_positives
    }
    edges = rooted(layout.n_features, spanning_tree(weights))
    children = {child for _, child in edges}
    roots = [f for f in range(layout.n_features) if f not in children]
    return [*((None, root) for root in roots), *edges]


def _sparse_edge(
    problem: Problem,
    t: int,
    edge: tuple[int, int],
    singles: Sequence[tuple[Floats, Floats]],
    smoothing: float,
) -> Iterator[tuple[tuple[int, ...], Cells, Floats]]:
    """What a sparse table tells of a child given its parent: scopes with their cells and log-ratios.

    Where none was seen, log P(b|a, y) = log(s·P(b|y)) − log(n_a + s) is a function of b and one of a, for
    each class; the cells that were seen add what they differ by.
    """
    layout, (parent, child) = problem.layout, edge
    classes = (problem.c, problem.d - problem.c)
    sizes = (problem.positives, problem.rows - problem.positives)
    of_parent, of_cells = np.zeros(layout.cards[parent]), np.zeros(1)
    for sign, vector, size, law in zip((1, -1), classes, sizes, singles[child], strict=True):
        seen, _ = entries(layout, vector, t, edge)
        counts = np.maximum(seen.values, 0.0)
        counts *= size / max(counts.sum(), _PRECISION)
        n = np.bincount(seen.first, counts, minlength=of_parent.size)
        of_parent -= sign * np.log(n + smoothing)
        of_cells = of_cells + sign * np.log1p(counts / (smoothing * law[seen.second]))
    of_child = np.log(singles[child][0]) - np.log(singles[child][1])
    for f, own in ((parent, of_parent), (child, of_child)):
        yield (f,), DenseCells(own.shape), own
    cards = (layout.cards[min(edge)], layout.cards[max(edge)])
    codes = np.stack([seen.first, seen.second] if parent < child else [seen.second, seen.first])
    places = ranks(cards, codes)
    order = np.argsort(places, kind="stable")
    weights = np.append(of_cells[order], 0.0)
    yield (min(edge), max(edge)), SparseCells(cards, places[order]), weights
