"""Intervals for predictions and weights, from a model alone.

**Law of the weights.** Before any table is seen the weights are N(0, T), T = g^α/ρ cell by cell, with ρ and
α learnt from the fit (:mod:`.prior`). The tables tell of θ what a logistic regression on their records would
(:mod:`.information`): I.

**Centre.** The fit stands where the positives expected in each cell are c = ĉ + 2λθ̂. The centre of the
intervals is where a fit with the precision ρ would stand, where they are c − ρθ. It is found by Newton steps
on the chains. Where the penalty pulls to an earlier model's weights, θ is how far the weights are from those.

**Spread.** The centre is off by (I + ρ)⁻¹(u − ρθ), with u ~ N(0, I + noise) for what the tables could have
been off by: I taken at the centre, and the noise of the tables σ²(1 + p²) a cell, where it is known. With
weights θ ~ N(0, T) this is a draw of −θ which the tables then correct, −θ + (I + ρ)⁻¹(u + Iθ); so what the
tables do not tell of is right from the start. u is a sum over the chains, each with a normal number: nothing
is needed but gathers, tallies and conjugate gradients. A prediction's interval is its centre ± t·s, s the
root mean square over K draws and t the quantile of Student's law with K degrees of freedom, stretched to
hold the fit's own prediction: a fit with far too much penalty may predict what the tables do not bear out,
and then its interval reaches from there to where they point.

**From the mode to the mean.** These are modes: there the fit's own probabilities are those that the tables
bear out. Log-odds that are off by s (root mean square) have the mean probability p + ½·p(1 − p)(1 − 2p)·s²,
so where a label is rare they lie lower than their mode says. The centre is moved by −(I + ρ)⁻¹ times what
that adds to the positives expected in each cell, and is their mean then.

**What training left undone.** It stops before the weights are quite at rest. The weights kept are an average
that goes 3/t of the way to the last ones in iteration t since it began; where predicted log-odds moved by m
(root mean square) in ten iterations, the last weights, which have momentum and swing about where they are
going, were u = m·t/30 away.
Steps along the gradient are short where the tables tell least, so what is left is taken to be spread like
the draws of a law with precision 2λ, of mean square s̄²: the gradient left over is N(0, κ(I + 2λ)), κ =
u²/s̄², and is added to u − ρθ.

**Noisy tables.** A fit to tables that noise was taken out of has weights near 0 where the noise hid them,
and penalties that follow; a law made of these would shrink as noise grows. Instead the prior N(0, s) of each
table is learnt from the noisy tables when the model is fitted (:mod:`~agglearn.field.strength`), and what the
tables tell is lessened by their noise: a cell's r = hθ + N(0, h + ν) tells h²/(h + ν) = h/f of its weight,
f = 1 + ν/h, so I becomes f^(−½)·I·f^(−½). The draws are then √f·(I + f/s)⁻¹(u + √(f/s)·z), which goes to the
law above as the noise goes to 0 and to the prior as it grows. Variances of main effects were found before the
fit, by a law that is linear at the base rate and so takes strong effects for weaker ones; the fit does not,
and one turn of EM from it, s = E[θ²], sets them right. The centre stays a mode: of tables relieved of noise
the fit is a mean already as far as noise goes, and to move it for all of its spread is too much.

What it covers: the log-odds of a pairwise field that the records were drawn from, averaged over records and
such fields. What it does not: structure that no table shows, and chains that have not mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from agglearn.errors import InputError
from agglearn.field.field import Field
from agglearn.field.information import Information
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.field.levels import Levels, WidePopulation
from agglearn.field.population import Chains, Population, Shifts, with_intercept
from agglearn.field.problem import TableNoise
from agglearn.field.states import MOST_STATES
from agglearn.model.draw import population as draw_population
from agglearn.model.model import Model
from agglearn.runtime.memory import limit, require
from agglearn.runtime.options import check_seed
from agglearn.runtime.random import Use
from agglearn.runtime.speech import option
from agglearn.runtime.threads import thread_count
from agglearn.train.evidence import ROUND, ROUNDS
from agglearn.train.mains import is_main
from agglearn.train.state import Iteration
from agglearn.trust.prior import Normals, learn_prior, mean_square, probe_count

Floats = npt.NDArray[np.float64]

DRAWS = 64  # tell a standard deviation to 9 %
_FEWEST = 16  # draws of a field of many cells
_DRAWN_CELLS = 1 << 27  # numbers that draws are limited to: 512 MiB, unless the fewest take more
_WIDTH = 16  # draws solved for at a time: a cache line of float32
_WORKING = 7  # arrays of that width that a solution takes, by cells
_TOLERANCE = 0.003  # of the draws; at 0.01 the smallest spreads came out 2 % too large
_FINE = 0.02  # of the mode
_NEWTON_STEPS = 4  # a safeguard: they end when predictions are at rest
_SETTLED = 1e-2  # standard deviations (root mean square) that the last Newton step may move predictions by
_HALVINGS = 4  # of a Newton step that makes it worse
_LOOKED_EVERY = 10  # iterations between two looks at the predictions
_WAY = 3.0  # over t: the part of the way to the last weights that their average goes in iteration t
_JUDGED = 1 << 14  # members that the mean square of a spread is taken over
_BLOCK = 1 << 16  # records at a time
_LEAST_INFORMATION = 1e-3  # of a cell that all but no record is in: bounds what noise multiplies
_EXACT_DRAWS = 20_000  # members of a field that kept no chains: as many as a middling fit has


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the tables leave open about the weights of a model.

    Attributes
    ----------
    fitted
        The model's own field.
    centre
        The field in the middle of the law of the weights given the tables.
    draws
        How far draws of that law are from its centre.
    precision
        1/variance of the weights before any table is seen, as learnt from the tables; 2λ_θ is the fit's.
    undone
        Square of what the training left undone, beside that of what the tables leave open.
    """

    fitted: Field
    centre: Field
    draws: Shifts
    precision: float
    undone: float

    def log_odds(self, codes: Codes, level: float = 0.9, threads: int | None = None) -> tuple[Floats, Floats]:
        """Intervals for the log-odds of coded records (a row per feature): lower and upper ends.

        A value that the model does not know has weights that no table tells of, so it widens the interval
        by the prior's variance for each table; and so does a combination that a sparse table has never seen.
        """
        factor = self.quantile(level)
        lower, upper = np.empty(codes.shape[1]), np.empty(codes.shape[1])
        for start in range(0, codes.shape[1], _BLOCK):
            part = slice(start, start + _BLOCK)
            lower[part], upper[part] = self._ends(codes[:, part], factor, thread_count(threads))
        return lower, upper

    def _ends(self, codes: Codes, factor: float, threads: int) -> tuple[Floats, Floats]:
        layout = self.fitted.layout
        members = Chains(layout, np.ascontiguousarray(codes), threads=threads)
        fitted, centre = (field.log_odds(members.codes, threads) for field in (self.fitted, self.centre))
        variance = mean_square(members, self.draws)
        if (codes >= np.array(layout.cards)[:, None]).any():
            known = members.scores(np.ones(layout.n_cells))
            variance += (layout.n_tables - known) / self.precision
        if layout.tied.size:  # nor does any table tell of a cell that was never seen
            unseen = np.zeros(layout.n_cells)
            unseen[layout.tied] = 1 / self.precision
            variance += members.scores(unseen)
        reach = factor * np.sqrt(variance)
        return np.minimum(centre - reach, fitted), np.maximum(centre + reach, fitted)

    def weights(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Intervals for θ of each cell: lower and upper ends.

        Tables share what they tell of one feature: what can move from one table to another without a
        change of any prediction is known by the prior alone, and the intervals are wide accordingly.
        """
        draws = self.draws[:-1]
        squares = np.einsum("ck,ck->c", draws, draws, dtype=np.float64)  # in place: draws are large
        reach = self.quantile(level) * np.sqrt(squares / draws.shape[1])
        centre, fitted = self.centre.theta, self.fitted.theta
        return np.minimum(centre - reach, fitted), np.maximum(centre + reach, fitted)

    def quantile(self, level: float) -> float:
        """How many standard deviations an interval of this level reaches: Student's law of so many draws."""
        check_level(level)
        return float(stdtrit(self.draws.shape[1], (1 + level) / 2))


def check_level(level: float) -> None:
    """Refuse a level that no interval has."""
    if not 0 < level < 1:
        raise InputError(f"level {level} of an interval must be above 0 and below 1, such as 0.9")


def model_posterior(
    model: Model, draws: int | None = None, seed: int = 0, threads: int | None = None
) -> Posterior:
    """What the tables leave open about a model's weights.

    Parameters
    ----------
    model
        The model, with the chains it was fitted with (one fitted by enumeration can draw them).
    draws
        Draws to keep, by default 64, and down to 16 where there are many cells: a standard deviation from K
        draws is within 71 %/√K of what it would be with many.
    seed
        Seed of the draws.
    threads
        Threads to use; they change the time, never the result.
    """
    check_seed(seed)
    if draws is not None and draws < 2:
        raise InputError(f"{draws} draws tell no interval: ask for at least 2")
    if model.chains is None and not model.still and prod(model.layout.cards) > MOST_STATES:
        raise InputError(
            "the model kept no chains, and intervals are found with them: fit it again with the local engine"
        )
    members = _EXACT_DRAWS if model.chains is None else model.chains.shape[1]
    record = model.record
    drawn = draw_population(model, seed=seed, threads=threads, members=members)
    options: dict[str, Any] = {
        "noise": record.noise,
        "left_to_go": left_to_go(record.history, ROUND * ROUNDS if record.settings.by_table else 0),
        "draws": draws,
        "seed": seed,
        "threads": threads,
    }
    if record.noise is not None and record.variances is not None:
        fixed = None if record.settings.by_table else record.lambda_theta
        return posterior_of_noisy(
            drawn, model.field, model.rows, record.variances, fixed, prior=model.prior, **options
        )
    if record.settings.by_table:
        penalties, levels = record.penalties, model.levels
        if levels is not None:
            penalties = record.all_penalties(levels)
        return posterior_by_table(drawn, model.field, model.rows, penalties, levels=levels, **options)
    return posterior(drawn, model.field, model.rows, record.lambda_theta, prior=model.prior, **options)


def left_to_go(history: Sequence[Iteration], began: int = 0) -> float:
    """How far the predicted log-odds (root mean square) still were from rest, by how they had moved.

    The average they are of ``began`` at an iteration.
    """
    looks = [(entry.iteration, entry.moved) for entry in history if entry.moved is not None]
    if not looks:
        raise InputError(
            f"{len(history)} iterations are too few to tell how far the weights were from rest, which "
            "intervals depend on: fit it again with more"
        )
    last, moved = looks[-1]
    since = last - began if last > began else last
    return float(moved * since / (_WAY * _LOOKED_EVERY))


def posterior(
    population: Population,
    field: Field,
    rows: float,
    lambda_theta: float,
    *,
    prior: Floats | None = None,
    noise: TableNoise | None = None,
    left_to_go: float = 0.0,
    draws: int | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Posterior:
    """The same from a field, members of it and the penalty it was fitted with.

    ``prior`` is where the penalty pulls θ to, if not to 0; ``noise`` is that of the tables; ``left_to_go``
    how far predicted log-odds were from where training would have ended (root mean square).
    """
    _require_penalty(lambda_theta)
    layout = field.layout
    mean = np.zeros(layout.n_cells) if prior is None else prior
    draws, width = _affordable(layout, _members(population), draws)
    at_fit = Information(population, field, rows, thread_count(threads))
    sigma = _noise_of_cells(at_fit, noise)
    expected, positives = at_fit.expected()
    penalty = 2 * lambda_theta
    told = (expected + penalty * (field.theta - mean), positives)
    learnt = learn_prior(at_fit, penalty, Normals(seed, Use.PRIOR, sigma), field.theta - mean)
    precision, undone = learnt.precision, left_to_go**2 / learnt.spread
    at_mode = _mode(at_fit, told, precision, mean)
    normals = Normals(seed, Use.POSTERIOR, sigma)
    variances = learnt.variances(at_mode) + penalty * undone / precision**2
    deviations = np.sqrt(variances).astype(np.float32)[:, None]
    kept = np.empty((layout.n_cells + 1, draws), np.float32)
    for start in range(0, draws, width):
        some = range(start, min(start + width, draws))
        before = with_intercept(deviations * normals.cells(some), np.zeros(len(some)))
        right = normals.tables(at_mode, some, 1 + undone)
        right -= at_mode.times(before)
        before += at_mode.solve(right, precision, _TOLERANCE, shared=True)
        kept[:, some.start : some.stop] = before
    moved = _to_mean(at_mode, kept, precision, width, 1 + undone)
    kept[layout.tied] = 0.0  # which intervals account for by the prior
    return Posterior(field, _shifted(at_mode.field, moved), kept, precision, undone)


def posterior_by_table(
    population: Population,
    field: Field,
    rows: float,
    penalties: Floats,
    *,
    levels: Levels | None = None,
    noise: TableNoise | None = None,
    left_to_go: float = 0.0,
    draws: int | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Posterior:
    """The same of a fit that found a penalty for each table, and for the coarser ones beside them.

    These penalties are the prior, learnt from the tables: the fit is the mode, and the weights are off it
    by (I + R)⁻¹(u + √R·z), R the precision of each cell. What training left undone is a gradient of
    covariance κ(I + R), so that all draws are √(1 + κ) times as far. Where the penalties pull to does not
    matter then: the fit has been pulled there.
    """
    _require_penalty(float(penalties.min(initial=np.inf)))
    layout, at = field.layout, field
    if levels is not None:
        layout, population = levels.wide, WidePopulation(population, levels)
        more = np.zeros(layout.n_cells - field.theta.size)
        at = replace(field, layout=layout, mu=np.append(field.mu, more), theta=np.append(field.theta, more))
    draws, width = _affordable(layout, _members(population), draws)
    at_fit = Information(population, at, rows, thread_count(threads))
    precision = np.repeat(2 * penalties, layout.sizes)
    kept = _draws(at_fit, precision, _noise_of_cells(at_fit, noise), draws, width, seed)
    moved = _to_mean(at_fit, kept, precision, width, free=_untied(layout))
    if levels is not None:
        kept, moved = (with_intercept(levels.fold(some[:-1]), some[-1]) for some in (kept, moved))
        population = population.over(field.layout)
    undone = _undone(population, kept, left_to_go, threads)
    own = slice(field.layout.n_tables)
    common = float(np.average(2 * penalties[own], weights=field.layout.sizes))
    return Posterior(field, _shifted(field, moved), kept, common, undone)


def posterior_of_noisy(
    population: Population,
    field: Field,
    rows: float,
    variances: Floats,
    lambda_theta: float | None = None,
    *,
    noise: TableNoise,
    prior: Floats | None = None,
    left_to_go: float = 0.0,
    draws: int | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Posterior:
    """The same of a fit to tables that noise was taken out of (*Noisy tables* above).

    ``variances`` are those of the weights of each table before any is seen
    (:mod:`~agglearn.field.strength`). A fit with ``lambda_theta`` for all tables was not told them: its
    centre is found from where it stands.
    """
    layout = field.layout
    mean = np.zeros(layout.n_cells) if prior is None else prior
    draws, width = _affordable(layout, _members(population), draws)
    at_fit = Information(population, field, rows, thread_count(threads))
    variance = np.square(_noise_of_cells(at_fit, noise))
    hidden = 1 + variance / np.maximum(at_fit.diagonal(), _LEAST_INFORMATION)
    own, none = np.repeat(1 / variances, layout.sizes), np.zeros(layout.n_cells)
    centre = at_fit
    if lambda_theta is not None:
        expected, positives = at_fit.expected()
        told = (expected + 2 * lambda_theta * (field.theta - mean), positives)
        centre = _mode(at_fit, told, own * hidden, mean)
    root = np.sqrt(hidden).astype(np.float32)[:, None]
    probes = root * _draws(centre, own * hidden, none, probe_count(layout.n_cells), width, seed)[:-1]
    squares = np.square(centre.field.theta - mean) + np.square(probes).mean(axis=1)
    for part in (layout.part(t) for t in range(layout.n_tables) if is_main(layout, t)):
        own[part] = 1 / squares[part].mean()
    kept = _draws(centre, own * hidden, none, draws, width, seed)
    kept[:-1] *= root
    undone = _undone(population, kept, left_to_go, threads)
    return Posterior(field, centre.field, kept, float(np.average(own)), undone)


def _draws(
    information: Information, precision: Floats, sigma: Floats, draws: int, width: int, seed: int
) -> Shifts:
    """Draws of (I + R)⁻¹(u + √R·z), R the precision of each cell, σ the noise on what tables tell of it."""
    layout, normals = information.field.layout, Normals(seed, Use.POSTERIOR, sigma)
    pull = np.sqrt(precision).astype(np.float32)[:, None]
    kept = np.empty((layout.n_cells + 1, draws), np.float32)
    for start in range(0, draws, width):
        some = range(start, min(start + width, draws))
        right = normals.tables(information, some)
        right[:-1] += pull * normals.cells(some)
        kept[:, some.start : some.stop] = information.solve(
            right, precision, _TOLERANCE, free=_untied(layout), shared=True
        )
    return kept


def _to_mean(
    information: Information,
    draws: Shifts,
    precision: float | Floats,
    width: int,
    times: float = 1.0,
    free: npt.NDArray[np.bool_] | None = None,
) -> Shifts:
    """How far the mean of the weights is from their mode, by draws whose squares are so many times theirs."""
    population, squares = information.population, None
    for start in range(0, draws.shape[1], width):
        scores = information.scores(np.ascontiguousarray(draws[:, start : start + width]))
        some = population.map(lambda s: np.einsum("ik,ik->i", s, s), scores)
        squares = some if squares is None else population.map(np.add, squares, some)
    spread = population.map(lambda s: s / (times * draws.shape[1]), squares)
    return information.solve(-information.added(spread), precision, _FINE, free=free, shared=True)


def _shifted(field: Field, shift: Shifts) -> Field:
    """A field whose weights are moved."""
    cells, intercept = shift[:-1, 0].astype(np.float64), float(shift[-1, 0])
    return replace(field, theta=field.theta + cells, intercept=field.intercept + intercept)


def _undone(population: Population, draws: Shifts, left_to_go: float, threads: int | None) -> float:
    """κ of what training left undone, by which draws are then as much further."""
    seen = Chains(population.layout, population.some(_JUDGED), threads=thread_count(threads))
    undone = left_to_go**2 / float(mean_square(seen, draws).mean())
    draws *= np.float32(np.sqrt(1 + undone))
    return undone


def _require_penalty(lambda_theta: float) -> None:
    """Refuse weights that nothing holds where the tables do not."""
    if not lambda_theta > 0:
        raise InputError(f"intervals need a penalty on θ: fit with {option('lambda_theta')} above 0, or auto")


def _untied(layout: Layout) -> npt.NDArray[np.bool_] | None:
    """Cells with a θ of their own: None where all have."""
    if not layout.tied.size:
        return None
    own = np.ones(layout.n_cells, bool)
    own[layout.tied] = False
    return own


def _noise_of_cells(information: Information, noise: TableNoise | None) -> Floats:
    """Standard deviation of what the tables' noise adds to c − d·p, for each cell."""
    layout = information.field.layout
    if noise is None:
        return np.zeros(layout.n_cells)
    (expected, _), counts = information.expected(), information.counts()
    rates = np.divide(expected, counts, out=np.zeros_like(expected), where=counts > 0)
    on_d, on_c = (noise.variance_of(cells, layout) for cells in ("counts", "sums"))
    both = noise.covariance_of(layout)
    return np.asarray(np.sqrt(np.maximum(on_c + on_d * rates**2 - 2 * both * rates, 0.0)))


def _members(population: Population) -> int:
    """How many members take memory: of a law that is known exactly, its states."""
    return int(population.size) if np.isfinite(population.size) else prod(population.layout.cards)


def _affordable(layout: Layout, n_chains: int, draws: int | None) -> tuple[int, int]:
    """How many draws to make (by the cells alone, so that a seed means the same everywhere), and how many at
    a time."""
    cells = layout.n_cells
    wanted, probes = draws or int(np.clip(_DRAWN_CELLS // cells, _FEWEST, DRAWS)), probe_count(cells)

    def needed(width: int) -> int:
        fixed = 10 * 8 * cells + 4 * 8 * n_chains + 2 * n_chains * layout.n_features
        at_once = max(wanted + _WORKING * width, 2 * _WORKING * probes)
        return fixed + 4 * cells * at_once + 4 * 4 * n_chains * max(width, probes)

    width = _WIDTH
    while width > 1 and needed(width) > limit():
        width //= 2
    require(needed(width), f"{wanted} draws of the weights of {cells:,} cells", "use fewer or hashed tables")
    return wanted, width


def _mode(
    information: Information, told: tuple[Floats, float], precision: float | Floats, mean: Floats
) -> Information:
    """The information where the expected positives are those told, less ρ(θ − mean): at the centre."""
    population = information.population

    def objective(field: Field) -> float:
        scores = population.scores(field.theta, field.intercept)
        loss = information.rows * population.mean(population.map(lambda s: np.logaddexp(0.0, s), scores))
        gain = float(told[0] @ field.theta) + told[1] * field.intercept
        away = field.theta - mean
        return float(loss - gain + 0.5 * float((precision * away) @ away))

    value = objective(information.field)
    for _ in range(_NEWTON_STEPS):
        field = information.field
        expected, positives = information.expected()
        gap = np.append(told[0] - expected - precision * (field.theta - mean), told[1] - positives)
        step = information.solve(gap.astype(np.float32)[:, None], precision, _FINE, shared=True)
        whole = step[:, 0].astype(np.float64)
        for halving in range(_HALVINGS):
            part = 0.5**halving * whole
            tried = replace(field, theta=field.theta + part[:-1], intercept=field.intercept + float(part[-1]))
            tried_value = objective(tried)
            if tried_value <= value:
                break
        else:
            break
        moved = float(information.variance(step)[0] / information.total)
        information = Information(population, tried, information.rows, information.threads)
        value = tried_value
        if moved < _SETTLED**2:
            break
    return information
