"""Bins and vocabularies that are paid for: learnt from noisy counts, never from the records themselves.

**Bins.** A public range is cut into up to 2¹² leaves of equal width, and the records in each of the 2, 4, 8,
… intervals above them are counted with noise: a tree, of which a record moves one number a level. The levels
are made to agree by least squares (Hay, Rastogi, Miklau and Suciu, 2010), and bins are cut where the noisy
distribution function passes their shares, a value that alone holds more having one of its own: some √levels
numbers' noise on any rank, where leaves alone would have that of half of them.

**Vocabularies.** OpenDP counts each value with noise and names those above a threshold, so high that a value
which only one record (or person) has comes to light with a probability of at most a share of δ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.privacy.mechanism import add_noise, load_opendp
from agglearn.privacy.public import ToLearn
from agglearn.records.binning import quantile_cuts
from agglearn.records.learn import ColumnNote
from agglearn.records.options import Coding
from agglearn.records.sources import Source
from agglearn.runtime.progress import meter
from agglearn.schema.columns import as_numbers, as_text, distinct
from agglearn.schema.features import Binned, Categorical, Feature
from agglearn.tables.promise import Spending

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_MOST_LEVELS = 12


def levels(column: ToLearn) -> int:
    """How many levels the tree of a numeric column has: enough for each whole number, or the most."""
    assert column.bounds is not None
    low, high = column.bounds
    if not column.integer:
        return _MOST_LEVELS
    return int(min(_MOST_LEVELS, max(1, np.ceil(np.log2(high - low + 1)))))


def moved(column: ToLearn) -> int:
    """How many of the numbers that a column is learnt from one record moves."""
    return 1 if column.bounds is None else levels(column)


@dataclass
class Leaves:
    """Records in each leaf of a numeric column."""

    column: ToLearn

    def __post_init__(self) -> None:
        assert self.column.bounds is not None
        n = 1 << levels(self.column)
        low, high = self.column.bounds
        width = max(1.0, (high - low + 1) / n) if self.column.integer else (high - low) / n
        self.starts: Floats = np.asarray(low + width * np.arange(n), np.float64)
        self.counts: Ints = np.zeros(n, np.int64)

    def add(self, values: Any) -> None:
        numbers, bad = as_numbers(values)
        leaf = np.searchsorted(self.starts, numbers[~bad & ~np.isnan(numbers)], side="right") - 1
        self.counts += np.bincount(np.maximum(leaf, 0), minlength=len(self.counts))

    def tree(self) -> list[Ints]:
        """Counts by level, from two halves down to the leaves."""
        found = [self.counts]
        while len(found[0]) > 2:
            found.insert(0, found[0].reshape(-1, 2).sum(axis=1))
        return found


class Values:
    """How many records have each value of a categorical column."""

    def __init__(self, column: ToLearn) -> None:
        self.column = column
        self.counts: dict[str, int] = {}

    def add(self, values: Any) -> None:
        found, index = distinct(values)
        numbers = np.bincount(index[index >= 0], minlength=len(found)).tolist()
        for text, n in zip(as_text(found).to_pylist(), numbers, strict=True):
            if n and text is not None:
                self.counts[text] = self.counts.get(text, 0) + n


def learn_columns(
    source: Source,
    columns: Sequence[ToLearn],
    coding: Coding,
    spending: Spending,
    bins: Callable[[float], int],
    *,
    show_progress: bool = False,
) -> dict[str, tuple[Feature, ColumnNote]]:
    """What columns are coded by, learnt with the noise that was reckoned for it.

    ``bins`` says how many a column of so many records has, where nobody says; it is asked for noisy numbers.
    """
    seen = {c.name: Values(c) if c.bounds is None else Leaves(c) for c in columns}
    with meter("reading columns", source.rows, show=show_progress) as advance:
        for batch in source.batches(list(seen)):
            for name, counts in seen.items():
                counts.add(batch.column(name))
            advance(batch.num_rows)
    n_vocabularies = sum(isinstance(counts, Values) for counts in seen.values())
    delta = spending.delta / max(n_vocabularies, 1)
    learnt = {}
    for name, counts in seen.items():
        if isinstance(counts, Leaves):
            feature: Feature = _binned(counts, coding, spending, bins)
            why = "bins by private quantiles within its bounds"
        else:
            feature = _vocabulary(counts, coding, spending, delta)
            why = "values by private selection"
        note = ColumnNote(name, feature.kind, feature.n_modalities, 0, f"{why}, paid for")
        learnt[name] = (feature, note)
    return learnt


def _binned(leaves: Leaves, coding: Coding, spending: Spending, bins: Callable[[float], int]) -> Binned:
    column = leaves.column
    assert column.bounds is not None
    low, high = column.bounds
    tree = leaves.tree()
    noisy = add_noise(np.concatenate(tree), spending.mechanism, spending.scale)
    ends = np.cumsum([len(level) for level in tree])[:-1]
    counts = consistent([level.astype(np.float64) for level in np.split(noisy, ends)])
    wanted = coding.bins or bins(float(counts.sum()))
    cuts = quantile_cuts(leaves.starts, _increasing(counts), wanted)
    return Binned(column.name, True, cuts, float(low), float(high), column.integer)


def consistent(tree: Sequence[Floats]) -> Floats:
    """Leaves that agree with noisy counts of all levels, by least squares."""
    upward = [tree[-1]]  # the best estimate of each node by what is below it
    for level in reversed(tree[:-1]):
        height = len(upward) + 1
        below = upward[0].reshape(-1, 2).sum(axis=1)
        share = (2.0**height - 2.0 ** (height - 1)) / (2.0**height - 1)
        upward.insert(0, share * level + (1 - share) * below)
    found = upward[0]
    for level in upward[1:]:
        gap = (found - level.reshape(-1, 2).sum(axis=1)) / 2
        found = level + np.repeat(gap, 2)
    return found


def _increasing(counts: Floats) -> Ints:
    """Counts of a distribution function that never falls, nearest to the noisy one; at least one record."""
    from sklearn.isotonic import isotonic_regression

    rising = np.maximum(isotonic_regression(np.cumsum(counts)), 0.0)
    found: Ints = np.diff(np.rint(rising), prepend=0.0).astype(np.int64)
    if not found.any():
        found[:] = 1
    return found


def _vocabulary(values: Values, coding: Coding, spending: Spending, delta: float) -> Categorical:
    named = selected(values.counts, spending.mechanism, spending.scale, spending.by, delta)
    kept = sorted(named, key=lambda text: (-named[text], text))[: coding.max_modalities]
    if not kept:
        raise InputError(
            f"column {values.column.name!r}: no value is common enough to be named within the budget; give "
            "its values in a public schema, leave it out, or spend more"
        )
    return Categorical(values.column.name, True, tuple(sorted(kept)), "string", True)


def selected(counts: dict[str, int], mechanism: str, scale: float, by: int, delta: float) -> dict[str, int]:
    """Values that are common enough to be named, with noisy counts: by OpenDP."""
    load_opendp()
    from opendp.domains import atom_domain, map_domain
    from opendp.measurements import make_gaussian_threshold, make_laplace_threshold
    from opendp.metrics import absolute_distance, l01inf_distance, l02inf_distance

    domain = map_domain(atom_domain(T="String"), atom_domain(T="i64"))
    laplace = mechanism == "laplace"
    make = make_laplace_threshold if laplace else make_gaussian_threshold
    metric = (l01inf_distance if laplace else l02inf_distance)(absolute_distance(T="i64"))
    # Someone with several records has as many values, or one as many times.
    most = (by, by, by)
    threshold = by + 1
    measure: Any = make
    while measure(domain, metric, scale, threshold).map(most)[1] > delta:
        threshold += max(1, int(scale / 8))
    found: dict[str, int] = measure(domain, metric, scale, threshold)(counts)
    return found
