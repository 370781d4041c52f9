"""The engine of one machine: persistent chains moved by threads.

The chains sample π(x,y) ∝ exp(Σ_k φ_k(x)(μ_k + yθ_k) + yθ₀) at the weights of each iteration. A
sweep redraws every feature of every chain given the rest, and then its label. The label's
probability p = σ(φ(x)·θ + θ₀) is also what ĉ sums, so it is computed once for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.field.engines.protocol import Expectation, Floats, State
from agglearn.field.kernels.plan import empty_weights, plan_of, prepare, prepare_buckets, weights_needed
from agglearn.field.kernels.score import Codes, score_codes, tally
from agglearn.field.kernels.sweep import new_scratch, redraw_labels, scratch_needed, sweep, tile_size
from agglearn.field.layout import Layout
from agglearn.field.proposals import Proposals, no_proposals
from agglearn.runtime.random import stream_key
from agglearn.runtime.threads import in_threads, thread_count

_FIRST_LABELS, _FEATURES, _LABELS, _GROW = range(4)  # streams of random numbers
_WORTH = 200_000  # nanoseconds of work, below which waking another thread gains nothing
_DRAW = 20  # nanoseconds a draw takes at least; one weight looked up, tallied or copied takes one
_MOST_MODALITIES = 2**16 - 1  # a uint16 code beyond the last modality must remain for "unknown"


class LocalEngine:
    """Chains in this process's memory.

    Parameters
    ----------
    layout
        Features and tables of the field.
    chains
        Where the chains start: a row each, a column for each feature.
    rows
        Number of rows of the data, to which expectations are scaled.
    seed
        With the iteration number it decides every draw; the number of threads changes nothing.
    threads
        Threads to use; by default as many as the process may run on.
    proposals
        With these, the features of more than ``exact_up_to`` modalities move by
        ``proposals_per_feature`` Metropolis steps rather than by an exact draw.
    marginal_label
        Whether ĉ sums the probability of y = 1 (less noise) or a drawn y.
    """

    def __init__(
        self,
        layout: Layout,
        chains: Codes,
        rows: float,
        seed: int,
        threads: int | None = None,
        proposals: Proposals | None = None,
        exact_up_to: int = 100,
        proposals_per_feature: int = 2,
        marginal_label: bool = True,
    ) -> None:
        if max(layout.cards, default=0) > _MOST_MODALITIES:
            f = int(np.argmax(layout.cards))
            raise InputError(
                f"feature {f} has {layout.cards[f]} modalities, the sampler takes up to "
                f"{_MOST_MODALITIES}: group its rare values or hash it"
            )
        if proposals_per_feature < 1:
            raise InputError(f"proposals per feature: {proposals_per_feature}, need at least 1")
        self.layout = layout
        self.rows = rows
        self.seed = seed
        self.threads = thread_count(threads)
        self.marginal_label = marginal_label
        self.proposals_per_feature = proposals_per_feature
        self._proposals = _used(proposals, layout, exact_up_to)
        self._plan = plan_of(layout)
        self._weights = empty_weights(self._plan, sum(layout.hash_sizes))
        self._codes = _columns(chains, layout)
        self._labels: npt.NDArray[np.uint8] | None = None

    @property
    def n_chains(self) -> int:
        return int(self._codes.shape[1])

    @property
    def chains(self) -> Codes:
        """A copy of the chains, a row each."""
        return np.ascontiguousarray(self._codes.T)

    def expect(self, mu: Floats, theta: Floats, intercept: float, iteration: int) -> Expectation:
        """Move the chains one sweep at these weights, then tally them."""
        p, info = self._sweep(mu, theta, intercept, iteration)
        if not self.marginal_label:
            assert self._labels is not None
            p = self._labels.astype(np.float64)
        d, c = tally(self._codes, p, self.layout, self._workers(self.n_chains * self.layout.n_tables))
        scale = self.rows / self.n_chains
        d *= scale
        c *= scale
        return Expectation(d, c, float(p.sum()) * scale, info)

    def sweep(self, mu: Floats, theta: Floats, intercept: float, iteration: int) -> dict[str, float]:
        """Move the chains one sweep at these weights; diagnostics as in :class:`Expectation`."""
        return self._sweep(mu, theta, intercept, iteration)[1]

    def scores(self, theta: Floats, intercept: float) -> Floats:
        """φ(x)·θ + θ₀ of each chain."""
        workers = self._workers(self.n_chains * self.layout.n_tables)
        return score_codes(self._codes, self.layout, theta, intercept, workers)

    def grow(self, n_chains: int, iteration: int) -> None:
        """Go on with ``n_chains`` chains, the new ones being copies of the present ones.

        All chains are copied as often, up to one; where the copying begins is drawn.
        """
        present = self.n_chains
        if n_chains < present:
            raise ValueError(f"{present} chains cannot grow to {n_chains}")
        first = int(stream_key(self.seed, iteration, _GROW)) % present
        chosen = np.arange(n_chains) % present
        chosen[present:] = (chosen[present:] + first) % present
        self._codes = np.ascontiguousarray(self._codes[:, chosen])
        if self._labels is not None:
            self._labels = self._labels[chosen]

    def get_state(self) -> dict[str, npt.NDArray[Any]]:
        """The chains, and their labels once they have been drawn."""
        state: dict[str, npt.NDArray[Any]] = {"chains": self.chains}
        if self._labels is not None:
            state["labels"] = self._labels.copy()
        return state

    def set_state(self, state: State) -> None:
        """Go back to a state that :meth:`get_state` gave."""
        self._codes = _columns(state["chains"], self.layout)
        labels = state.get("labels")
        self._labels = None if labels is None else np.array(labels, np.uint8)

    def _sweep(
        self, mu: Floats, theta: Floats, intercept: float, iteration: int
    ) -> tuple[Floats, dict[str, float]]:
        """Move the chains; the probability of y = 1 of each where it has come to stand."""
        assert mu.shape == theta.shape == (self.layout.n_cells,)
        mu = np.ascontiguousarray(mu, np.float64)
        theta = np.ascontiguousarray(theta, np.float64)
        if self._labels is None:
            self._draw_labels(theta, intercept, iteration, _FIRST_LABELS)
        plan, weights = self._plan, self._weights
        prepare_buckets(self.layout, mu, theta, weights)
        workers = self._workers(weights.matrices.size)
        in_threads(workers, lambda w: prepare(plan, mu, theta, weights, w, workers))
        key = stream_key(self.seed, iteration, _FEATURES)
        sweepers = self._workers(_DRAW * self._codes.size)
        proposing = bool((self._proposals.start >= 0).any())
        tile, steps = tile_size(self.n_chains, sweepers, proposing), self.proposals_per_feature

        def move(worker: int) -> tuple[int, int]:
            scratch = new_scratch(plan, tile, steps)
            return sweep(  # type: ignore[no-any-return]
                plan, weights, self._proposals, steps, self._codes, self._labels, key,
                scratch, tile, worker, sweepers,
            )  # fmt: skip

        counts = in_threads(sweepers, move)
        moved, accepted = np.sum(counts, axis=0)
        info = {"moves": float(moved / self._codes.size)}
        proposed = self.n_chains * self.proposals_per_feature * np.sum(self._proposals.start >= 0)
        if proposed:
            info["acceptance"] = float(accepted / proposed)
        return self._draw_labels(theta, intercept, iteration, _LABELS), info

    def _workers(self, nanoseconds: int) -> int:
        """Threads to wake for work that takes one of them so long."""
        return max(1, min(self.threads, nanoseconds // _WORTH))

    def _draw_labels(self, theta: Floats, intercept: float, iteration: int, stream: int) -> Floats:
        """Draw all labels anew; the probability of y = 1 they were drawn with."""
        p = self.scores(theta, intercept)
        labels = np.empty(self.n_chains, np.uint8)
        key = stream_key(self.seed, iteration, stream)
        workers = self._workers(_DRAW * p.size)
        in_threads(workers, lambda w: redraw_labels(p, labels, key, w, workers))
        self._labels = labels
        return p


def memory_needed(
    layout: Layout, n_chains: int, threads: int | None = None, proposals_per_feature: int = 2
) -> int:
    """Bytes that a :class:`LocalEngine` will take at its peak, proposals apart."""
    weights = 4 * sum(weights_needed(layout))
    # codes and a copy of them where they are read; label; score
    chains = n_chains * (2 * 2 * layout.n_features + 1 + 8)
    expectation = 2 * 8 * layout.n_cells
    scratch = thread_count(threads) * scratch_needed(layout, proposals_per_feature)
    return weights + chains + expectation + scratch


def _columns(chains: npt.NDArray[Any], layout: Layout) -> Codes:
    codes = np.array(np.asarray(chains).T, np.uint16, order="C")
    assert codes.shape[0] == layout.n_features
    assert (codes < np.array(layout.cards)[:, None]).all(), "a chain has a code out of range"
    return codes


def _used(proposals: Proposals | None, layout: Layout, exact_up_to: int) -> Proposals:
    if proposals is None:
        return no_proposals(layout.n_features)
    many = np.array(layout.cards) > exact_up_to
    return proposals._replace(start=np.where(many, proposals.start, -1))
