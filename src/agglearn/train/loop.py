"""Persistent contrastive divergence: the loop that fits a field to its tables.

Minimises −log π(A=a) + Σ_t λ_t‖θ_t‖² + λ_μ‖μ − μ₀‖² over the weights, with one λ for each table
(:mod:`.evidence`) or one for all (:mod:`.penalty`). Each iteration asks the engine for the field's
expectations (the local engine moves its chains by one sweep for that) and takes one step (:mod:`.step`).
Steps start long and shrink like 1/iteration, the weights that are kept are an average that favours the last
third of the iterations (steps on θ and the average begin anew when penalties are set), and the number of
chains grows at the beginning.

Everything an iteration does follows from the state before it and the iteration's number, so a run that
was killed and resumed ends with the same bits as one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from agglearn.field.engines.exact import open_exact
from agglearn.field.engines.levelled import Levelled
from agglearn.field.engines.local import open_local
from agglearn.field.engines.mixture import open_mixture
from agglearn.field.engines.protocol import KEPT_CHAINS, Engine, EngineOptions, Opener
from agglearn.field.engines.spark import open_spark
from agglearn.field.field import Field
from agglearn.field.heldout import score_heldout
from agglearn.field.levels import Levels
from agglearn.field.population import Population
from agglearn.field.problem import Problem
from agglearn.field.start import STARTS
from agglearn.runtime.random import Numbers, Use
from agglearn.runtime.threads import thread_count
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.converge import converge
from agglearn.train.evidence import (
    ROUND,
    ROUNDS,
    first_penalties,
    is_last_round,
    is_round,
    known_mains,
    overlap_of_steps,
    overlap_of_tables,
    set_penalties,
    since_round,
    table_penalties,
    uncertainty,
    weigh,
)
from agglearn.train.law import stands_apart
from agglearn.train.mains import wants_mains, with_mains
from agglearn.train.penalty import chain_noise, first_lambda, next_lambda, overlap
from agglearn.train.settings import FitSettings
from agglearn.train.state import FitState, Iterates, Iteration, Warm
from agglearn.train.step import StepInfo, StepSettings, share_given_x, step

Floats = npt.NDArray[np.float64]

_ENGINES: Mapping[str, Opener] = {"local": open_local, "exact": open_exact, "spark": open_spark}
_BESIDE_RECORDS: Mapping[str, Opener] = {
    "local": open_mixture,
    "exact": open_mixture,
    "spark": partial(open_mixture, chains=open_spark),
}

_AVERAGING_POWER = 2  # iterate t of T weighs about (t/T)², so the last third holds 70 % of the mean
_STEP_HALVES, _MU_HALVES = 40, 60  # iterations after which the step on θ, and on μ, is half of what it was
# Iterations between two doublings of the chains. Were they all there only when penalties are found, a fit
# would take a quarter less time, and its penalties come out too light where chains are few for the records.
_GROW_EVERY = 15
_LONGEST_STEP = 0.5  # however few tables there are: a whole Newton step would follow all the noise
_PENALTY_EVERY = 5  # iterations between two updates of a penalty that is to be found
# A penalty for all tables that fell below this share of itself in the last round has further to fall: there
# are rounds until it does not, which strong labels need (a set of textures: 0.80 without, 0.87 with them).
_FALLING, _TIME_LEFT = 0.8, 3  # and the rounds' time that must be left for one more
_CHECK_EVERY = 10  # iterations between two looks at whether predictions still move
_SCORE_EVERY = 30  # iterations between two scores on held-out tables, each of which takes as long as ten
_SCORE_PATIENCE = 3  # scores in a row that may be below the best one
_PATIENCE = 5  # iterations that a misfit may grow before the step is taken for too long
_INERTIA_LOST = 0.5  # of the momentum, each time that weights run away
_SOUND = 1.5  # times the least misfit of the label: penalties found below that were not found on the run
_WORSE, _MUCH = 2.0, 0.02  # a misfit is growing when it is that many times the least one, and so much more


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted field, the engine with its chains, and how the fit went.

    The problem is what it was fitted to: where penalties are found by table, with main effects beside the
    tables given. Where there are levels, the state is over all of them, everything else over the tables.
    """

    problem: Problem
    settings: FitSettings
    field: Field
    mu0: Floats
    engine: Engine
    state: FitState
    seconds: float
    levels: Levels | None = None

    @property
    def penalties(self) -> Floats:
        """λ_θ of each table."""
        return self.state.penalties[: self.problem.layout.n_tables]

    @property
    def level_penalties(self) -> dict[tuple[int, int], float]:
        """λ_θ of each coarser table, by the table it is of and its level."""
        if self.levels is None:
            return {}
        behind = self.state.penalties[self.problem.layout.n_tables :].tolist()
        return dict(zip(self.levels.keys, behind, strict=True))

    @property
    def iterations(self) -> int:
        return self.state.iteration


def begin(
    problem: Problem,
    settings: FitSettings,
    threads: int | None = None,
    part: int = 0,
    warm: Warm | None = None,
    storage: str | None = None,
) -> tuple[Engine, Floats, FitState]:
    """The engine, the start μ₀ and the state before the first iteration.

    Fits of one seed that stand side by side are told apart by their ``part``. ``warm`` is where an earlier
    fit ended, ``storage`` a folder for what an engine does not keep in this process.
    """
    n_chains, how = settings.n_chains(problem.rows), settings.training
    options = EngineOptions(
        chains=n_chains,
        first_chains=_chains_at(0, n_chains, how.growth),
        numbers=Numbers(settings.seed, Use.TRAIN, part),
        exact_up_to=how.exact_up_to,
        proposals=how.proposals,
        marginal_label=how.marginal_label,
        groups=how.groups,
        threads=threads,
        storage=storage,
    )
    openers = _ENGINES if problem.records is None else _BESIDE_RECORDS
    engine, mu0 = openers[settings.engine](problem, warm.start if warm else STARTS[how.start], options)
    penalty = settings.fixed_theta
    if penalty is None:
        penalty = first_lambda(int(np.count_nonzero(problem.d > 0)), problem.positives)
    penalties = np.full(problem.layout.n_tables, float(penalty))
    if settings.by_table:
        penalties = first_penalties(problem)
    theta = np.zeros_like(mu0) if problem.prior is None else problem.prior
    apart = how.law == "apart" or (how.law == "auto" and stands_apart(problem))
    first = Field(problem.layout, mu0, theta, problem.base_log_odds, apart)
    if warm is None:
        return engine, mu0, FitState(Iterates.at(first, penalties, problem.prior), penalty, penalties)
    if settings.fixed_theta is None:
        penalty, penalties = warm.lambda_theta, warm.penalties.copy()
    begun = replace(warm.field, apart=apart)
    state = FitState(Iterates.at(begun, penalties, problem.prior), penalty, penalties)
    state.ahead = ROUND * ROUNDS  # its penalties are known, and its steps are short
    return engine, mu0, state


def widen(
    engine: Engine,
    problem: Problem,
    levels: Levels,
    mu0: Floats,
    state: FitState,
    warm: Warm | None = None,
    threads: int | None = None,
) -> tuple[Engine, Problem, Floats, FitState]:
    """Engine, problem, start and state with coarser tables beside the tables."""
    wide = levels.widen(problem)
    penalties = first_penalties(wide) if warm is None else warm.all_penalties(levels)
    begun = levels.begin(state.weights.now, penalties, problem.prior)
    weights = Iterates.at(begun, penalties, wide.prior)
    begun_at = replace(state, weights=weights, penalties=penalties)
    start = np.append(mu0, np.zeros(begun.mu.size - mu0.size))
    return Levelled(engine, levels, thread_count(threads)), wide, start, begun_at


def levels_of(problem: Problem, settings: FitSettings) -> Levels | None:
    """The coarser tables that stand beside those of a problem, where penalties are found by table."""
    if not (settings.by_table and settings.training.levels and problem.ordered):
        return None
    return Levels.of(problem.layout, problem.ordered, problem.free)


def _chains_at(iteration: int, full: int, growth: int) -> int:
    """How many chains there are: they double at regular intervals until they are all there."""
    return max(2, full >> max(growth.bit_length() - 1 - iteration // _GROW_EVERY, 0))


def iterate(
    engine: Engine,
    mu0: Floats,
    problem: Problem,
    settings: FitSettings,
    state: FitState,
    threads: int | None = None,
) -> Iterator[FitState]:
    """Train from a state on, giving the (same, updated) state after every iteration."""
    n_chains = settings.n_chains(problem.rows) if engine.n_chains else 0
    while state.stopped_because is None:
        began = time.perf_counter()
        done = state.iteration + state.ahead
        engine.grow(_chains_at(done, n_chains, settings.training.growth), state.iteration)
        steps = _steps(engine, settings, state)
        expected = engine.expect(state.weights.now, state.iteration, state.weights.law)
        info = step(state.weights, mu0, problem, expected, steps, thread_count(threads))
        state.iteration += 1
        runs_away = _guard(state, info, settings.by_table)
        state.history.append(
            Iteration(
                iteration=state.iteration,
                **asdict(info),
                step_mu=steps.step_mu,
                step_theta=steps.step_theta,
                lambda_theta=state.lambda_theta,
                chains=engine.n_chains,
                **expected.info,
                seconds=time.perf_counter() - began,
            )
        )
        spread = expected.spread
        del expected  # two numbers a cell: the next sweep is to have room for its own
        if state.iteration >= settings.iterations:
            state.stopped_because = "iterations"
        if runs_away:
            _begin_anew(problem, mu0, state)
        else:
            _find_penalties(problem, settings, state, n_chains, spread)
        if state.iteration % _CHECK_EVERY == 0:
            _look_at_predictions(engine, problem, settings, state, n_chains, spread)
        yield state


def advance(
    engine: Engine,
    mu0: Floats,
    problem: Problem,
    settings: FitSettings,
    state: FitState,
    threads: int | None = None,
) -> Iterator[FitState]:
    """Train from a state on: step by step, or by Newton's method where the law of X stays where it is."""
    train = converge if engine.still else iterate
    return train(engine, mu0, problem, settings, state, threads)


def _find_penalties(
    problem: Problem, settings: FitSettings, state: FitState, n_chains: int, spread: float | None
) -> None:
    """Find the penalties anew, where they are to be found and it is time to."""
    if settings.fixed_theta is not None:
        return
    if settings.by_table:
        if is_round(state.iteration + state.ahead):
            _find_by_table(problem, settings, state, n_chains, spread)
    elif state.iteration % _PENALTY_EVERY == 0:
        weights, tables = state.weights, problem.layout.n_tables
        found = weigh(problem, weights, overlap(tables))
        seen = float(found.gamma.sum()), float(found.squares.sum()), tables
        state.lambda_theta = next_lambda(state.lambda_theta, *seen, chain_noise(problem.rows, n_chains))
        state.penalties[:] = state.lambda_theta
        weights.precision[:] = 2 * state.lambda_theta


def _find_by_table(
    problem: Problem, settings: FitSettings, state: FitState, n_chains: int, spread: float | None
) -> None:
    """One round: a penalty for each table. Where it is the last and they still fall, there is one more."""
    weights, layout = state.weights, problem.layout
    left = 1.0 if weights.apart else share_given_x(spread, problem)
    found = weigh(problem, weights, overlap_of_tables(layout), left)
    noise = chain_noise(problem.rows, n_chains, averaged=ROUND)
    penalties, common = table_penalties(layout, found, noise)
    if is_last_round(state.iteration + state.ahead, settings.iterations):
        if common < _FALLING * state.lambda_theta and _has_time(state, settings):
            state.ahead -= ROUND
        else:
            noise = chain_noise(problem.rows, n_chains) * settings.training.strength
            penalties, common = table_penalties(layout, found, noise)
    state.penalties, state.lambda_theta = known_mains(problem, penalties), common
    set_penalties(problem, weights, state.penalties)
    state.overlap = overlap_of_steps(problem, weights, noise)
    weights.velocity[:], weights.push = 0.0, 0.0


def _has_time(state: FitState, settings: FitSettings) -> bool:
    """Whether a round more leaves time to average weights afterwards."""
    return state.iteration + _TIME_LEFT * ROUND <= settings.iterations


def _steps(engine: Engine, settings: FitSettings, state: FitState) -> StepSettings:
    t, tables, how = state.iteration, engine.layout.own[0], settings.training
    if settings.by_table:  # new penalties are a new problem
        t = since_round(t + state.ahead)
    theta = max(how.first_step_theta / (1 + (t + max(state.ahead, 0)) / _STEP_HALVES), how.step_theta)
    done = state.iteration + state.ahead
    mu = max(how.first_step_mu / (1 + done / _MU_HALVES), how.step_mu)
    mu = min(mu, engine.longest_step_mu)
    mean_weight = (_AVERAGING_POWER + 1) / (t + 1 + _AVERAGING_POWER) if how.averaging else 1.0
    return StepSettings(
        lambda_mu=settings.fixed_mu,
        step_mu=state.step_scale * min(mu / tables, _LONGEST_STEP),
        step_theta=state.step_scale * min(theta / (state.overlap or tables), _LONGEST_STEP),
        momentum=how.momentum * state.inertia,
        lag=how.lag,
        rescaled=how.gradient == "rescaled",
        preconditioned=how.preconditioned,
        rate_memory=how.rate_memory,
        mean_weight=mean_weight,
    )


def _guard(state: FitState, info: StepInfo, by_table: bool) -> bool:
    """Look whether the tables are fitted worse and worse: shorten the steps, or say that weights run away.

    They do where it is the label that is fitted worse: momentum swings further each time, and the evidence
    takes the swings for effects. Before penalties were found the chains may yet be on their way.
    """
    misfit, runs_away = info.misfit_d + info.misfit_c, False
    if not info.finite:
        raise FloatingPointError("the weights are no longer finite")  # a bug: steps are bounded
    state.best_misfit = min(state.best_misfit, misfit)
    worse = misfit > _WORSE * state.best_misfit + _MUCH
    state.bad_iterations = state.bad_iterations + 1 if worse else 0
    if state.bad_iterations >= _PATIENCE:
        of_label = info.misfit_c > _WORSE * min(entry.misfit_c for entry in state.history)
        found = by_table and state.ahead <= 0 and state.iteration + state.ahead > ROUND
        runs_away = found and of_label and state.inertia > 0
        if runs_away:
            state.inertia = max(state.inertia - _INERTIA_LOST, 0.0)
        else:
            state.step_scale /= 2
        state.bad_iterations = 0
        state.best_misfit = misfit  # what it was is out of reach: ask for progress from here
    return runs_away


def _begin_anew(problem: Problem, mu0: Floats, state: FitState) -> None:
    """Go back to where training began, but for the chains, or if the penalties are sound to the mean weights.

    Penalties that were found while weights ran away are as light as these were large, and would stay so.
    """
    weights = state.weights
    if _are_sound(state):
        weights.go_back()
        state.ahead = ROUND * ROUNDS - state.iteration
    else:
        theta = np.zeros_like(mu0) if problem.prior is None else problem.prior
        first = Field(problem.layout, mu0, theta, problem.base_log_odds, weights.apart)
        state.penalties = first_penalties(problem)
        state.weights = Iterates.at(first, state.penalties, problem.prior)
        state.ahead, state.overlap = -state.iteration, 0.0
    state.theta_seen = np.zeros(0)
    state.best_misfit = np.inf


def _are_sound(state: FitState) -> bool:
    """Whether the label was fitted as well as ever when penalties were last found, and no more are to be."""
    misfits = [entry.misfit_c for entry in state.history]
    last = ROUND * ROUNDS - state.ahead
    return last < state.iteration and misfits[last - 1] < _SOUND * min(misfits)


def _look_at_predictions(
    engine: Engine,
    problem: Problem,
    settings: FitSettings,
    state: FitState,
    n_chains: int,
    spread: float | None,
) -> None:
    """Stop when the predictions of the averaged weights have come to rest."""
    weights = state.weights
    if state.theta_seen.size:
        # In the place of what was seen, which is not looked at again.
        gone = np.subtract(weights.theta_mean, state.theta_seen, out=state.theta_seen)
        by = gone, weights.intercept_mean - state.intercept_seen
        population = engine.population(weights.law)
        moved = float(np.sqrt(population.mean(population.map(np.square, population.scores(*by)))))
        state.history[-1] = replace(state.history[-1], moved=moved)
        grown = engine.n_chains >= n_chains
        known = not settings.by_table or state.iteration + state.ahead >= ROUND * (ROUNDS + 1)
        if grown and known and moved < _tolerance(problem, settings, state, spread):
            state.stopped_because = "predictions settled"
    if state.theta_seen.size:
        state.theta_seen[:] = weights.theta_mean
    else:
        state.theta_seen = weights.theta_mean.copy()
    state.intercept_seen = weights.intercept_mean


def _tolerance(problem: Problem, settings: FitSettings, state: FitState, spread: float | None) -> float:
    """By how much predictions may move and be taken to rest."""
    if settings.tolerance is not None:
        return settings.tolerance
    return settings.training.rest * uncertainty(problem, state.weights, spread)


def _score_on(valid: Problem, engine: Engine, state: FitState, stops: bool, levels: Levels | None) -> None:
    """Put the score of the averaged weights on held-out tables into the history, and stop if that is due."""
    field = state.weights.mean
    law: Population = valid.records or engine.population(field).here(KEPT_CHAINS).over(valid.layout)
    score = score_heldout(valid, law, field if levels is None else levels.fold_field(field))
    state.history[-1] = replace(state.history[-1], valid_nllh=score.nllh, valid_nllh_se=score.nllh_se)
    scores = [entry.valid_nllh for entry in state.history if entry.valid_nllh is not None]
    # Scores share most of their error, but not that of the chains: one that is a little lower says nothing.
    if stops and state.stopped_because is None and len(scores) - np.argmax(scores) > _SCORE_PATIENCE:
        state.stopped_because = "held-out score"


def fit(
    problem: Problem,
    settings: FitSettings | None = None,
    *,
    threads: int | None = None,
    on_iteration: Callable[[FitState], None] | None = None,
    checkpoints: Checkpoints | None = None,
    valid: Problem | None = None,
    stop_by_valid: bool = False,
    part: int = 0,
    warm: Warm | None = None,
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
    part
        Which of several fits of one seed this is: each has random numbers of its own.
    warm
        Where an earlier fit ended, to begin from.
    """
    settings = settings or FitSettings()
    began = time.perf_counter()
    if wants_mains(problem, settings.by_table):
        problem = with_mains(problem)
        valid = None if valid is None else with_mains(valid).over(problem.layout)
    storage = None if checkpoints is None else checkpoints.storage
    inner, mu0, state = begin(problem, settings, threads, part, warm, storage)
    engine, wide, levels = inner, problem, levels_of(problem, settings)
    if levels is not None:
        engine, wide, mu0, state = widen(inner, problem, levels, mu0, state, warm, threads)
    if checkpoints is not None:
        state = checkpoints.resume(wide, settings, engine, state)
    for _ in advance(engine, mu0, wide, settings, state, threads):
        if valid is not None and (state.iteration % _SCORE_EVERY == 0 or state.stopped_because):
            _score_on(valid, engine, state, stop_by_valid, levels)
        if on_iteration is not None:
            on_iteration(state)
        if checkpoints is not None:
            checkpoints.keep(engine, state)
    return Fit(
        problem=problem,
        settings=settings,
        field=state.weights.mean if levels is None else levels.fold_field(state.weights.mean),
        mu0=mu0,
        engine=inner,
        state=state,
        seconds=time.perf_counter() - began,
        levels=levels,
    )
