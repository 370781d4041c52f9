"""Which triples of features to count beside all pairs: those whose law pairs cannot tell.

A field that knows pairs fills in the rest with as little structure as they allow. Where a third feature
follows from two others (the weekday from month and day, the arrival from departure and destination) that is
far from the data, and predictions go too far: on flights NLLH on validation records was 0.131 with all pairs,
0.184 with eleven triples beside them; on fars 0.563 and 0.573.

**Rule.** The distance of a triple's law from the closest one that its pairs allow is

    G = Σ_abc p_abc·log(p_abc/q_abc),   q by iterative proportional fitting to the three pairs.

From m records it comes out too large by f/2m in the mean, f its degrees of freedom, and a table counted from
n records tells f/2n less than it seems to. A triple is worth its table where what is left, G − f/2m − f/2n,
exceeds :data:`_WORTH` by two standard errors (2mG is χ² with f degrees of freedom: each is √(f/2)/m), and the
best of them are counted, as many as there are features. Adult has none, Bank eight, and none of the zoo lost
more than 0.001.

All this is asked of a sample of the records (:class:`Sample`). Since I(A;B|C) ≥ G for any of the three
features as C, entropies tell which triples need no fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from math import prod

import numpy as np
import numpy.typing as npt

from agglearn.runtime.compiled import njit
from agglearn.runtime.random import scrambled
from agglearn.runtime.threads import in_threads, thread_count
from agglearn.schema.features import Codes
from agglearn.schema.schema import Schema
from agglearn.tables.table import Scope

Floats = npt.NDArray[np.float64]
Triple = tuple[int, int, int]

_WORTH = 0.02  # nats a record; 0.05 lost 0.003 on fars, 0.01 gained nothing
_KINDS, _RECORDS = 1 << 18, 20_000  # that are kept, and that are asked
_SURE = 2.0  # standard errors
_MOST_CELLS = 1 << 18  # of a triple: beyond, a sample says nothing
_FITS = 10  # triples fitted at most, for each feature
_CYCLES, _LOOK = 30, 5  # of proportional fitting, and how often to look whether it can still be worth it


class Sample:
    """Some of the records, whatever order and batches they come in.

    What is kept are kinds of records, combinations of values, each with how many there are. Where kinds are
    more than can be kept, those with the lowest keys are, and a key is a random number that the values make.
    """

    def __init__(self, kinds: int = _KINDS) -> None:
        self._most = kinds
        self._keys: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._codes: Codes | None = None
        self._waiting: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], Codes]] = []

    def add(self, codes: Codes) -> None:
        """Offer records, a column each."""
        keys = np.empty(codes.shape[1], np.uint64)
        _combined(codes, keys)
        keys = scrambled(keys)
        if len(self._keys) == self._most:
            taken = keys <= self._keys[-1]
            keys, codes = keys[taken], codes[:, taken]
        self._waiting.append((keys, np.ones(len(keys), np.int64), codes))
        # Sorted in when there are as many as before: each record is then sorted a few times in all.
        if sum(len(waiting[0]) for waiting in self._waiting) > max(len(self._keys), _RECORDS):
            self._sort_in()

    def merge(self, other: Sample) -> None:
        """Add what another sample holds of other records."""
        other._sort_in()
        if other._codes is not None:
            self._waiting.append((other._keys, other._counts, other._codes))
            self._sort_in()

    def _sort_in(self) -> None:
        if not self._waiting:
            return
        if self._codes is not None:
            self._waiting.append((self._keys, self._counts, self._codes))
        keys, counts, codes = zip(*self._waiting, strict=True)
        self._waiting = []
        kinds, first, kind = np.unique(np.concatenate(keys), return_index=True, return_inverse=True)
        total = np.zeros(len(kinds), np.int64)
        np.add.at(total, kind.reshape(-1), np.concatenate(counts))
        self._keys, self._counts = kinds[: self._most], total[: self._most]
        self._codes = np.concatenate(codes, axis=1)[:, first[: self._most]]

    def records(self, most: int = _RECORDS) -> Codes:
        """At most so many records, a column each: every so many of all, in the order of their keys."""
        self._sort_in()
        if self._codes is None:
            return np.zeros((0, 0), np.uint16)
        upto = np.cumsum(self._counts)
        drawn = min(most, int(upto[-1]))
        places = (2 * np.arange(drawn) + 1) * int(upto[-1]) // (2 * drawn)
        return np.ascontiguousarray(self._codes[:, np.searchsorted(upto, places, side="right")])


def telling_triples(sample: Sample, cards: Sequence[int], rows: float, threads: int = 2) -> list[Triple]:
    """The triples worth counting beside all pairs, in the order of the features.

    Parameters
    ----------
    sample
        Some of the records; unknown values have the feature's cardinality for a code.
    cards
        Modalities of each feature.
    rows
        Records that tables are counted from.
    threads
        Threads to use; they change the time, never the answer.
    """
    codes = sample.records()
    features = [f for f, card in enumerate(cards) if card > 1]
    shape = tuple(card + 1 for card in cards)  # with the unknown ones
    triples = [t for t in combinations(features, 3) if prod(shape[f] for f in t) <= _MOST_CELLS]
    if not triples or not codes.size:
        return []
    information = _Information(codes, shape, rows)
    bounds = information.bounds(triples, threads)
    order = np.argsort(-bounds, kind="stable")
    hopeful = [triples[k] for k in order[: _FITS * len(features)] if bounds[k] > _WORTH]
    worth = information.fitted(hopeful, threads)
    best = np.argsort(-worth, kind="stable")[: len(features)]
    return sorted(hopeful[k] for k in best if worth[k] > _WORTH)


def telling_scopes(sample: Sample, schema: Schema, rows: float, threads: int | None = None) -> list[Scope]:
    """The triples worth counting beside all pairs, by name."""
    found = telling_triples(sample, schema.cards, rows, thread_count(threads))
    return [tuple(schema.names[f] for f in triple) for triple in found]


@dataclass(frozen=True)
class _Information:
    """What a sample tells of triples of its features."""

    codes: Codes
    shape: tuple[int, ...]
    rows: float

    @property
    def _dear(self) -> float:
        """What a degree of freedom takes from a triple, in nats a record."""
        return 0.5 / float(self.codes.shape[1]) + 0.5 / self.rows

    def bounds(self, triples: list[Triple], workers: int) -> Floats:
        """More than each can be worth."""
        d, shape = len(self.shape), np.array(self.shape)
        cells = max(prod(self.shape[f] for f in t) for t in triples)
        pairs, of_pairs = np.zeros((d, d)), np.zeros((d, d))
        none, counts = np.zeros_like(self.codes[0]), np.zeros(cells, np.int32)
        for a, b in {p for t in triples for p in combinations_with_replacement(t, 2)}:
            second = (none, 1) if a == b else (self.codes[b], shape[b])
            found = _entropy(self.codes[a], *second, none, 1, counts)
            pairs[[a, b], [b, a]], of_pairs[[a, b], [b, a]] = found
        listed, to = np.array(triples), np.zeros(len(triples))
        given = self.codes, shape, listed, pairs, of_pairs, self._dear
        in_threads(workers, lambda worker: _bound(*given, np.zeros(cells, np.int32), to, worker, workers))
        return to

    def fitted(self, triples: list[Triple], workers: int) -> Floats:
        """What each is worth, where that is more than :data:`_WORTH`."""
        to = np.zeros(len(triples))

        def work(worker: int) -> None:
            for k in range(worker, len(triples), workers):
                a, b, c = triples[k]
                law = np.zeros((self.shape[a], self.shape[b], self.shape[c]))
                _count(self.codes[a], self.codes[b], self.codes[c], law)
                to[k] = _beyond_pairs(law / self.codes.shape[1], self._dear, float(self.codes.shape[1]))

        in_threads(workers, work)
        return to


@njit(nogil=True)
def _combined(codes, to):  # type: ignore[no-untyped-def]
    """A number for each combination of values: a polynomial of them."""
    to[:] = 0
    for f in range(codes.shape[0]):
        for i in range(to.size):
            to[i] = (to[i] + np.uint64(codes[f, i]) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)


@njit(nogil=True)
def _entropy(a, b, of_b, c, of_c, counts):  # type: ignore[no-untyped-def]
    """Entropy over the cells of up to three features, and how many are seen; ``counts`` ends as it began."""
    n = a.size
    for i in range(n):
        counts[(np.int64(a[i]) * of_b + b[i]) * of_c + c[i]] += 1
    entropy, cells = np.log(n), 0
    for i in range(n):
        k = (np.int64(a[i]) * of_b + b[i]) * of_c + c[i]
        if counts[k] > 0:
            entropy -= counts[k] * np.log(counts[k]) / n
            cells += 1
            counts[k] = 0
    return entropy, cells


@njit(nogil=True)
def _bound(codes, shape, triples, pairs, of_pairs, dear, counts, to, worker, workers):  # type: ignore[no-untyped-def]
    for k in range(worker, len(triples), workers):
        a, b, c = triples[k]
        whole, cells = _entropy(codes[a], codes[b], shape[b], codes[c], shape[c], counts)
        least = np.inf
        for x, y, z in ((a, b, c), (a, c, b), (b, c, a)):
            least = min(least, pairs[x, z] + pairs[y, z] - pairs[z, z] - whole)
        free = cells - of_pairs[a, b] - of_pairs[a, c] - of_pairs[b, c]
        free += of_pairs[a, a] + of_pairs[b, b] + of_pairs[c, c] - 1
        to[k] = least - dear * max(free, 0.0)


@njit(nogil=True)
def _count(a, b, c, to):  # type: ignore[no-untyped-def]
    for i in range(a.size):
        to[a[i], b[i], c[i]] += 1.0


@njit(nogil=True)
def _sums(p, over):  # type: ignore[no-untyped-def]
    """A cube summed over one of its axes."""
    return p.sum(axis=0) if over == 0 else p.sum(axis=1) if over == 1 else p.sum(axis=2)


@njit(nogil=True)
def _beyond_pairs(p, dear, records):  # type: ignore[no-untyped-def]
    """The distance of a law from what its pairs allow, less what its degrees of freedom take."""
    bc, ac, ab = p.sum(axis=0), p.sum(axis=1), p.sum(axis=2)
    free = -1.0
    q = np.zeros_like(p)
    for i in range(p.shape[0]):
        for j in range(p.shape[1]):
            for k in range(p.shape[2]):
                if ab[i, j] > 0.0 and ac[i, k] > 0.0 and bc[j, k] > 0.0:
                    q[i, j, k] = 1.0
                    free += 1.0
    free -= (ab > 0.0).sum() + (ac > 0.0).sum() + (bc > 0.0).sum()
    free += (ab.sum(axis=1) > 0.0).sum() + (ab.sum(axis=0) > 0.0).sum() + (bc.sum(axis=0) > 0.0).sum()
    # As many at least as there are cells seen: where records are few, hardly any other would be possible.
    free = max(free, float((p > 0.0).sum()))
    less = dear * free + _SURE * np.sqrt(free / 2.0) / records
    worth = np.inf
    for cycle in range(1, _CYCLES + 1):
        for over in range(3):
            wanted = bc if over == 0 else ac if over == 1 else ab
            there = _sums(q, over)
            for i in range(p.shape[0]):
                for j in range(p.shape[1]):
                    for k in range(p.shape[2]):
                        if q[i, j, k] > 0.0:
                            u, v = (j, k) if over == 0 else (i, k) if over == 1 else (i, j)
                            q[i, j, k] *= wanted[u, v] / there[u, v]
        if cycle % _LOOK == 0:
            distance = 0.0
            for i in range(p.shape[0]):
                for j in range(p.shape[1]):
                    for k in range(p.shape[2]):
                        if p[i, j, k] > 0.0:
                            distance += p[i, j, k] * np.log(p[i, j, k] / q[i, j, k])
            worth = distance - less  # it only falls from here
            if worth <= _WORTH:
                break
    return worth
