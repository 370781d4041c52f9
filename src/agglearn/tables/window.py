"""The sum over a window of periods, each record counting less the older it is.

With weights w_i of n_i records each, a count Σ w_i·d_i has the variance Σ w_i²·d_i. All weights are scaled by
s = Σ w_i·n_i / Σ w_i²·n_i, so that the records of the sum are the **effective** ones,

    n = s·Σ w_i·n_i = (Σ w_i·n_i)² / Σ w_i²·n_i,

and a count says as much of its cell, on the whole, as if so many records had been counted once each: what
takes counts for counts (penalties, standard errors) stays right. A cell that was filled by a few of the days
may differ from that; its own variance is carried beside the count.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from agglearn.errors import InputError
from agglearn.runtime.speech import option
from agglearn.tables.data import AggregatedData, merge
from agglearn.tables.periods import Period


def window(
    parts: Sequence[AggregatedData], *, last: int | None = None, half_life: float | None = None
) -> AggregatedData:
    """Add up the parts of the last periods, or of all with weights that fade.

    Parameters
    ----------
    parts
        Aggregations of disjoint records, each of a period (a day, as a rule).
    last
        Only periods among the last so many (days), counted back from the newest there is.
    half_life
        A record that is older by so many periods counts half as much.

    Examples
    --------
    >>> import agglearn
    >>> days = [agglearn.aggregate({"colour": ["red", "blue"] * 50, "click": [0, 1] * 40 + [1, d] * 10},
    ...                            "click", period=f"2026-03-{d + 1:02}") for d in (0, 1)]
    >>> agglearn.window(days, last=1).rows
    100
    >>> round(agglearn.window(days, half_life=1).rows)
    180
    """
    if last is None and half_life is None:
        raise InputError(f"a window needs {option('last')} periods, or {option('half_life')}")
    if last is not None and last < 1:
        raise InputError(f"{option('last')} {last} must be at least 1")
    if half_life is not None and not (isfinite(half_life) and half_life > 0):
        raise InputError(f"{option('half_life')} {half_life:g} must be above 0")
    if not parts:
        raise InputError("there are no tables to add up")
    dated = sorted(
        ((period_of(part), part) for part in parts), key=lambda pair: (pair[0].last, pair[0].first)
    )
    whole = dated[0][0]
    for period, _ in dated:
        whole = whole | period
    if last is not None:
        dated = [(period, part) for period, part in dated if _within(period, whole.last - last, part)]
    if half_life is None:
        return merge(part for _, part in dated)
    weights = np.exp2([(period.middle - whole.last) / half_life for period, _ in dated])
    rows = np.array([part.rows for _, part in dated])
    if not np.square(weights) @ rows > 0:
        raise InputError(
            f"{option('half_life')} {half_life:g} leaves no record any weight: give a longer one"
        )
    weights *= (weights @ rows) / (np.square(weights) @ rows)
    return merge(part * float(w) for w, (_, part) in zip(weights, dated, strict=True))


def period_of(data: AggregatedData) -> Period:
    """When the records of some tables are from."""
    periods = []
    for part in data.ledger:
        if part.when is None:
            raise InputError(
                f"part {part.title} does not say when it is from: aggregate it with {option('period')}, or "
                "give it a name with a day (2026-03-01) or ending in a number"
            )
        periods.append(part.when)
    whole = periods[0]
    for period in periods[1:]:
        whole = whole | period
    return whole


def _within(period: Period, before: int, data: AggregatedData) -> bool:
    """Whether a period is after a day; one that is partly so cannot be taken apart."""
    if period.first <= before < period.last:
        title = data.ledger[0].title if len(data.ledger) == 1 else f"a sum of {len(data.ledger)} parts"
        raise InputError(f"{title} is of {period}, which the window cuts in two: give its parts one by one")
    return period.first > before
