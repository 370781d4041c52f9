"""Newton's method, for an engine whose law of X stays where it is.

Where X is known by its records, θ is the minimum of a convex function, the penalised logistic regression:

    F(θ, θ₀) = n·E[log(1 + e^s)] − c'·θ − positives·θ₀ + ½·Σ_k ρ_k(θ_k − m_k)²,   s = φ(x)·θ + θ₀,

with m the prior's mean, by the steps of :mod:`agglearn.field.newton`.

**c'.** The tables' c is of d records in a cell, the records at hand may have d̂ there. What the tables tell is
the rate, so c' = c + q(d̂ − d) with q = c/d as the cell shows it; where the records are those behind the
tables c' = c.

**Penalties** that are to be found follow the same rules as elsewhere (:mod:`.evidence`, :mod:`.penalty`), set
anew after a few steps each time; then θ goes on to where it rests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from agglearn.field.engines.protocol import Engine
from agglearn.field.newton import LOGISTIC, Objective, left_after, newton_step
from agglearn.field.problem import Problem
from agglearn.runtime.threads import thread_count
from agglearn.train.evidence import ROUNDS, overlap_of_tables, set_penalties, table_penalties, weigh
from agglearn.train.penalty import next_lambda, overlap
from agglearn.train.settings import FitSettings
from agglearn.train.state import FitState, Iteration

Floats = npt.NDArray[np.float64]

_FIRST_ROUND, _ROUND = 3, 1  # Newton steps before penalties are first set, and between
_SINGLE_ROUNDS = 12  # of one penalty for all, which changes by a factor of two at most at a time
_REST_SHARE = 1e-2  # of a tolerance: how far from the optimum scores may be left
_REST = 2e-4  # the same, root mean square of log-odds, where no tolerance is given
_LEAST_REST = 1e-9  # root mean square of log-odds, below which rounding moves them
_LOOSE, _TIGHT = 0.3, 0.03  # how well the equations of a step are solved, far from the end and near it


def converge(
    engine: Engine,
    mu0: Floats,
    problem: Problem,
    settings: FitSettings,
    state: FitState,
    threads: int | None = None,
) -> Iterator[FitState]:
    """Train from a state on, giving the (same, updated) state after every step."""
    population = engine.population(state.weights.now)
    target = targets(problem, problem.rows * population.shares())
    slack = float(np.abs(problem.rows * population.shares() - problem.d).sum())
    rest = _REST if settings.tolerance is None else max(_REST_SHARE * settings.tolerance, _LEAST_REST)
    weights, n = state.weights, problem.rows
    while state.stopped_because is None:
        began = time.perf_counter()
        goal = Objective(
            population,
            n,
            LOGISTIC,
            target,
            problem.positives,
            weights.precision,
            weights.prior if weights.prior.size else np.zeros(1),
            problem.learnt,
        )
        done = newton_step(weights.now, goal, _wanted(state, rest), thread_count(threads))
        weights.theta[:], weights.intercept = done.field.theta, done.field.intercept
        weights.theta_mean[:], weights.intercept_mean = weights.theta, weights.intercept
        weights.d_run[:], weights.c_run[:] = n * population.shares(), done.expected
        misfit = np.abs(done.expected - target).sum() / (2 * problem.positives * problem.layout.n_tables)
        state.iteration += 1
        state.history.append(
            Iteration(
                iteration=state.iteration,
                misfit_d=slack / (2 * problem.rows * problem.layout.n_tables),
                misfit_c=float(misfit),
                chi2_d=0.0,
                grad_mu=0.0,
                grad_theta=done.gradient,
                step_mu=0.0,
                step_theta=done.length,
                lambda_theta=state.lambda_theta,
                chains=0,
                seconds=time.perf_counter() - began,
                moved=done.moved,
            )
        )
        found = _find_penalties(problem, settings, state)
        if found and (done.left < rest or done.length == 0.0):
            state.stopped_because = "at rest"
        elif state.iteration >= settings.iterations:
            state.stopped_because = "iterations"
        yield state


def targets(problem: Problem, d: Floats) -> Floats:
    """c' (see the module) for d records in each cell."""
    sigma = 0.0 if problem.noise is None else np.repeat(problem.noise.counts, problem.layout.sizes)
    held = np.maximum(problem.d, 0.0) + sigma
    rates = np.full_like(problem.d, problem.rate)
    np.divide(problem.c + sigma * problem.rate, held, out=rates, where=held > 0)
    target = problem.c + np.clip(rates, 0.0, 1.0) * (d - problem.d)
    if problem.noise is None:  # what rounding leaves of a cell that no record is in
        target = np.clip(target, 0.0, d)
    return np.asarray(target)


def _wanted(state: FitState, rest: float) -> float:
    """How well to solve the next step: better as they get shorter, and no better than the last one needs."""
    moves = [step.moved or 0.0 for step in state.history[-2:]]
    if not moves:
        return _LOOSE
    usual = [float(np.clip(moved, _TIGHT, _LOOSE)) for moved in moves]
    if len(moves) == 1:
        return usual[-1]
    ahead = max(left_after(moves[1], usual[0]), _LEAST_REST)
    return min(max(usual[-1], 0.5 * rest / ahead), _LOOSE)


def _find_penalties(problem: Problem, settings: FitSettings, state: FitState) -> bool:
    """Find penalties anew where that is due; whether they are all found."""
    if settings.fixed_theta is not None:
        return True
    weights, layout = state.weights, problem.layout
    if settings.by_table:
        rounds = (state.iteration - _FIRST_ROUND) / _ROUND
        if rounds in range(ROUNDS):
            weigh_now = weigh(problem, weights, overlap_of_tables(layout))
            noise = settings.training.strength if rounds == ROUNDS - 1 else 1.0
            state.penalties, state.lambda_theta = table_penalties(layout, weigh_now, noise)
            set_penalties(problem, weights, state.penalties)
        return rounds >= ROUNDS
    if state.iteration <= _SINGLE_ROUNDS:
        found = weigh(problem, weights, overlap(layout.n_tables))
        seen = float(found.gamma.sum()), float(found.squares.sum()), layout.n_tables
        state.lambda_theta = next_lambda(state.lambda_theta, *seen)
        state.penalties[:] = state.lambda_theta
        weights.precision[:] = 2 * state.lambda_theta
    return state.iteration > _SINGLE_ROUNDS
