"""Persistent contrastive divergence: the loop that fits a field to its tables.

Minimises −log π(A=a) + λ_θ‖θ‖² + λ_μ‖μ − μ₀‖² over the weights. Each iteration asks the engine for the
field's expectations (the local engine moves its chains by one sweep for that) and takes one step
(:mod:`.step`). The step on θ starts long and shrinks like 1/iteration, the weights that are kept are an
average that favours the last third of the iterations, and the number of chains grows at the beginning.

Everything an iteration does follows from the state before it and the iteration's number, so a run that
was killed and resumed ends with the same bits as one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.field.engines.exact import ExactEngine
from agglearn.field.engines.local import LocalEngine, memory_needed
from agglearn.field.engines.protocol import Engine
from agglearn.field.heldout import score_heldout
from agglearn.field.problem import Problem
from agglearn.field.proposals import build_proposals
from agglearn.field.start import Start, independent_start, tree_start
from agglearn.runtime.memory import require
from agglearn.runtime.threads import thread_count
from agglearn.train.checkpoint import Checkpoints, FitState
from agglearn.train.penalty import chain_noise, first_lambda, next_lambda
from agglearn.train.settings import FitSettings
from agglearn.train.step import StepInfo, StepSettings, Weights, step

Floats = npt.NDArray[np.float64]

_AVERAGING_POWER = 2  # iterate t of T weighs about (t/T)², so the last third holds 70 % of the mean
_STEP_HALVES = 20  # iterations after which the step on θ is half of what it was
_GROW_EVERY = 15  # iterations between two doublings of the chains
_LONGEST_STEP = 0.5  # however few tables there are: a whole Newton step would follow all the noise
_EXACT_STEP_MU = 1.5  # the longest step on μ that is stable where no chain lags behind the weights
_PENALTY_EVERY = 5  # iterations between two updates of a penalty that is to be found
_EXACT_DRAWS = 20_000  # records drawn from the exact law to judge on
_CHECK_EVERY = 10  # iterations between two looks at whether predictions still move
_SCORE_EVERY = 30  # iterations between two scores on held-out tables, each of which takes as long as ten
_SCORE_PATIENCE = 3  # scores in a row that may be below the best one
_PATIENCE = 5  # iterations that a misfit may grow before the step is taken for too long


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted field: its weights, the engine with its chains, and how the fit went."""

    problem: Problem
    settings: FitSettings
    mu: Floats
    theta: Floats
    intercept: float
    mu0: Floats
    engine: Engine
    state: FitState
    seconds: float

    @property
    def iterations(self) -> int:
        return self.state.iteration


def begin(
    problem: Problem, settings: FitSettings, threads: int | None = None
) -> tuple[Engine, Floats, FitState]:
    """The engine, the start μ₀ and the state before the first iteration."""
    n_chains = settings.n_chains(problem.rows)
    first = max(2, n_chains >> (settings.growth.bit_length() - 1))
    if settings.engine == "local":
        require(
            memory_needed(problem.layout, n_chains) + 14 * 8 * problem.layout.n_cells,
            f"a field of {problem.layout.n_cells:,} cells with {n_chains:,} chains",
            "use fewer chains (--chains), fewer or hashed tables",
        )
    engine: Engine
    if settings.engine == "exact":
        engine = ExactEngine(problem.layout, problem.rows)
        start = _start(problem, settings, 2)
    else:
        start = _start(problem, settings, first)
        proposals = None
        if max(problem.layout.cards) > settings.exact_up_to:
            proposals = build_proposals(problem.layout, problem.d, settings.exact_up_to)
        engine = LocalEngine(
            problem.layout,
            start.chains,
            problem.rows,
            settings.seed,
            threads=threads,
            proposals=proposals,
            exact_up_to=settings.exact_up_to,
            proposals_per_feature=settings.proposals,
            marginal_label=settings.marginal_label,
        )
    penalty = settings.fixed_theta
    if penalty is None:
        penalty = first_lambda(int(np.count_nonzero(problem.d > 0)), problem.positives)
    return engine, start.mu, FitState(Weights.at(start.mu, problem.base_log_odds), penalty)


def _start(problem: Problem, settings: FitSettings, n_chains: int) -> Start:
    make = tree_start if settings.start == "tree" else independent_start
    return make(problem.layout, problem.d, problem.rows, n_chains, settings.seed)


def iterate(
    engine: Engine,
    mu0: Floats,
    problem: Problem,
    settings: FitSettings,
    state: FitState,
    threads: int | None = None,
) -> Iterator[FitState]:
    """Train from a state on, giving the (same, updated) state after every iteration."""
    while state.stopped_because is None:
        began = time.perf_counter()
        _grow(engine, problem, settings, state.iteration)
        steps = _steps(problem, settings, state)
        weights = state.weights
        expected = engine.expect(weights.mu, weights.theta, weights.intercept, state.iteration)
        info = step(weights, mu0, problem, expected, steps, thread_count(threads))
        state.iteration += 1
        _guard(state, info)
        entry = {
            "iteration": state.iteration,
            **asdict(info),
            "step_mu": steps.step_mu,
            "step_theta": steps.step_theta,
            "lambda_theta": steps.lambda_theta,
            "chains": getattr(engine, "n_chains", 0),
            **expected.info,
            "seconds": time.perf_counter() - began,
        }
        state.history.append(entry)
        if state.iteration >= settings.iterations:
            state.stopped_because = "iterations"
        if settings.fixed_theta is None and state.iteration % _PENALTY_EVERY == 0:
            n_chains = settings.n_chains(problem.rows) if settings.engine == "local" else 0
            noise = chain_noise(problem.rows, n_chains)
            seen = info.gamma, info.theta_squared, problem.layout.n_tables
            state.lambda_theta = next_lambda(state.lambda_theta, *seen, noise)
        if state.iteration % _CHECK_EVERY == 0:
            _look_at_predictions(engine, settings, state, entry)
        yield state


def _steps(problem: Problem, settings: FitSettings, state: FitState) -> StepSettings:
    t, tables = state.iteration, problem.layout.n_tables
    theta = max(settings.first_step_theta / (1 + t / _STEP_HALVES), settings.step_theta)
    longest_mu = settings.step_mu if settings.engine == "local" else min(settings.step_mu, _EXACT_STEP_MU)
    mean_weight = (_AVERAGING_POWER + 1) / (t + 1 + _AVERAGING_POWER) if settings.averaging else 1.0
    return StepSettings(
        lambda_mu=settings.fixed_mu,
        lambda_theta=state.lambda_theta,
        step_mu=state.step_scale * min(longest_mu / tables, _LONGEST_STEP),
        step_theta=state.step_scale * min(theta / tables, _LONGEST_STEP),
        rescaled=settings.gradient == "rescaled",
        preconditioned=settings.preconditioned,
        rate_memory=settings.rate_memory,
        mean_weight=mean_weight,
    )


def _grow(engine: Engine, problem: Problem, settings: FitSettings, iteration: int) -> None:
    """Double the chains at regular intervals until they are all there."""
    if not isinstance(engine, LocalEngine):
        return
    full = settings.n_chains(problem.rows)
    missing_doublings = max(settings.growth.bit_length() - 1 - iteration // _GROW_EVERY, 0)
    wanted = max(2, full >> missing_doublings)
    if wanted > engine.n_chains:
        engine.grow(wanted, iteration)


def _guard(state: FitState, info: StepInfo) -> None:
    """Shorten the steps when the tables are fitted worse and worse."""
    misfit = info.misfit_d + info.misfit_c
    if not info.finite:
        raise FloatingPointError("the weights are no longer finite")  # a bug: steps are bounded
    state.best_misfit = min(state.best_misfit, misfit)
    worse = misfit > 2 * state.best_misfit + 0.02
    state.bad_iterations = state.bad_iterations + 1 if worse else 0
    if state.bad_iterations >= _PATIENCE:
        state.step_scale /= 2
        state.bad_iterations = 0
        state.best_misfit = misfit  # what it was is out of reach: ask for progress from here


def _look_at_predictions(
    engine: Engine, settings: FitSettings, state: FitState, entry: dict[str, Any]
) -> None:
    """Stop when the predictions of the averaged weights have come to rest."""
    weights = state.weights
    if state.theta_seen.size:
        moved = weights.theta_mean - state.theta_seen
        shift = weights.intercept_mean - state.intercept_seen
        entry["moved"] = _root_mean_square(engine, moved, shift, weights)
        grown = state.iteration >= _GROW_EVERY * settings.growth.bit_length()
        if entry["moved"] < settings.tolerance and (grown or settings.engine == "exact"):
            state.stopped_because = "predictions settled"
    state.theta_seen = weights.theta_mean.copy()
    state.intercept_seen = weights.intercept_mean


def _root_mean_square(engine: Engine, vector: Floats, shift: float, weights: Weights) -> float:
    """√E[(φ(x)·vector + shift)²] under the field."""
    if isinstance(engine, ExactEngine):
        law = engine.probabilities(weights.mu, weights.theta, weights.intercept).sum(axis=1)
        return float(np.sqrt(law @ (engine.scores(vector) + shift) ** 2))
    if isinstance(engine, LocalEngine):
        return float(np.sqrt(np.mean(engine.scores(vector, shift) ** 2)))
    raise TypeError(f"no scores from {type(engine).__name__}")


def _score_on(valid: Problem, engine: Engine, state: FitState, threads: int | None, stops: bool) -> None:
    """Put the score of the averaged weights on held-out tables into the history, and stop if that is due."""
    weights = state.weights
    codes = sample_codes(engine, weights.mu_mean, weights.theta_mean, weights.intercept_mean)
    score = score_heldout(valid, codes, weights.theta_mean, weights.intercept_mean, thread_count(threads))
    state.history[-1] |= {"valid_nllh": score.nllh, "valid_nllh_se": score.nllh_se}
    scores = [entry["valid_nllh"] for entry in state.history if "valid_nllh" in entry]
    # Scores share most of their error, but not that of the chains: one that is a little lower says nothing.
    if stops and state.stopped_because is None and len(scores) - np.argmax(scores) > _SCORE_PATIENCE:
        state.stopped_because = "held-out score"


def sample_codes(engine: Engine, mu: Floats, theta: Floats, intercept: float) -> npt.NDArray[np.uint16]:
    """Records of the field, a row per feature: the chains, or draws of the exact engine."""
    if isinstance(engine, ExactEngine):
        chains, _ = engine.sample(_EXACT_DRAWS, mu, theta, intercept, 0)
    elif isinstance(engine, LocalEngine):
        chains = engine.chains
    else:
        raise TypeError(f"no records from {type(engine).__name__}")
    return np.ascontiguousarray(chains.T)


def fit(
    problem: Problem,
    settings: FitSettings | None = None,
    *,
    threads: int | None = None,
    on_iteration: Callable[[FitState], None] | None = None,
    checkpoints: Checkpoints | None = None,
    valid: Problem | None = None,
    stop_by_valid: bool = False,
) -> Fit:
    """Fit a field to its tables.

    Parameters
    ----------
    problem
        The tables, as flat vectors.
    settings
        How to fit.
    threads
        Threads to use (all cores by default); they change the time, never the result.
    on_iteration
        Called with the state after each iteration, for a display.
    checkpoints
        Where to keep states, and where to go on from if there is one already.
    valid
        Held-out tables to score now and then; the scores stand in the history.
    stop_by_valid
        Whether to stop when the score has not become better for some time.
    """
    settings = settings or FitSettings()
    began = time.perf_counter()
    engine, mu0, state = begin(problem, settings, threads)
    if checkpoints is not None:
        state = checkpoints.resume(problem, settings, engine, state)
    for _ in iterate(engine, mu0, problem, settings, state, threads):
        if valid is not None and (state.iteration % _SCORE_EVERY == 0 or state.stopped_because):
            _score_on(valid, engine, state, threads, stop_by_valid)
        if on_iteration is not None:
            on_iteration(state)
        if checkpoints is not None:
            checkpoints.keep(engine, state)
    weights = state.weights
    return Fit(
        problem=problem,
        settings=settings,
        mu=weights.mu_mean,
        theta=weights.theta_mean,
        intercept=weights.intercept_mean,
        mu0=mu0,
        engine=engine,
        state=state,
        seconds=time.perf_counter() - began,
    )
