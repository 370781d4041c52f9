"""Which further table to ask the data holder for.

Pair tables do not show three-way structure, but they show where it would matter. A table over a set S of
features would give the field a weight u_k for each of its cells. Of what the tables at hand do not already
tell of S, how much could be learnt from n records, and is there likely to be anything?

**Room.** h_k = n·E[p(1−p) in cell k], under the field, is what n records tell of u_k. What a function u of
the cells has in common with the tables at hand it has to share with them: with P the penalised regression
on the margins of S that they hold (weights h, penalty 2λ_θ: what the penalty does not let them fit is left
over), (u − Pu)_k is free. Its mean square f_k for random u of variance 1 is found by drawing a few u. A
feature that the others determine leaves f = 0.

**Strain.** A penalty λ_θ says that weights have variance 1/2λ_θ. Table t's own weights show a_t =
2λ_θ‖θ_t‖²/γ_t times that, with γ_t the number of them that the data determine
(:mod:`agglearn.train.penalty`); one is added to both for tables that say little. Where tables strain
against the penalty, a > 1, effects are strong; and a three-way effect of any natural kind leaves its mark
on all its pairs. So the variance taken for u is that of two pair effects multiplied, as many as connect
three features:

    τ² = a_S² / 2λ_θ,   a_S the geometric mean of a over the pairs of S

(a_S alone for a pair that no table holds).

**Gain.** An estimate of u_k with penalty 2λ_θ, ρ_k = h_k/(h_k + 2λ_θ), is worth the part of u that it finds
less its own noise. Over the entropy of the label this is the NLLH to be gained, on records that were not
used:

    gain(S) = Σ_k f_k [ h_k τ² (1 − (1 − ρ_k)²) − ρ_k² ] / 2n·entropy.

Predictions would move by √(τ²·Σ f_k h_k / Σ h_k) in the root mean square of the log-odds, if all of u were
found. Both figures serve to rank: what is really gained depends on what is there, and on what the tables
asked for share with one another. A hashed table counts as holding its margins whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, islice
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import entr, expit

from agglearn.errors import InputError
from agglearn.field.layout import Layout
from agglearn.field.margins import Margin, beyond, held_margins, sums_over
from agglearn.model.draw import population
from agglearn.model.model import Fitted, Model, model_of, problem_of
from agglearn.runtime.options import check_bounds, check_seed
from agglearn.runtime.random import Use, generator
from agglearn.tables.data import AggregatedData
from agglearn.train.penalty import overlap

Floats = npt.NDArray[np.float64]
Features = tuple[int, ...]

_LEAST_LAMBDA = 2.0**-6  # a field without penalty says nothing of how strong weights are
_POWER = 2  # a three-way effect is like two pair effects multiplied: see the module
_BEAM = 5000  # sets of one size that are made larger: all pairs of up to 100 features
_JUDGED = 1000  # sets of one size that are judged: the strongest, all triples of up to 19 features
_BATCH_CELLS = 1 << 22  # cells tallied at a time
_BATCH_SETS = 50  # sets judged between two looks at whether better ones can still come
_DRAWN_CELLS = 2000  # numbers drawn to find f, at least: small tables need several draws
_TURNS = 6  # of a regression whose mean over random functions is all that is used


@dataclass(frozen=True)
class Suggestion:
    """A table worth asking for.

    Attributes
    ----------
    features
        What it is over.
    cells
        How many it has.
    gain
        NLLH that the rule expects of it; below 0 where more noise than structure is expected.
    shift
        How far predictions could move by what the tables at hand leave open, in the root mean square of the
        log-odds.
    strain
        How many times stronger than the penalty expects the effects of its pairs are.
    room
        Share of what its cells could tell that the tables at hand do not.
    """

    features: tuple[str, ...]
    cells: int
    gain: float
    shift: float
    strain: float
    room: float

    @property
    def name(self) -> str:
        """The table's name."""
        return " × ".join(self.features)

    def to_json(self) -> dict[str, Any]:
        """The suggestion as plain JSON values."""
        return asdict(self)


def suggest_tables(
    model: Model | Fitted,
    tables: AggregatedData,
    budget_cells: int = 100_000,
    size: int = 3,
    top: int = 10,
    *,
    threads: int | None = None,
    seed: int = 0,
) -> list[Suggestion]:
    """Rank the tables that the field does not have by what they are likely to add, within a budget of cells.

    Parameters
    ----------
    model, tables
        A model, and the tables it was fitted to.
    budget_cells
        The most cells that all suggested tables may have together.
    size
        The most features of a table.
    top
        The most tables.
    threads
        Threads to use (all cores by default); they change the time, never the result.
    seed
        Seed of the draws.

    Returns
    -------
    list of Suggestion
        The best first. Of two sets of features of which one contains the other only the better is there.

    Examples
    --------
    >>> import agglearn
    >>> from agglearn.datasets import xor
    >>> pairs = agglearn.aggregate(xor(20_000, seed=0), "y", categorical=["*"])
    >>> model = agglearn.fit(pairs)
    >>> [table.name for table in agglearn.suggest_tables(model, pairs)]
    ['x1 × x2 × x3']
    """
    for name, value, least in (("budget of cells", budget_cells, 1), ("size", size, 2), ("top", top, 1)):
        if value < least:
            raise InputError(f"{name} {value} must be at least {least}")
    check_seed(seed)
    check_bounds(cells=budget_cells, size=size, suggest=top)
    check_seed(seed)
    ranking = _Ranking(model_of(model), tables, budget_cells, seed, threads)
    return _within(ranking.best(size, top), budget_cells, top)


class _Ranking:
    """What the judging of sets of features needs to know of a field."""

    def __init__(
        self, model: Model, tables: AggregatedData, budget: int, seed: int, threads: int | None
    ) -> None:
        self.model, self.budget, self.seed = model, budget, seed
        problem = problem_of(model, tables, "the tables")
        self.population = population(model, problem, seed=seed, threads=threads)
        self.information = self.population.map(
            lambda s: model.rows * expit(s) * expit(-s),
            self.population.scores(model.field.theta, model.field.intercept),
        )
        self.penalty = 2 * max(model.record.lambda_theta, _LEAST_LAMBDA)
        rate = model.positives / model.rows
        self.entropy = float(entr(rate) + entr(1 - rate))
        self.log_strain = self._log_strains()

    def _log_strains(self) -> Floats:
        """log a of each pair of features.

        A pair is read in the smallest table that holds both; where none does, it is between what the tables
        of the one feature and of the other say.
        """
        layout = self.model.layout
        h = self.population.cells(self.information)
        h[layout.tied] = 0.0  # no θ there that data could determine
        n = layout.n_features
        log_a = np.empty(layout.n_tables)
        for t in range(layout.n_tables):
            part = layout.part(t)
            determined = h[part] / (h[part] + self.penalty)
            gamma = float((determined / (1 + (overlap(layout.n_tables) - 1) * determined)).sum())
            squares = float(np.square(self.model.field.theta[part]).sum())
            log_a[t] = np.log((self.penalty * squares + 1) / (gamma + 1))
        several = [(t, scope) for t, scope in enumerate(layout.scopes) if len(scope) > 1]
        holding = [[t for t, scope in several if f in scope] for f in range(n)]
        single = np.array([log_a[own].mean() if own else 0.0 for own in holding])
        strains: Floats = (single[:, None] + single[None, :]) / 2
        for t in sorted(range(layout.n_tables), key=lambda t: -layout.sizes[t]):
            for f, g in combinations(layout.scopes[t], 2):
                strains[f, g] = strains[g, f] = log_a[t]
        return strains

    def best(self, size: int, top: int) -> list[Suggestion]:
        """The best sets of features, ``top`` of them and more.

        No set gains more than if all that its cells tell were free and found, ½τ²·E[p(1−p)], so that the
        sets can be judged by falling τ² until no better ones can come.
        """
        candidates = sorted(self._candidates(size), key=lambda s: (-self._log_tau(s), s))
        told = self.population.mean(self.information)
        most = told / (2 * self.model.rows * self.entropy * self.penalty)
        found: list[Suggestion] = []
        for start in range(0, len(candidates), _BATCH_SETS):
            batch = candidates[start : start + _BATCH_SETS]
            ceiling = most * np.exp(self._log_tau(batch[0]))
            chosen = _within(_ranked(found), self.budget, top)
            if len(chosen) == top and chosen[-1].gain > ceiling:
                break
            found += self._judge(batch)
        return _ranked(found)

    def _candidates(self, size: int) -> Iterator[Features]:
        """Sets of up to ``size`` features that no table holds and that are not too large."""
        layout = self.model.layout
        several = [f for f, card in enumerate(layout.cards) if card > 1]
        held = [set(scope) for scope in layout.scopes]
        sets: list[Features] = [s for s in combinations(several, 2) if self._cells(s) <= self.budget]
        for k in range(2, size + 1):
            sets.sort(key=lambda s: (-self._log_tau(s), s))
            new = (s for s in sets if not any(scope.issuperset(s) for scope in held))
            yield from islice(new, _JUDGED)
            larger = {tuple(sorted((*s, f))) for s in sets[:_BEAM] for f in several if f not in s}
            sets = [s for s in larger if self._cells(s) <= self.budget] if k < size else []

    def _cells(self, features: Features) -> int:
        return prod(self.model.layout.cards[f] for f in features)

    def _log_tau(self, features: Features) -> float:
        """log of τ² in units of the penalty's own variance."""
        return min(len(features) - 1, _POWER) * self._log_strain(features)

    def _log_strain(self, features: Features) -> float:
        return float(np.mean([self.log_strain[pair] for pair in combinations(features, 2)]))

    def _judge(self, sets: Sequence[Features]) -> Iterator[Suggestion]:
        cards, names = self.model.layout.cards, self.model.schema.names
        for batch in _batches(sets, [self._cells(s) for s in sets]):
            layout = Layout.plain(cards, batch)
            h = self.population.over(layout).cells(self.information)
            for t, features in enumerate(batch):
                cells = np.asarray(layout.table(h, t), np.float64)
                margins = held_margins(features, self.model.layout.scopes)
                free = free_part(cells, margins, self.penalty, self.seed)
                found = cells / (cells + self.penalty)
                tau = np.exp(self._log_tau(features)) / self.penalty
                worth = free * (cells * tau * (1 - (1 - found) ** 2) - found**2)
                room = float((free * cells).sum() / max(float(cells.sum()), 1e-300))
                yield Suggestion(
                    features=tuple(names[f] for f in features),
                    cells=cells.size,
                    gain=float(worth.sum() / (2 * self.model.rows * self.entropy)),
                    shift=float(np.sqrt(tau * room)),
                    strain=float(np.exp(self._log_strain(features))),
                    room=room,
                )


def free_part(h: Floats, margins: Sequence[Margin], penalty: float, seed: int) -> Floats:
    """f of each cell: mean square of what the margins leave of a random function of the cells."""
    draws = -(-_DRAWN_CELLS // h.size)
    rng = generator(seed, Use.ROOM)
    functions = rng.standard_normal((h.size, draws))
    sums = sums_over(margins, h.shape, np.arange(h.size))
    rest = beyond(functions, h.reshape(-1), sums, penalty, _TURNS)
    return np.asarray(np.square(rest).mean(axis=1)).reshape(h.shape)


def _batches(sets: Sequence[Features], cells: Sequence[int]) -> Iterator[list[Features]]:
    """The sets in runs whose cells fit into memory together."""
    batch: list[Features] = []
    total = 0
    for features, n in zip(sets, cells, strict=True):
        if batch and total + n > _BATCH_CELLS:
            yield batch
            batch, total = [], 0
        batch.append(features)
        total += n
    if batch:
        yield batch


def _ranked(found: Sequence[Suggestion]) -> list[Suggestion]:
    return sorted(found, key=lambda s: (-s.gain, s.features))


def _within(ranked: Sequence[Suggestion], budget: int, top: int) -> list[Suggestion]:
    """The best that fit into the budget together, none within another."""
    chosen: list[Suggestion] = []
    left = budget
    for table in ranked:
        mine = set(table.features)
        nested = any(mine <= set(other.features) or mine >= set(other.features) for other in chosen)
        if len(chosen) < top and table.cells <= left and not nested:
            chosen.append(table)
            left -= table.cells
    return chosen
