"""One edge of a tree over features, where the table lists the cells that were seen.

See :mod:`.start` for the mathematics. Nothing here is as long as there could be cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.score import Codes
from agglearn.field.margins import Entries

Floats = npt.NDArray[np.float64]

RAKING_STEPS = 30  # margins are within the tolerance after a few, unless features all but determine another
RAKING_TOLERANCE = 1e-9  # relative, of a margin: far below one record in any table


@dataclass(frozen=True, eq=False)
class Edge:
    """The law of a child given its parent, from cells seen.

    Attributes
    ----------
    seen
        The cells, the parent first.
    weights, rest
        What log(p_ab/(p_a·p_b)) is in each of them, and in all others, less the two functions that follow.
    of_parent, of_child
        The functions of either that raking asks for.
    given
        Of each cell seen, the probability to draw it as such, given its parent.
    background
        The law of the child with which all the rest is drawn.
    """

    seen: Entries
    weights: Floats
    rest: float
    of_parent: Floats
    of_child: Floats
    given: Floats
    background: Floats

    @classmethod
    def raked(cls, seen: Entries, parent: Floats, child: Floats, rows: float, smoothing: float) -> Edge:
        """The pair with pseudo-records spread as the product of its singles, raked to these."""
        counts = np.maximum(seen.values, 0.0)
        total = float(counts.sum())
        counts *= rows / total if total > 0 else 0.0
        n = rows + smoothing
        r, c = np.ones(parent.size), np.ones(child.size)
        for _ in range(RAKING_STEPS):
            by_child = np.bincount(seen.second, counts * r[seen.first], minlength=child.size)
            columns = c * (by_child + smoothing * child * float((r * parent).sum())) / n
            gap = child / columns
            c *= gap
            by_parent = np.bincount(seen.first, counts * c[seen.second], minlength=parent.size)
            r = parent / ((by_parent + smoothing * parent * float((c * child).sum())) / n)
            if np.abs(gap - 1).max() < RAKING_TOLERANCE:
                break
        p = parent[seen.first]
        background = child * c
        return cls(
            seen=seen,
            weights=np.log((counts / (p * child[seen.second]) + smoothing) / n),
            rest=float(np.log(smoothing / n)),
            of_parent=np.log(r),
            of_child=np.log(c),
            given=counts * r[seen.first] * c[seen.second] / (n * p),
            background=background / background.sum(),
        )

    def draw(self, rng: np.random.Generator, parent: Codes) -> Codes:
        """Draw a value for each chain given its parent's, by systematic sampling within each group.

        As :func:`.start._draw` does; the chains that draw none of the cells seen take the background's law.
        """
        n_groups = self.seen.shape[0]
        shuffled = rng.permutation(parent.size)
        order = shuffled[np.argsort(parent[shuffled], kind="stable")]
        sizes = np.bincount(parent, minlength=n_groups)
        # Of each group the cells seen, then one that stands for the background.
        group = np.concatenate([self.seen.first, np.arange(n_groups)])
        within = np.argsort(group, kind="stable")
        group = group[within]
        share = np.append(self.given, np.zeros(n_groups))[within]
        value = np.append(self.seen.second, np.full(n_groups, -1))[within]
        last = np.append(np.flatnonzero(np.diff(group)), group.size - 1)
        upto = np.cumsum(share)
        upto -= np.append(0.0, upto[last[:-1]])[group]
        points = np.ceil(upto * sizes[group] - rng.random(n_groups)[group])
        points[last] = sizes
        points = np.clip(points, 0, sizes[group])
        taken = np.diff(points, prepend=0.0)
        first = np.append(0, last[:-1] + 1)
        taken[first] = points[first]
        drawn = np.repeat(value, taken.astype(np.int64))
        left = np.flatnonzero(drawn < 0)
        at = (rng.permutation(left.size) + rng.random()) / max(left.size, 1)
        cumulated = np.cumsum(self.background)
        found = np.searchsorted(cumulated, at * cumulated[-1], side="right")
        drawn[left] = np.minimum(found, self.background.size - 1)
        values = np.empty(parent.size, parent.dtype)
        values[order] = drawn
        return values
