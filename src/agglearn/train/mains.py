"""Main effects beside the tables: a weight of its own for each value of each feature.

In a field of pair tables the effect of one feature is spread over all tables that hold it, and shares their
penalty. With the single features' tables beside them, main effects have a penalty of their own and every
other table is left with its interaction. The singles are margins of the tables at hand, so nothing new is
asked of the data, and a field with them has the same sufficient statistics as one without.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout
from agglearn.field.margins import holders, marginal
from agglearn.field.problem import Problem, TableNoise
from agglearn.tables.cells import DenseCells

Floats = npt.NDArray[np.float64]


def with_mains(problem: Problem) -> Problem:
    """The problem with a table of each single feature that has none, after its own tables.

    A margin is the mean over the tables that show it, each weighing by the inverse of the cells summed for
    one value: the best weights if all cells carry the same noise, and no matter if the tables agree.
    """
    layout = problem.layout
    own = {f for t in range(layout.n_tables) for f in told_apart(layout, t) if is_main(layout, t)}
    shown = {f: _shown_by(problem, f) for f, card in enumerate(layout.cards) if card > 1 and f not in own}
    added = [f for f, tables in shown.items() if tables]
    if not added:
        return problem
    shares = {f: _shares(layout, f, shown[f]) for f in added}
    d, c = (
        np.concatenate([vector, *(_margin(layout, vector, f, shares[f]) for f in added)])
        for vector in (problem.d, problem.c)
    )
    noise = problem.noise
    if noise is not None:
        counts, sums, shared = (
            np.append(sigma, [_sigma(layout, sigma, f, shares[f]) for f in added])
            for sigma in (noise.counts, noise.sums, np.sqrt(noise.covariances))
        )
        noise = TableNoise(counts, sums, np.square(shared))
    new = Layout(
        layout.cards,
        (*layout.scopes, *((f,) for f in added)),
        (*layout.cells, *(DenseCells((layout.cards[f],)) for f in added)),
    )
    free = problem.free
    if free is not None:
        free = np.append(free, np.ones(new.n_cells - free.size, bool))
    records = None if problem.records is None else problem.records.over(new)
    return replace(problem, layout=new, d=d, c=c, free=free, noise=noise, records=records)


def wants_mains(problem: Problem, by_table: bool) -> bool:
    """Whether main effects are to stand beside the tables.

    So they do where each table has a penalty of its own, and where the unseen cells of a table share one
    weight, which cannot tell of one value.
    """
    return by_table or bool(problem.layout.tied.size)


def told_apart(layout: Layout, t: int) -> list[int]:
    """The features of a table that have more than one value: the others are no matter."""
    return [f for f in layout.scopes[t] if layout.cards[f] > 1]


def is_main(layout: Layout, t: int) -> bool:
    """Whether a table tells of one feature alone."""
    cells = layout.cells[t]
    return (cells.apart or cells.level > 0) and len(told_apart(layout, t)) <= 1


def _shown_by(problem: Problem, f: int) -> list[int]:
    """The tables that show a feature's margin best.

    Those that lack cells, or under noise list them, do not show all of it: they are for want of others.
    """
    held = holders(problem.layout, f)
    whole = [t for t in held if problem.measured(t).all()] or held
    if problem.noise is None:
        return whole
    return [t for t in whole if problem.layout.cells[t].dense] or whole


def _shares(layout: Layout, f: int, tables: list[int]) -> dict[int, float]:
    weights = np.array([layout.cards[f] / layout.sizes[t] for t in tables])
    return dict(zip(tables, (weights / weights.sum()).tolist(), strict=True))


def _margin(layout: Layout, vector: Floats, f: int, shares: dict[int, float]) -> Floats:
    return np.asarray(sum(share * marginal(layout, vector, t, (f,)) for t, share in shares.items()))


def _sigma(layout: Layout, sigma: Floats, f: int, shares: dict[int, float]) -> float:
    """Standard deviation of a weighted mean of independent sums."""
    each = [share * sigma[t] * np.sqrt(layout.sizes[t] / layout.cards[f]) for t, share in shares.items()]
    return float(np.sqrt(np.square(each).sum()))
