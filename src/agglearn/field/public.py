"""Public tables of X beside noisy ones: what is known of the records' features without looking at them.

A table of counts that everybody may see, of census margins or of all customers, says how often each value (or
pair) occurs, and nothing of the label. For n records behind the noisy tables it expects n·q, q its shares,
with variance

    w = n·q(1 − q)(1 + n/N) + (n/N)²·σ² + a·(n·q)²:

n records are a sample, and so were its N; σ² is noise of its own; a is how far the two populations are apart,
in squares of a share: what of the differences neither noise nor sampling explains, learnt from all cells of
the table. So a table of other people is trusted as little as it deserves.

The noisy tables say m of the same cells, the mean of all that hold them, with the variance V that noise left.
They move by K·(n·q − m), K = V/(V + w), each cell of a table by its share; and as noise on counts goes
along with that on sums, c moves by cov(c, d)/var(d) of it. Where a noisy table has just these cells, what is
left of its noise is reckoned anew. Exact tables (V = 0) stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout
from agglearn.field.margins import marginal
from agglearn.field.problem import Problem, TableNoise

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PublicTable:
    """Counts of X that are public.

    Attributes
    ----------
    scope
        Which features, in the order of the layout.
    counts
        An axis for each.
    variance
        Of the noise on each count, if any.
    """

    scope: tuple[int, ...]
    counts: Floats
    variance: float = 0.0


@dataclass(frozen=True)
class Trust:
    """How a public table was used.

    Attributes
    ----------
    scope
        Which features.
    rows
        Records that it counts.
    weight
        What it weighed beside the noisy tables: 0 not at all, 1 alone (the mean over records).
    apart
        √a: how far its population is from the records', as a share of a count.
    """

    scope: tuple[int, ...]
    rows: float
    weight: float
    apart: float


def with_public(problem: Problem, tables: Sequence[PublicTable]) -> tuple[Problem, tuple[Trust, ...]]:
    """The problem told what public tables say of X, and what each of them weighed."""
    trusts = []
    for table in tables:
        problem, trust = _told(problem, table)
        trusts.append(trust)
    return problem, tuple(trusts)


def _told(problem: Problem, public: PublicTable) -> tuple[Problem, Trust]:
    layout, n, total = problem.layout, problem.rows, float(public.counts.sum())
    holding = holders_of(layout, public.scope)
    if problem.noise is None:
        return problem, Trust(public.scope, total, 0.0, 0.0)
    on_counts = np.square(problem.noise.counts)
    summed = {t: layout.sizes[t] / public.counts.size for t in holding}  # cells for one of the public table's
    if any(on_counts[t] == 0 for t in holding):  # known exactly already
        return problem, Trust(public.scope, total, 0.0, 0.0)
    weights = {t: 1 / (summed[t] * on_counts[t]) for t in holding}
    left = 1 / sum(weights.values())
    mean = sum(weight * left * marginal(layout, problem.d, t, public.scope) for t, weight in weights.items())
    share = np.maximum(public.counts, 1.0) / total
    gap = n * public.counts / total - mean
    w = n * share * (1 - share) * (1 + n / total) + (n / total) ** 2 * public.variance
    size = np.square(n * share) + np.maximum(np.square(mean) - left, 0.0)  # by both: a value may be new here
    apart = max(float((gap**2 - left - w).sum() / size.sum()), 0.0)
    trusted = left / (left + w + apart * size)
    weight = float((share * trusted).sum() / share.sum())
    d, c = problem.d.copy(), problem.c.copy()
    for t in holding:
        axes = [layout.cards[f] if f in public.scope else 1 for f in layout.scopes[t]]
        move = (trusted * gap / summed[t]).reshape(axes)
        along = problem.noise.covariances[t] / on_counts[t]
        layout.table(d, t)[...] += move
        layout.table(c, t)[...] += along * move
    noise = problem.noise
    [*own] = (t for t in holding if layout.scopes[t] == public.scope)
    if len(holding) == len(own) == 1:
        noise = _lessened(noise, own[0], weight)
    return replace(problem, d=d, c=c, noise=noise), Trust(public.scope, total, weight, float(np.sqrt(apart)))


def holders_of(layout: Layout, scope: tuple[int, ...]) -> list[int]:
    """The tables that show the cells of these features."""
    return [t for t, own in enumerate(layout.scopes) if set(scope) <= set(own) and layout.cells[t].dense]


def _lessened(noise: TableNoise, t: int, trusted: float) -> TableNoise:
    """The noise left in a table once its counts are known by so much, in the mean over its cells."""
    counts, sums, shared = np.square(noise.counts), np.square(noise.sums), noise.covariances.copy()
    sums[t] -= trusted * shared[t] ** 2 / counts[t]
    counts[t] *= 1 - trusted
    shared[t] *= 1 - trusted
    return TableNoise(np.sqrt(counts), np.sqrt(np.maximum(sums, 0.0)), shared)
