"""One fold's field on its way from penalty to penalty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from agglearn.field.engines.levelled import Levelled
from agglearn.field.engines.protocol import KEPT_CHAINS, State
from agglearn.field.field import Field
from agglearn.field.heldout import Difference, compare_heldout
from agglearn.field.layout import Layout
from agglearn.field.population import Population
from agglearn.runtime.random import Numbers, Use
from agglearn.runtime.threads import thread_count
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.evidence import overlap_of_steps
from agglearn.train.loop import advance, fit
from agglearn.train.mains import with_mains
from agglearn.train.select.folds import Fold
from agglearn.train.select.newton import newton_step
from agglearn.train.settings import FitSettings
from agglearn.train.state import FitState, Iterates

Floats = npt.NDArray[np.float64]
Watch: TypeAlias = Callable[[FitState], None]

_SEGMENT = 20  # iterations of training at a neighbour
_SETTLE = 5  # sweeps at the averaged weights before the chains are judges
_EXACT_CHAINS = 20_000  # that an engine without chains is taken to cost as much as
# Work is counted in moves of one chain. An iteration moves all of them, and takes as long again as moving
# so many more, for its rounds of the tables and of their cells. On Adult and Bank a Newton step took about as
# long as three iterations, a comparison as long as ten, and settling as long as four.
_OTHER_MOVES, _MOVES_PER_CELL = 700.0, 1.6
_NEWTON_WORK, _JUDGING_WORK, _SETTLING_WORK = 3.0, 10.0, 4.0
_PASS = 0.1  # what a pass over records is beside an iteration of Newton's method


def other_work(layout: Layout) -> float:
    """What an iteration takes beside moving its chains."""
    return _OTHER_MOVES + _MOVES_PER_CELL * layout.n_cells / layout.n_tables


@dataclass(frozen=True, eq=False)
class Station:
    """Where one fold's field stands at a point of the walk: averaged weights, running means, chains."""

    lambda_theta: float
    field: Field
    d_run: Floats
    c_run: Floats
    chains: State
    judges: Population

    def weights(self, penalties: Floats) -> Iterates:
        """Weights to train on from here, with these penalties."""
        begun = Iterates.at(self.field, penalties)
        return replace(begun, d_run=self.d_run.copy(), c_run=self.c_run.copy())


class Course:
    """One fold's field, the chains that judge it, and its held-out tables.

    Each fold has random numbers of its own, and none of them those of the fit that follows (which is number
    0): chains that were moved by the same ones would err alike.

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
        number: int,
        settings: FitSettings,
        threads: int | None,
        on_iteration: Watch | None,
        checkpoints: Checkpoints | None,
    ) -> None:
        self.fold, self._settings, self._number = fold, settings, number
        self._threads, self._workers = threads, thread_count(threads)
        self._watch = on_iteration or (lambda state: None)
        self._streams = 0
        first = fit(
            fold.train,
            settings,
            threads=threads,
            on_iteration=on_iteration,
            checkpoints=checkpoints,
            part=number,
        )
        self._engine, self._mu0, self._train = first.engine, first.mu0, first.problem
        mains = self._train.layout.n_tables > fold.valid.layout.n_tables
        self._valid = (with_mains(fold.valid) if mains else fold.valid).over(self._train.layout)
        self._levels = first.levels
        if self._levels is not None:
            self._engine = Levelled(first.engine, self._levels)
            self._train = self._levels.widen(first.problem)
        # On the way tables keep their penalties beside one another: one number moves all of them.
        self._relative = np.ones(self._train.layout.n_tables)
        if settings.by_table:
            self._relative = first.state.penalties / first.state.lambda_theta
        self.start = self._arrive(first.state)
        n_chains = self._engine.n_chains or _EXACT_CHAINS
        other = other_work(first.problem.layout)
        # An iteration of Newton's method takes as many passes as a comparison, and there are few of them.
        self._iteration_work = float(n_chains + other) * (_PASS if self._engine.still else 1.0)
        self.iterations = first.iterations
        self.moves = float(sum(entry.chains or n_chains for entry in first.state.history))
        self.work = self.moves + self.iterations * other + _SETTLING_WORK * self._iteration_work

    @property
    def training_cost(self) -> float:
        """The work of :meth:`train_on` and a comparison."""
        return (_SEGMENT + _SETTLING_WORK + _JUDGING_WORK) * self._iteration_work

    @property
    def tightening_cost(self) -> float:
        """The work of :meth:`tighten` and a comparison."""
        return (_NEWTON_WORK + _JUDGING_WORK) * self._iteration_work

    def _new_numbers(self) -> Numbers:
        """Random numbers that no iteration has used."""
        self._streams += 1
        return Numbers(self._settings.seed, Use.WALK, (self._number << 16) + self._streams)

    def train_on(self, at: Station, lambda_theta: float, lambda_mu: float) -> Station:
        """Train on from a place with other penalties."""
        self._engine.use(self._new_numbers())
        self._engine.set_state(at.chains)
        penalties = lambda_theta * self._relative
        state = FitState(at.weights(penalties), lambda_theta, penalties)
        state.overlap = overlap_of_steps(self._train, state.weights)
        settings = replace(
            self._settings,
            lambda_theta=lambda_theta,
            lambda_mu=lambda_mu,
            iterations=_SEGMENT,
            tolerance=0.0,
            training=replace(self._settings.training, growth=1),
        )
        for _ in advance(self._engine, self._mu0, self._train, settings, state, self._threads):
            self._watch(state)
        self.work += (_SEGMENT + _SETTLING_WORK) * self._iteration_work
        return self._arrive(state)

    def _arrive(self, state: FitState) -> Station:
        """The place where training has ended, with its chains brought to the averaged weights."""
        w = state.weights
        self._engine.settle(w.mean, _SETTLE, self._new_numbers())
        judges = self._engine.population(w.mean).here(KEPT_CHAINS)
        return Station(state.lambda_theta, w.mean, w.d_run, w.c_run, self._engine.get_state(), judges)

    def tighten(self, at: Station, lambda_theta: float) -> Station:
        """The field at a larger λ_θ, by a Newton step on the chains."""
        moved = newton_step(
            self._train,
            at.judges,
            at.field,
            at.lambda_theta * self._relative,
            lambda_theta * self._relative,
            self._workers,
        )
        self.work += _NEWTON_WORK * self._iteration_work
        return replace(at, lambda_theta=lambda_theta, field=moved)

    def compare(self, at: Station, other: Station, judge: Station) -> Difference:
        """How much better one place is than another on the held-out tables, by the chains of a third."""
        self.work += _JUDGING_WORK * self._iteration_work
        law = judge.judges.over(self._valid.layout) if self._valid.records is None else self._valid.records
        return compare_heldout(self._valid, law, self._folded(at.field), self._folded(other.field))

    def _folded(self, field: Field) -> Field:
        return field if self._levels is None else self._levels.fold_field(field)
