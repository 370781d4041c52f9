"""One fold's field on its way from penalty to penalty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from agglearn.field.engines.local import LocalEngine
from agglearn.field.engines.protocol import State
from agglearn.field.heldout import Difference, compare_heldout
from agglearn.field.layout import Layout
from agglearn.runtime.threads import thread_count
from agglearn.train.checkpoint import Checkpoints, FitState
from agglearn.train.loop import fit, iterate, sample_codes
from agglearn.train.select.folds import Fold
from agglearn.train.select.newton import newton_step
from agglearn.train.settings import FitSettings
from agglearn.train.step import Weights

Floats = npt.NDArray[np.float64]
Watch: TypeAlias = Callable[[FitState], None]

_SEGMENT = 20  # iterations of training at a neighbour
_SETTLE = 5  # sweeps at the averaged weights before the chains are judges
# Work is counted in moves of one chain. An iteration moves all of them, and takes as long again as moving
# so many more, for its rounds of the tables and of their cells. On Adult and Bank a Newton step took about as
# long as three iterations, a comparison as long as ten, and settling as long as four.
_OTHER_MOVES, _MOVES_PER_CELL = 700.0, 1.6
_NEWTON_WORK, _JUDGING_WORK, _SETTLING_WORK = 3.0, 10.0, 4.0


def other_work(layout: Layout) -> float:
    """What an iteration takes beside moving its chains."""
    return _OTHER_MOVES + _MOVES_PER_CELL * layout.n_cells / layout.n_tables


@dataclass(frozen=True, eq=False)
class Place:
    """Where one fold's field stands at a point of the walk: averaged weights, running means, chains."""

    lambda_theta: float
    mu: Floats
    theta: Floats
    intercept: float
    d_run: Floats
    c_run: Floats
    chains: State
    judges: npt.NDArray[np.uint16]

    def weights(self) -> Weights:
        """Weights to train on from here."""
        begin = Weights.at(self.mu, self.intercept)
        return replace(begin, theta=self.theta.copy(), d_run=self.d_run.copy(), c_run=self.c_run.copy())


class Course:
    """One fold's field, the chains that judge it, and its held-out tables.

    Attributes
    ----------
    start
        Where the first fit ended.
    moves, iterations
        Moves of chains in the first fit, and its iterations.
    work
        All work so far.
    """

    def __init__(
        self,
        fold: Fold,
        settings: FitSettings,
        threads: int | None,
        on_iteration: Watch | None,
        checkpoints: Checkpoints | None,
    ) -> None:
        self.fold, self._settings = fold, settings
        self._threads, self._workers = threads, thread_count(threads)
        self._watch = on_iteration or (lambda state: None)
        self._streams = 0
        first = fit(fold.train, settings, threads=threads, on_iteration=on_iteration, checkpoints=checkpoints)
        self._engine, self._mu0 = first.engine, first.mu0
        self.start = self._arrive(first.state)
        n_chains = self.start.judges.shape[1]
        other = other_work(fold.train.layout)
        self._iteration_work = float(n_chains + other)
        self.iterations = first.iterations
        self.moves = float(sum(entry["chains"] or n_chains for entry in first.state.history))
        self.work = self.moves + self.iterations * other + _SETTLING_WORK * self._iteration_work

    @property
    def training_cost(self) -> float:
        """The work of :meth:`train_on` and a comparison."""
        return (_SEGMENT + _SETTLING_WORK + _JUDGING_WORK) * self._iteration_work

    @property
    def tightening_cost(self) -> float:
        """The work of :meth:`tighten` and a comparison."""
        return (_NEWTON_WORK + _JUDGING_WORK) * self._iteration_work

    def _use_new_numbers(self) -> None:
        """Go on with random numbers that no iteration has used."""
        self._streams += 1
        if isinstance(self._engine, LocalEngine):
            self._engine.seed = self._settings.seed + (self._streams << 32)

    def train_on(self, place: Place, lambda_theta: float, lambda_mu: float) -> Place:
        """Train on from a place with other penalties."""
        self._use_new_numbers()
        self._engine.set_state(place.chains)
        state = FitState(place.weights(), lambda_theta)
        settings = replace(
            self._settings,
            lambda_theta=lambda_theta,
            lambda_mu=lambda_mu,
            growth=1,
            iterations=_SEGMENT,
            tolerance=0.0,
        )
        for _ in iterate(self._engine, self._mu0, self.fold.train, settings, state, self._threads):
            self._watch(state)
        self.work += (_SEGMENT + _SETTLING_WORK) * self._iteration_work
        return self._arrive(state)

    def _arrive(self, state: FitState) -> Place:
        """The place where training has ended, with its chains brought to the averaged weights."""
        w = state.weights
        at = w.mu_mean, w.theta_mean, w.intercept_mean
        if isinstance(self._engine, LocalEngine):
            self._use_new_numbers()
            for sweep in range(_SETTLE):
                self._engine.sweep(*at, sweep)
        judges = sample_codes(self._engine, *at)
        return Place(state.lambda_theta, *at, w.d_run, w.c_run, self._engine.get_state(), judges)

    def tighten(self, place: Place, lambda_theta: float) -> Place:
        """The field at a larger λ_θ, by a Newton step on the chains."""
        theta, intercept = newton_step(
            self.fold.train,
            place.judges,
            place.theta,
            place.intercept,
            place.lambda_theta,
            lambda_theta,
            self._workers,
        )
        self.work += _NEWTON_WORK * self._iteration_work
        return replace(place, lambda_theta=lambda_theta, theta=theta, intercept=intercept)

    def compare(self, place: Place, other: Place, judge: Place) -> Difference:
        """How much better one place is than another on the held-out tables, by the chains of a third."""
        fold, mine, others = self.fold, (place.theta, place.intercept), (other.theta, other.intercept)
        self.work += _JUDGING_WORK * self._iteration_work
        return compare_heldout(fold.valid, judge.judges, mine, others, self._workers, noise=fold.noise)
