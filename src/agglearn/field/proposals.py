# mypy: disallow-untyped-decorators=False
"""Proposals for Metropolis within Gibbs, learnt once from the data.

For a feature of many modalities the exact conditional costs a sum over all of them. Instead, values
are proposed from a law that is close to it and costs nothing to draw from::

    q(v | z) = 0.8 · P(v | z) + 0.2 · P(v)

with z the value of the *neighbour*: of the features that share a plain pair table with this one, the
one that says most about it (greatest mutual information). Both parts are lightly smoothed, so that
every value is proposed sooner or later. One alias table (Walker, 1977) for each z draws a value from
one place looked up. A place is eight bytes, half of them the value's log q, because the chains look up
places at random and each costs a trip to memory.

Where the table of the two lists the cells that were seen, or a feature has more modalities than such a place
can tell apart, the mixture is drawn in two steps (:mod:`.seen_laws`): first whether from the values seen with
z.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout
from agglearn.field.margins import entries, information, is_sparse, marginal, sparse_information
from agglearn.field.seen_laws import SeenLaw, SeenLaws, seen_laws
from agglearn.runtime.compiled import njit

Floats = npt.NDArray[np.float64]

_CONDITIONAL = 0.8  # share of the conditional in the mixture; the rest keeps every value in reach
_MOST_IN_A_PLACE = 2**16 - 1  # modalities
_UNIFORM = 0.01  # share of the uniform law in the marginal


class Proposals(NamedTuple):
    """Alias tables: feature ``f`` given value ``z`` has ``start[f] + z * cards[f] + (0...cards[f])``.

    Attributes
    ----------
    start
        For each feature, or -1 where it has no proposals and is drawn exactly.
    neighbour
        The feature whose value the proposals depend on, or -1 where they depend on none.
    spots
        Spot k, taken uniformly, stands for value k with probability ``(spot >> 16) / 65536``, and for the
        value ``spot & 65535`` otherwise.
    log_density
        log q of each value; it shares its memory with the spots, one after the other.
    laws
        Of the features that have none of these.
    """

    start: npt.NDArray[np.int64]
    neighbour: npt.NDArray[np.int64]
    spots: npt.NDArray[np.uint32]
    log_density: npt.NDArray[np.float32]
    laws: SeenLaws

    def interleaved(self) -> Proposals:
        """The same, its places as the kernels read them: on the way between processes they come apart."""
        spots, log_density = _places(self.spots.size)
        spots[:], log_density[:] = self.spots, self.log_density
        return self._replace(spots=spots, log_density=log_density)


def no_proposals(n_features: int) -> Proposals:
    """Every feature drawn exactly."""
    none = np.full(n_features, -1, np.int64)
    return Proposals(none, none, *_places(0), seen_laws(n_features, {}))


def build_proposals(layout: Layout, d: Floats, exact_up_to: int = 100) -> Proposals:
    """Proposals for the features of more than ``exact_up_to`` modalities.

    Parameters
    ----------
    d
        The data's count in each cell of the layout; negative ones (noise) are taken for 0.
    """
    start = np.full(layout.n_features, -1, np.int64)
    neighbour = np.full(layout.n_features, -1, np.int64)
    laws: list[Floats] = []
    of_seen: dict[int, SeenLaw] = {}
    size = 0
    for f, card in enumerate(layout.cards):
        if card <= exact_up_to:
            continue
        t, margin = _neighbour_table(layout, d, f)
        neighbour[f] = -1 if t < 0 else next(g for g in layout.scopes[t] if g != f)
        if card > _MOST_IN_A_PLACE or (t >= 0 and is_sparse(layout, t)):
            start[f] = 0
            of_seen[f] = SeenLaw.of(layout, d, f, t, margin, _CONDITIONAL)
            continue
        law = _law(layout, d, f, t, margin)
        start[f] = size
        size += law.size
        laws.append(law)
    spots, log_density = _places(size)
    at = 0
    for law in laws:
        _fill_alias(np.ascontiguousarray(law), spots, log_density, at)
        at += law.size
    return Proposals(start, neighbour, spots, log_density, seen_laws(layout.n_features, of_seen))


def _places(size: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]:
    """Spots and log densities that take turns in memory."""
    places = np.empty((size, 2), np.uint32)
    return places[:, 0], places.view(np.float32)[:, 1]


def _neighbour_table(layout: Layout, d: Floats, f: int) -> tuple[int, Floats]:
    """The pair table that says most about ``f`` (-1 where there is none), and the feature's marginal law."""
    card = layout.cards[f]
    best, found = -1.0, -1
    margin = np.zeros(card)
    for t, scope in enumerate(layout.scopes):
        if f not in scope or not layout.cells[t].apart:
            continue
        if not margin.any() or len(scope) == 1:
            margin = _margin(layout, d, f, t)
        if len(scope) == 2:
            told = _information(layout, d, f, t)
            if told > best:
                best, found = told, t
    law = margin * (1 - _UNIFORM) / max(margin.sum(), 1e-300) + _UNIFORM / card
    law /= law.sum()
    return found, law


def _counts(layout: Layout, d: Floats, f: int, t: int) -> Floats:
    """The counts of a dense table, a row for each combination of its other features."""
    table = np.maximum(layout.table(d, t), 0.0).astype(np.float64)
    turned: Floats = np.moveaxis(table, layout.scopes[t].index(f), -1).reshape(-1, layout.cards[f])
    return turned


def _margin(layout: Layout, d: Floats, f: int, t: int) -> Floats:
    if is_sparse(layout, t):
        return marginal(layout, np.maximum(d, 0.0), t, (f,))
    return np.asarray(_counts(layout, d, f, t).sum(axis=0))


def _information(layout: Layout, d: Floats, f: int, t: int) -> float:
    if is_sparse(layout, t):
        return sparse_information(entries(layout, d, t, (layout.scopes[t][0], layout.scopes[t][1]))[0])
    return information(_counts(layout, d, f, t))


def _law(layout: Layout, d: Floats, f: int, t: int, alone: Floats) -> Floats:
    """q(v | z), a row for each z of the neighbour in dense table ``t`` (one row where there is none)."""
    if t < 0:
        return alone[None, :]
    counts = _counts(layout, d, f, t)
    # one example's worth of the marginal: a row without data proposes from the marginal alone
    conditional = (counts + alone) / (counts.sum(axis=1, keepdims=True) + 1.0)
    return np.asarray(_CONDITIONAL * conditional + (1 - _CONDITIONAL) * alone)


@njit(nogil=True)
def _fill_alias(law, spots, log_density, at):  # type: ignore[no-untyped-def]
    """Vose's algorithm for each row of ``law``."""
    rows, card = law.shape
    share = np.empty(card)
    small, large = np.empty(card, np.int64), np.empty(card, np.int64)
    drawn = np.empty(card)
    for z in range(rows):
        row = at + z * card
        n_small = n_large = 0
        for v in range(card):
            share[v] = law[z, v] * card
            spots[row + v] = v  # itself, whatever the threshold
            if share[v] < 1.0:
                small[n_small] = v
                n_small += 1
            else:
                large[n_large] = v
                n_large += 1
        while n_small and n_large:
            n_small -= 1
            s, g = small[n_small], large[n_large - 1]
            kept = min(np.ceil(share[s] * 65536.0), 65535.0)  # never 0: each value is proposed
            spots[row + s] = np.uint32(kept) << np.uint32(16) | np.uint32(g)
            share[g] -= 1.0 - share[s]
            if share[g] < 1.0:
                n_large -= 1
                small[n_small] = g
                n_small += 1
        # the density of what is drawn, rounding of the thresholds included, so that the
        # acceptance ratio is that of the sampler and not of the law it approximates
        drawn[:] = 0.0
        for v in range(card):
            kept = np.float64(spots[row + v] >> np.uint32(16)) / 65536.0
            drawn[v] += kept
            drawn[spots[row + v] & np.uint32(65535)] += 1.0 - kept
        for v in range(card):
            log_density[row + v] = np.log(drawn[v] / card)
