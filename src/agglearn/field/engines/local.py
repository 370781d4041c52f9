"""The engine of one machine: persistent chains moved by threads.

The chains sample π(x,y) ∝ exp(Σ_k φ_k(x)(μ_k + yθ_k) + yθ₀) at the weights of each iteration. A
sweep redraws every feature of every chain given the rest, and then its label. The label's
probability p = σ(φ(x)·θ + θ₀) is also what ĉ sums, so it is computed once for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.field.engines.protocol import EngineOptions, Expectation, Floats, State
from agglearn.field.field import Field, Rounded
from agglearn.field.groups import Groups, find_groups
from agglearn.field.kernels.listed import listed_needed, listed_of, prepare_listed, write_out
from agglearn.field.kernels.lists import lists_needed
from agglearn.field.kernels.plan import (
    empty_weights,
    plan_of,
    prepare,
    prepare_buckets,
    weights_needed,
    written_out,
)
from agglearn.field.kernels.regroup import both_labels, group_scratch, regroup
from agglearn.field.kernels.score import Codes, tables_of, tally
from agglearn.field.kernels.sweep import new_scratch, redraw_labels, scratch_needed, sweep, tile_size
from agglearn.field.layout import Layout
from agglearn.field.population import Chains
from agglearn.field.problem import Problem
from agglearn.field.proposals import Proposals, build_proposals, no_proposals
from agglearn.field.start import Starter
from agglearn.runtime.memory import require
from agglearn.runtime.random import Numbers, Stream
from agglearn.runtime.speech import option
from agglearn.runtime.threads import in_threads, thread_count
from agglearn.schema.rules import code_type

WORKSPACE = 14 * 8  # bytes a cell beside the engine: tables, weights, running means, expectations
_WORTH = 200_000  # nanoseconds of work, below which waking another thread gains nothing
_DRAW = 20  # nanoseconds a draw takes at least; one weight looked up, tallied or copied takes one
UNIT = 2.0**-30  # probabilities are multiples of it: their sums are the same in any order


class Moves(NamedTuple):
    """What a sweep did: values that there were and that changed; values, and groups of features, that were
    proposed and accepted."""

    values: int
    moved: int
    proposed: int
    accepted: int
    groups_proposed: int = 0
    groups_accepted: int = 0

    @property
    def info(self) -> dict[str, float]:
        """Shares, as in :class:`Expectation`."""
        info = {"moves": self.moved / self.values}
        if self.proposed:
            info["acceptance"] = self.accepted / self.proposed
        if self.groups_proposed:
            info["group_acceptance"] = self.groups_accepted / self.groups_proposed
        return info


@dataclass(frozen=True, eq=False)
class Counts:
    """What chains count after a sweep: sums over the chains, exact, so the same in any order.

    Attributes
    ----------
    d, c
        Chains in each cell, and the sum of their labels' probabilities (or of labels, where these count).
    positives, spread
        The sums of these and of p(1 − p) over all chains; no spread where labels count.
    chains, moves
        How many chains, and how they moved.
    """

    d: Floats
    c: Floats
    positives: float
    spread: float | None
    chains: int
    moves: Moves

    def expectation(self, rows: float) -> Expectation:
        """What so many records would count; the arrays are taken over."""
        scale = rows / self.chains
        self.d[:] *= scale
        self.c[:] *= scale
        spread = None if self.spread is None else self.spread * rows / self.chains
        return Expectation(self.d, self.c, self.positives * scale, self.moves.info, spread)


class LocalEngine:
    """Chains in this process's memory.

    Its steps on μ may be as long as one likes: chains lag behind the weights, and damp them.

    Parameters
    ----------
    layout
        Features and tables of the field.
    chains
        Where the chains start: a row for each feature, a column for each chain.
    rows
        Number of rows of the data, to which expectations are scaled.
    numbers
        The random numbers: with the iteration they decide every draw; threads change nothing.
    threads
        Threads to use; by default as many as the process may run on.
    proposals
        With these, the features of more than ``exact_up_to`` modalities move by
        ``proposals_per_feature`` Metropolis steps rather than by an exact draw.
    marginal_label
        Whether ĉ sums the probability of y = 1 (less noise) or a drawn y.
    groups
        Features that are also proposed together, before each sweep.
    """

    longest_step_mu = np.inf
    still = False

    def __init__(
        self,
        layout: Layout,
        chains: Codes,
        rows: float,
        numbers: Numbers,
        threads: int | None = None,
        proposals: Proposals | None = None,
        exact_up_to: int = 100,
        proposals_per_feature: int = 2,
        marginal_label: bool = True,
        groups: Groups | None = None,
    ) -> None:
        if proposals_per_feature < 1:
            raise InputError(f"proposals per feature: {proposals_per_feature}, need at least 1")
        self.layout = layout
        self.rows = rows
        self.numbers = numbers
        self.threads = thread_count(threads)
        self.marginal_label = marginal_label
        self.proposals_per_feature = proposals_per_feature
        self._proposals = _used(proposals, layout, exact_up_to)
        self._groups = groups
        exact = set(np.flatnonzero(self._proposals.start < 0).tolist())
        written = written_out(layout, exact)
        self._plan = plan_of(layout, written)
        self._listed = listed_of(layout, exact, self._plan, written)
        n_listed = int(self._listed.table_place[-1])
        self._weights = empty_weights(self._plan, sum(layout.buckets), n_listed)
        self._codes = _columns(chains, layout)
        self._ids = np.arange(self.n_chains, dtype=np.uint64)
        self._labels: npt.NDArray[np.uint8] | None = None

    @property
    def n_chains(self) -> int:
        return int(self._codes.shape[1])

    @property
    def chains(self) -> Codes:
        """A copy of the chains, a row for each feature."""
        return self._codes.copy()

    @property
    def ids(self) -> npt.NDArray[np.uint64]:
        """The numbers that the chains draw by."""
        return self._ids

    def expect(self, field: Field, iteration: int, law: Field | None = None) -> Expectation:
        """Move the chains one sweep at these weights (or a law's), then tally them."""
        return self.count(field, iteration, law).expectation(self.rows)

    def count(self, field: Field | Rounded, iteration: int, law: Field | Rounded | None = None) -> Counts:
        """Move the chains one sweep at these weights (or a law's), then count them."""
        seen = (law or field).rounded()
        p, moves = self._sweep(seen, iteration)
        labels = self._labels
        if law is not None:  # which has the same μ
            seen = field.rounded(seen.mu)
            p, labels = self._new_labels(seen, iteration, Stream.TALLIED_LABELS)
        del seen  # two numbers a cell: the tallies are to have room
        spread = None
        if self.marginal_label:
            spread = float((np.rint(p * (1 - p) / UNIT) * UNIT).sum())
        else:
            assert labels is not None
            p = labels.astype(np.float64)
        d, c = tally(self._codes, p, self.layout, self._workers(self.n_chains * self.layout.n_tables))
        return Counts(d, c, float(p.sum()), spread, self.n_chains, moves)

    def sweep(self, field: Field | Rounded, iteration: int) -> dict[str, float]:
        """Move the chains one sweep at these weights; diagnostics as in :class:`Expectation`."""
        return self._sweep(field.rounded(), iteration)[1].info

    def settle(self, field: Field, sweeps: int, numbers: Numbers) -> None:
        """Bring the chains to these weights, by random numbers of their own."""
        self.use(numbers)
        for number in range(sweeps):
            self.sweep(field, number)

    def use(self, numbers: Numbers) -> None:
        """From here on, draw by these random numbers."""
        self.numbers = numbers

    def population(self, field: Field | None = None) -> Chains:
        """The chains as they stand, whatever the weights; they do not follow when the engine moves on."""
        return Chains(self.layout, self.chains, threads=self.threads)

    def grow(self, n_chains: int, iteration: int) -> None:
        """Go on with ``n_chains`` chains, if there are fewer, the new ones being copies of the present ones.

        All chains are copied as often, up to one; where the copying begins is drawn.
        """
        self.grow_part(self.n_chains, n_chains, iteration)

    def grow_part(self, present: int, n_chains: int, iteration: int) -> None:
        """Make the copies of these chains, where they are some of all those present.

        Chain ``i`` of the new ones is a copy of chain ``i + first``, each counted around the present ones.
        """
        if n_chains <= present:
            return
        first = int(self.numbers.key(iteration, Stream.GROW)) % present
        rounds = np.arange(1, -(-n_chains // present), dtype=np.int64)
        ids = ((self._ids.astype(np.int64) - first) % present + present * rounds[:, None]).reshape(-1)
        source = np.tile(np.arange(self.n_chains), rounds.size)
        order = np.argsort(ids)
        order = order[ids[order] < n_chains]
        chosen = np.concatenate([np.arange(self.n_chains), source[order]])
        self._codes = np.ascontiguousarray(self._codes[:, chosen])
        self._ids = np.concatenate([self._ids, ids[order].astype(np.uint64)])
        if self._labels is not None:
            self._labels = self._labels[chosen]

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """The chains, and their labels once they have been drawn."""
        state: dict[str, npt.NDArray[Any]] = {"chains": self.chains}
        if self._labels is not None:
            state["labels"] = self._labels.copy()
        return state

    def set_state(self, state: State) -> None:
        """Go back to a state that :meth:`get_state` gave.

        ``ids`` in it are the numbers of the chains, where they are not all there are.
        """
        self._codes = _columns(state["chains"], self.layout)
        labels, ids = state.get("labels"), state.get("ids")
        self._labels = None if labels is None else np.array(labels, np.uint8)
        self._ids = np.arange(self.n_chains, dtype=np.uint64) if ids is None else np.array(ids, np.uint64)

    def _sweep(self, field: Rounded, iteration: int) -> tuple[Floats, Moves]:
        """Move the chains; the probability of y = 1 of each where it has come to stand."""
        mu, theta = field.mu, np.zeros_like(field.theta) if field.apart else field.theta
        assert mu.shape == theta.shape == (self.layout.n_cells,)
        if self._labels is None:
            self._draw_labels(field, iteration, Stream.FIRST_LABELS)
        plan, weights = self._plan, self._weights
        prepare_buckets(self.layout, mu, theta, weights)
        workers = self._workers(weights.matrices.size + weights.listed.size)
        in_threads(workers, lambda w: prepare(plan, mu, theta, weights, w, workers))
        in_threads(workers, lambda w: prepare_listed(self._listed, mu, theta, weights.listed, w, workers))
        in_threads(workers, lambda w: write_out(plan, self._listed, weights, w, workers))
        together = self.regroup(field, iteration)
        key = self.numbers.key(iteration, Stream.FEATURES)
        sweepers = self._workers(_DRAW * self._codes.size)
        proposing = bool((self._proposals.start >= 0).any())
        tile, steps = tile_size(self.n_chains, sweepers, proposing), self.proposals_per_feature

        def move(worker: int) -> tuple[int, int]:
            scratch = new_scratch(plan, tile, steps, self._codes.dtype)
            return sweep(  # type: ignore[no-any-return]
                plan, self._listed, weights, self._proposals, steps, self._codes, self._labels, self._ids,
                key, scratch, tile, worker, sweepers,
            )  # fmt: skip

        counts = in_threads(sweepers, move)
        moved, accepted = np.sum(counts, axis=0).tolist()
        proposed = self.n_chains * steps * int(np.sum(self._proposals.start >= 0))
        n_groups = 0 if self._groups is None else self._groups.size
        moves = Moves(self._codes.size, moved, proposed, accepted, self.n_chains * n_groups, together)
        return self._draw_labels(field, iteration, Stream.LABELS), moves

    def regroup(self, field: Field | Rounded, iteration: int) -> int:
        """Propose every group of features to all chains at these weights; how many were accepted."""
        groups = self._groups
        if groups is None or not groups.size:
            return 0
        seen = field.rounded()
        if self._labels is None:
            self._draw_labels(seen, iteration, Stream.FIRST_LABELS)
        theta = np.zeros_like(seen.theta) if seen.apart else seen.theta
        key = self.numbers.key(iteration, Stream.GROUPS)
        tables, weights = tables_of(self.layout), np.empty(2 * theta.size, np.float32)
        workers = self._workers(2 * theta.size)
        in_threads(workers, lambda w: both_labels(seen.mu, theta, weights, w, workers))
        movers = self._workers(_DRAW * self.n_chains * groups.table.size)

        def move(worker: int) -> int:
            scratch = group_scratch(self.layout.n_features, groups.largest, self._codes.dtype)
            return regroup(  # type: ignore[no-any-return]
                self._codes, self._labels, self._ids, groups, tables, weights, key, scratch, worker, movers
            )

        return sum(in_threads(movers, move))

    def _workers(self, nanoseconds: int) -> int:
        """Threads to wake for work that takes one of them so long."""
        return max(1, min(self.threads, nanoseconds // _WORTH))

    def _draw_labels(self, field: Rounded, iteration: int, stream: Stream) -> Floats:
        """Draw all labels anew; the probability of y = 1 they were drawn with."""
        p, self._labels = self._new_labels(field, iteration, stream)
        return p

    def _new_labels(
        self, field: Rounded, iteration: int, stream: Stream
    ) -> tuple[Floats, npt.NDArray[np.uint8]]:
        """Labels drawn for all chains, and the probability of y = 1 they were drawn with."""
        workers = self._workers(self.n_chains * self.layout.n_tables)
        p = field.log_odds(self._codes, workers)
        labels = np.empty(self.n_chains, np.uint8)
        key = self.numbers.key(iteration, stream)
        workers = self._workers(_DRAW * p.size)
        in_threads(workers, lambda w: redraw_labels(p, labels, self._ids, key, w, workers))
        return p, labels


def memory_needed(
    layout: Layout,
    n_chains: int,
    threads: int | None = None,
    proposals_per_feature: int = 2,
    exact_up_to: int = 100,
) -> int:
    """Bytes that a :class:`LocalEngine` will take at its peak, proposals apart."""
    exact = [f for f, card in enumerate(layout.cards) if card <= exact_up_to]
    weights = 4 * sum(weights_needed(layout, written_out(layout, exact)))
    weights += lists_needed(layout) + listed_needed(layout, exact)
    codes = np.dtype(code_type(max(layout.cards, default=0))).itemsize
    # codes and a copy of them where they are read; number; label; score
    chains = n_chains * (2 * codes * layout.n_features + 8 + 1 + 8)
    expectation = 2 * 8 * layout.n_cells  # before that, rounded weights, and those of either label
    scratch = thread_count(threads) * scratch_needed(layout, proposals_per_feature)
    return weights + chains + expectation + scratch


def open_local(problem: Problem, start: Starter, options: EngineOptions) -> tuple[LocalEngine, Floats]:
    """Chains from a start of the tables, and μ₀."""
    layout = problem.layout
    require(
        memory_needed(layout, options.chains, options.threads, options.proposals, options.exact_up_to)
        + WORKSPACE * layout.n_cells,
        f"a field of {layout.n_cells:,} cells with {options.chains:,} chains",
        f"use fewer chains ({option('chains')}), fewer or hashed tables",
    )
    begun = start(layout, problem.d, problem.rows, options.first_chains, options.numbers)
    engine = LocalEngine(
        layout,
        begun.chains,
        problem.rows,
        options.numbers,
        threads=options.threads,
        proposals=proposals_for(layout, problem.d, options.exact_up_to),
        exact_up_to=options.exact_up_to,
        proposals_per_feature=options.proposals,
        marginal_label=options.marginal_label,
        groups=find_groups(layout, problem.d) if options.groups else None,
    )
    return engine, begun.mu


def proposals_for(layout: Layout, d: Floats, exact_up_to: int) -> Proposals | None:
    """Proposals from the tables, where a feature has so many modalities that it needs them."""
    return build_proposals(layout, d, exact_up_to) if max(layout.cards) > exact_up_to else None


def _columns(chains: npt.NDArray[Any], layout: Layout) -> Codes:
    codes: Codes = np.array(chains, code_type(max(layout.cards, default=0)), order="C")
    if codes.shape[0] != layout.n_features or not (codes < np.array(layout.cards)[:, None]).all():
        raise ValueError("a chain has a code out of range")
    return codes


def _used(proposals: Proposals | None, layout: Layout, exact_up_to: int) -> Proposals:
    if proposals is None:
        return no_proposals(layout.n_features)
    many = np.array(layout.cards) > exact_up_to
    return proposals._replace(start=np.where(many, proposals.start, -1))
