"""Where to cut a column of numbers: bins of equal width, or that hold about as many records each."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from agglearn.schema.rules import Cut

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


def width_cuts(low: float, high: float, bins: int) -> tuple[Cut, ...]:
    """Cuts of equal width between two values."""
    edges = np.unique(np.linspace(low, high, bins + 1)[1:-1])
    return tuple(Cut(float(e)) for e in edges if low < e <= high)


def quantile_cuts(values: Floats, counts: Ints, bins: int) -> tuple[Cut, ...]:
    """Cuts that give every bin about as many records.

    A value that alone holds more than its share gets a bin of its own, and the other bins divide what
    is left on either side of it.
    """
    if len(values) <= bins:
        return tuple(Cut(float(v)) for v in values[1:])
    heavy = counts * bins > counts.sum()
    segments = _between(heavy)
    weights = [int(counts[a:b].sum()) for a, b in segments]
    shares = _shares(weights, [b - a for a, b in segments], bins - int(heavy.sum()))
    starts = np.zeros(len(values), bool)  # which values begin a bin
    starts[heavy] = True
    for (a, b), share in zip(segments, shares, strict=True):
        starts[[a, *(a + j for j in even_starts(counts[a:b], share))]] = True
    return tuple(
        Cut(float(values[i - 1]), after=True) if heavy[i - 1] else Cut(float(values[i]))
        for i in np.flatnonzero(starts)
        if i > 0
    )


def _between(heavy: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Runs of values that are not heavy, as index ranges."""
    padded = np.concatenate([[True], heavy, [True]])
    starts = np.flatnonzero(padded[:-1] & ~padded[1:])
    stops = np.flatnonzero(~padded[:-1] & padded[1:])
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def _shares(weights: list[int], sizes: list[int], bins: int) -> list[int]:
    """Bins for each segment in proportion to its records: at least one, at most one a value."""
    shares = [1] * len(weights)
    for _ in range(bins - len(weights)):
        divisible = [i for i, size in enumerate(sizes) if shares[i] < size]
        neediest = max(divisible, key=lambda i: weights[i] / shares[i])
        shares[neediest] += 1
    return shares


def even_starts(counts: Ints, bins: int) -> list[int]:
    """Where each bin after the first begins, so that all hold about as many records."""
    edges = np.concatenate([[0], np.cumsum(counts)])  # records before each value
    starts: list[int] = []
    at = 0
    for left in range(bins, 1, -1):
        target = edges[at] + (edges[-1] - edges[at]) / left
        stop = len(edges) - left + 1  # every later bin needs a value too
        at += 1 + int(np.argmin(np.abs(edges[at + 1 : stop] - target)))
        starts.append(at)
    return starts
