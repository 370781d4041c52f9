"""Codes for a column of very many values: by how often each occurs and how often it is positive.

They are learnt on records held out for that, which then are in no table: a value's own label must not
stand behind its code.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.records.binning import Floats, Ints, even_starts
from agglearn.schema.columns import as_text, distinct
from agglearn.schema.features import Encoded
from agglearn.schema.values import of_one_kind


class Rates:
    """Counts and positives of each value of a column, on the records held out for encoding it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._counts: dict[str, list[int]] = {}
        self._missing = False

    def add(self, column: Any, y: npt.NDArray[np.uint8]) -> None:
        """Count the values of a batch."""
        values, index = distinct(column)
        self._missing |= bool((index < 0).any())
        known = index >= 0
        counts = np.bincount(index[known], minlength=len(values)).tolist()
        positives = np.bincount(index[known], weights=y[known], minlength=len(values)).tolist()
        for text, n, p in zip(as_text(values).to_pylist(), counts, positives, strict=True):
            if n:
                entry = self._counts.setdefault(text, [0, 0])
                entry[0] += n
                entry[1] += int(p)

    def merge(self, other: Rates) -> None:
        """Add what was counted of other records."""
        self._missing |= other._missing
        for text, (n, p) in other._counts.items():
            entry = self._counts.setdefault(text, [0, 0])
            entry[0] += n
            entry[1] += p

    def encoding(self, modalities: int) -> tuple[Encoded, str]:
        """The feature that the column becomes, and what it was learnt on."""
        if not self._counts:
            raise InputError(f"column {self.name!r} has no value in the records held out to encode it")
        found = of_one_kind(list(self._counts))
        summed: dict[str, Ints] = {}
        for text, numbers in zip(found[0] if found else self._counts, self._counts.values(), strict=True):
            summed[text] = summed.get(text, np.zeros(2, np.int64)) + np.array(numbers, np.int64)
        values = sorted(summed)
        counts = np.array([summed[v] for v in values], np.int64)
        feature = learn_encoding(self.name, values, counts[:, 0], counts[:, 1], self._missing, modalities)
        return feature, f"{len(values):,} values by count and rate on {counts[:, 0].sum():,} held-out records"


def learn_encoding(
    name: str,
    values: Sequence[str],
    counts: Ints,
    positives: Ints,
    missing: bool,
    modalities: int,
) -> Encoded:
    """Codes by (count, rate) bins: about ``modalities`` of them, learnt on held-out records.

    Values are cut by how often they occur, each group holding about as many records, and every group
    by its smoothed rate. The first code is left to values the held-out records do not have.
    """
    base = positives.sum() / max(counts.sum(), 1)
    rate = (positives + 10 * base) / (counts + 10)
    by_count = max(1, round(np.sqrt(modalities) / 2))
    by_rate = max(1, (modalities - 1) // by_count)
    groups = ["never seen"]
    codes = np.zeros(len(values), np.int64)
    for a, b, members in _weight_groups(counts.astype(np.float64), counts, by_count):
        for low, high, inner in _weight_groups(rate[members], counts[members], by_rate):
            codes[members[inner]] = len(groups)
            groups.append(f"count {a:g}–{b:g}, rate {low:.2%}–{high:.2%} ({len(groups)})")
    return Encoded(
        name=name,
        groups=tuple(groups),
        values=tuple(values),
        codes=tuple(codes.tolist()),
        missing=missing,
    )


def _weight_groups(key: Floats, weights: Ints, bins: int) -> list[tuple[float, float, Ints]]:
    """Split items by a key into groups of about equal weight: (least key, greatest, members)."""
    distinct, inverse = np.unique(key, return_inverse=True)
    totals = np.bincount(inverse, weights=weights).astype(np.int64)
    starts = [0, *even_starts(totals, min(bins, len(distinct))), len(distinct)]
    groups = []
    for a, b in pairwise(starts):
        members = np.flatnonzero((inverse >= a) & (inverse < b))
        groups.append((float(distinct[a]), float(distinct[b - 1]), members))
    return groups
