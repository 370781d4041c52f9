"""Whether X shows the label: which of two laws of X goes with the tables.

Pair tables leave the law of X open beyond its pairs, and a field has two ways to fill that in. In one law of
both, π(x, y) ∝ exp(φ(x)·(μ + yθ)), the two classes differ in pairs only, so that features which depend on the
label depend on each other through it. Apart, π(x) ∝ exp(φ(x)·μ) has no more structure than its pairs, and the
label follows. Both agree with every table.

**Rule.** If the features of a pair were independent within each class, the label would lend them the
dependence

    e_ab = P(1)·P(a|1)·P(b|1) + P(0)·P(a|0)·P(b|0) − P(a)·P(b);

what the table shows is o_ab = P(a,b) − P(a)·P(b). β = Σ(o·e/w)/Σ(e²/w) over the cells of all pair tables,
with w = P(a)·P(b), is the share of what the label would lend that is there. Where it is clearly less than
half (its standard error is 1/√(n·Σe²/w)), X does not know of the label, and one law of both would need
weights μ that hide the label's traces pair by pair: a law of X that no data have. Records that were laid out
by a design are like that: on nursery, all combinations of eight features, β is 0.005, and NLLH on validation
records 0.85 apart, 0.69 with one law. Elsewhere in the zoo β is 2 to 10, and one law was better by 0.004 on
Adult, Bank and fars, by 0.04 on flights.
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from agglearn.field.margins import marginal, pair_tables
from agglearn.field.problem import Problem

Floats = npt.NDArray[np.float64]

_SHOWN = 0.5  # β of a law half-way between
_ERRORS = 2.0  # standard errors that β must be below that
_MOST_CELLS = 4_000_000  # of a sparse table that is written out


def stands_apart(problem: Problem) -> bool:
    """Whether X shows nothing of the label, so that its law does not follow it."""
    shown, error = label_in_x(problem)
    return shown + _ERRORS * error < _SHOWN


def label_in_x(problem: Problem) -> tuple[float, float]:
    """β of the tables and its standard error; an infinite one where nothing is to be seen."""
    rate, lent, there = problem.rate, 0.0, 0.0
    for pair, t in pair_tables(problem.layout).items():
        large = prod(problem.layout.cards[f] for f in pair) > _MOST_CELLS
        if large and not problem.layout.cells[t].dense:
            continue  # hardly a pair of its values was seen, and e would have a number for each
        counts, sums = (np.maximum(marginal(problem.layout, v, t, pair), 0.0) for v in (problem.d, problem.c))
        total = float(counts.sum())
        if total <= 0:
            continue
        p, positive = counts / total, np.minimum(sums, counts) / total
        apart = np.multiply.outer(p.sum(axis=1), p.sum(axis=0))
        e = _product(positive) / rate + _product(p - positive) / (1 - rate) - apart
        weight = np.divide(1.0, apart, out=np.zeros_like(apart), where=apart > 0)
        lent += float((weight * e * e).sum())
        there += float((weight * e * (p - apart)).sum())
    return (there / lent, float(1 / np.sqrt(problem.rows * lent))) if lent > 0 else (0.0, float("inf"))


def _product(part: Floats) -> Floats:
    """The product of a table's margins."""
    product: Floats = np.multiply.outer(part.sum(axis=1), part.sum(axis=0))
    return product
