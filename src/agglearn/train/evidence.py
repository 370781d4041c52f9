"""A penalty for each table, by the evidence of all tables together.

The weights of table t are taken for draws of N(0, s_t): the penalty on θ_k is ½·ρ_k·θ_k² with
ρ_k = f_k/s_t. Most pairs of features have no interaction worth the name, some have a strong one, and one
penalty for all is too light for the former and too heavy for the latter.

**Rule.** Given weights fitted with penalties ρ, the evidence of s_t is greatest where ‖θ_t‖² = γ_t·s_t, with
γ_t the number of the table's weights that the data determine. As in :mod:`.penalty`

    γ_t = Σ_k x_k/(1 + (κ − 1)x_k),   x_k = h_k/(h_k + ρ_k),   h_k = v·d_k·p̂_k(1 − p̂_k),

v = E[p(1 − p)]/q(1 − q) being what x leaves of the label's variance: a record tells of a weight by what its
other cells leave open. With v = 1 γ_t came out too large, and weights of sharp labels were held back: on
validation records of three splits Bank had 0.4914, 0.4702, 0.4945, and has 0.4928, 0.4747, 0.4980. Where X
stands apart from the label (:mod:`.law`) v = 1: the chance of its records then is noise in c, which
d·p̂(1 − p̂) holds as well (nursery 0.827 with that, 0.821 without).

κ = √max(1, T/30) for T tables of two or more features: the posterior variance of a weight is larger than
1/(h + ρ), because other tables can stand in for it. Those of main effects have κ = 1: the others are held far
more firmly than they are. On validation records κ = 1, √(T/30), T/30 gave credit
0.198, 0.195, 0.165, Bank 0.481, 0.480, 0.465, Adult 0.491, 0.493, 0.489. One weight's worth of the geometric
mean s̄ over all tables is added to each:

    s_t = (‖θ_t‖² + s̄)/(γ_t + 1),

so that no penalty exceeds (γ_t + 1) times the usual one, however little a table shows. With the arithmetic
mean, which the few strong tables rule, NLLH with X known was lower by 0.004 on Bank and by 0.001 on credit,
higher by 0.001 on Adult.

**Where to begin.** Where cells are many and records few, the evidence is nearly flat: weights that followed
the noise once ask for the penalty they have. So penalties come from above: the first is the one at which
there are :data:`_EVENTS` records of the rarer class for each weight that the data determine. On a log of 500
values a feature NLLH on validation records was 0.172 beginning at 512, 0.138 at 16.

**Levels** (:mod:`agglearn.field.levels`): coarser tables have penalties like all others.

**Main effects** (tables of one feature, :mod:`.mains`) share one variance, found in the same way from all of
them; those of numbers one for each level, apart from those of names. Before anything is known it is 1, that
of a log-odds. One for each feature ran off on Bank, as pairs
took the main effects over; a fixed variance of 1 was within 0.001 on validation records of Adult, Bank,
credit, nursery and a simulated log, and followed the noise of a label that is nearly nothing else.

**Noise of the chains** multiplies all of these, as in :mod:`.penalty`: that of weights averaged since the
last round, and in the last one, after which they are averaged for longer, that of the end. With the former
to the end, a log of 400,000 records and 1,000 chains had 0.222, and has 0.233; Bank 0.4910 and 0.4917. With
the latter from the beginning, penalties collapse where chains are few.

**Noise of the tables.** If r_k = c_k − d_k·p̂_k carries noise of variance ν_k beside that of sampling, h_k,
the best linear estimate of θ_k under the same prior has the penalty f_k/s_t with f_k = 1 + ν_k/h_k: from
r = hθ + N(0, h + ν) and θ ~ N(0, s) the posterior mean is r/(h + (1 + ν/h)/s). Without noise f = 1. If the
tables had been relieved of all that noise by this very law, a fit to them with 1/s alone would be that mean.
They are relieved by another (:mod:`~agglearn.field.denoise`), the better the less of them is noise, so that
f = 1 + ω²·ν/h, ω the share of noise in what single features show of the label. On validation records, the
mean of two splits, ω and ω² gave Bank 0.415, 0.4425 and 0.416, 0.448 at ε = 1.25, 3.75, credit 0.1800, 0.1885
and 0.1805, 0.189; Adult and a simulated log were within 0.001, and all were at ε = 0.375. Main effects
have had their noise taken out, all features together (:mod:`~agglearn.field.effects`), which also
says their variance: between that and the one found here λ is a geometric mean, by the share of noise.

**Rounds.** Training alternates: every :data:`ROUND` iterations, :data:`ROUNDS` times, penalties are set anew,
and each weight moves at once to where its own cell would have it, by (h + ρ_old)/(h + ρ_new) if that is less
than 1. Refits from θ = 0 in each round ended at the same NLLH (Adult 0.4918 and 0.4915 on validation
records); updates every five iterations, by a factor of two at most, were too slow (0.481). Where labels are
strong penalties may fall for longer: there are rounds until the common one falls by less than a fifth. On
validation records of three sets of the KEEL repository eight rounds had 0.80, 0.88, 0.86 (texture, vowel0,
vehicle0), and more have 0.87, 0.96, 0.87; page-blocks lost by them, 0.79 and 0.75.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout
from agglearn.field.problem import Problem
from agglearn.runtime.compiled import njit
from agglearn.train.mains import is_main, told_apart
from agglearn.train.penalty import overlap
from agglearn.train.state import Iterates

Floats = npt.NDArray[np.float64]

ROUND, ROUNDS = 15, 8  # 20 × 5 gave the same but on fars, where it lost 0.005
_MAIN = 0.5  # λ of main effects at first: a log-odds has a variance of about 1
_EVENTS = (
    3.0  # for each weight determined at first; 10 lost 0.001 to 0.003 on Adult and Bank, 1.5 did on Adult
)
_FIRST = 16.0  # λ where no table tells anything
_TURNS = 20  # of finding the geometric mean, which the penalties and it depend on
_HALVINGS = 30  # of the range of log λ, in finding the first
_LEAST, _MOST = 2.0**-6, 2.0**20  # of λ: beyond either a change changes no prediction that matters
# Weights' worth of the mean over tables: nursery wants more, a tenth of Adult or Bank less.
_PRIOR_CELLS = 1.0
_LEAST_INFORMATION = 1e-3  # of a cell that all but no record is in: bounds what noise multiplies


@dataclass(frozen=True, eq=False)
class Evidence:
    """Of each table γ_t, the number of its weights that the data determine, and ‖θ_t‖²."""

    gamma: Floats
    squares: Floats


def first_penalties(problem: Problem) -> Floats:
    """λ of each table before anything is known of their strength."""
    layout, rate = problem.layout, problem.rate
    main = _is_main(layout)
    told = problem.d * np.repeat(~main, layout.sizes) * rate * (1 - rate)
    told = told[told > 0]
    wanted = min(problem.positives, problem.rows - problem.positives) / _EVENTS
    low, high = np.log2(_LEAST), np.log2(_MOST)
    for _ in range(_HALVINGS if told.size else 0):
        middle = (low + high) / 2
        too_many = (told / (told + 2 * 2.0**middle)).sum() > wanted
        low, high = (middle, high) if too_many else (low, middle)
    return known_mains(problem, np.where(main, _MAIN, 2.0**high if told.size else _FIRST))


def known_mains(problem: Problem, penalties: Floats) -> Floats:
    """λ of each table, those of main effects by what is known of them already."""
    known, layout = problem.effects, problem.layout
    if known is None:
        return penalties
    penalties = penalties.copy()
    for t in np.flatnonzero(_is_main(layout)):
        for f in told_apart(layout, int(t)):
            penalties[t] **= 1 - known.noisy[f]
            penalties[t] *= (0.5 / known.variances[f]) ** known.noisy[f]
    return np.clip(penalties, _LEAST, _MOST)


def is_round(iteration: int) -> bool:
    """Whether penalties are set anew after so many iterations."""
    return iteration % ROUND == 0 and 0 < iteration <= ROUND * ROUNDS


def is_last_round(iteration: int, iterations: int) -> bool:
    """Whether no round follows this one in a fit of so many iterations.

    What multiplies the penalties does so once, in the end: found at weights that were fitted with other
    penalties than theirs, they would go on from round to round.
    """
    return iteration == min(ROUNDS, iterations // ROUND) * ROUND


def since_round(iteration: int) -> int:
    """Iterations since penalties were last set."""
    return iteration - min(iteration // ROUND, ROUNDS) * ROUND


def table_penalties(layout: Layout, found: Evidence, noise: float = 1.0) -> tuple[Floats, float]:
    """λ of each table, and the common one; ``noise`` is that of :func:`.penalty.chain_noise`."""
    main = _is_main(layout)
    gamma, squares = found.gamma[~main].sum(), found.squares[~main].sum()
    if not (gamma > 0 and squares > 0):
        return np.where(main, _MAIN, _FIRST) * noise, _FIRST
    common = float(squares / gamma)
    for _ in range(_TURNS):
        variance = (found.squares + _PRIOR_CELLS * common) / (found.gamma + _PRIOR_CELLS)
        common = float(np.exp(np.log(variance[~main]).mean()))
    variance = (found.squares + _PRIOR_CELLS * common) / (found.gamma + _PRIOR_CELLS)
    # Main effects of a kind share one variance, which begins at that of their first penalty.
    first = _PRIOR_CELLS / (2 * _MAIN)
    kinds = _kinds(layout)
    for kind in np.unique(kinds[main]):
        alike = main & (kinds == kind)
        variance[alike] = (found.squares[alike].sum() + first) / (found.gamma[alike].sum() + _PRIOR_CELLS)
    penalties = 0.5 * noise / variance
    return np.clip(penalties, _LEAST, _MOST), float(0.5 * noise / common)


def overlap_of_tables(layout: Layout) -> float:
    """κ: by how much the posterior variance of a weight exceeds that of its cell alone."""
    own = np.array([cells.level == 0 for cells in layout.cells])
    return float(np.sqrt(overlap(int((own & ~_is_main(layout)).sum()))))


def overlap_of_steps(problem: Problem, weights: Iterates, noise: float = 1.0) -> float:
    """How many weights move a record's log-odds at once: in the mean over records, Σ_t h/(h + ρ).

    Penalties that are heavier for the noise of the chains allow no longer steps, as these would follow it.
    There are never more than tables, as coarser ones move with them; or than all that stand within one.
    """
    rate = problem.rate
    told = problem.d * rate
    told *= 1 - rate
    bend = told + weights.precision
    flat = bend <= 0
    shares = np.divide(told, bend, out=told, where=~flat)  # in place: there may be many millions of cells
    shares[flat] = 0.0
    return min(noise * float(problem.d @ shares) / problem.rows, _most_tables(problem.layout))


def _most_tables(layout: Layout) -> int:
    """Tables of their own, or where more stand within one, its levels and main effects, all of these."""
    each = Counter(layout.scopes)
    mains = {scope[0]: number for scope, number in each.items() if len(scope) == 1}
    within = (n + sum(mains.get(f, 0) for f in scope) for scope, n in each.items() if len(scope) > 1)
    return max(layout.own[0], *within, 0)


def weigh(problem: Problem, weights: Iterates, kappa: float, left: float = 1.0) -> Evidence:
    """The evidence of each table; ``left`` is v, the share of the label's variance that x leaves."""
    gamma, squares = np.zeros(problem.layout.n_tables), np.zeros(problem.layout.n_tables)
    runs = weights.d_run, weights.c_run
    away = weights.theta_mean - weights.prior if weights.prior.size else weights.theta_mean
    kappas = np.where(_is_main(problem.layout), 1.0, kappa)
    _weigh(problem.layout.offsets, problem.d, *runs, away, weights.precision, kappas, left, gamma, squares)
    return Evidence(gamma, squares)


def uncertainty(problem: Problem, weights: Iterates, spread: float | None) -> float:
    """What predicted log-odds are uncertain by: √(γ/Σp(1 − p)), γ the weights that the data determine.

    The posterior variance of the log-odds, in the mean over records weighted by p(1 − p), is tr(I(I + ρ)⁻¹)
    over the sum of these, ``spread``; where that is not known it is that of the label as it is.
    """
    gamma = float(weigh(problem, weights, overlap_of_tables(problem.layout)).gamma.sum())
    bend = problem.rows * problem.rate * (1 - problem.rate) if spread is None else spread
    return float(np.sqrt(gamma / bend)) if bend > 0 else 0.0


def set_penalties(problem: Problem, weights: Iterates, penalties: Floats) -> None:
    """Give every weight its table's penalty, and move it to where its own cell would have it."""
    layout = problem.layout
    noise = _noise_left(problem)
    runs = weights.d_run, weights.c_run
    at = weights.theta, weights.theta_mean, weights.precision, weights.prior
    _move(layout.offsets, 2 * penalties, problem.d, noise, *runs, *at)


def _kinds(layout: Layout) -> npt.NDArray[np.int64]:
    """Of each table its level, and -1 for the tables that have none behind them."""
    levels = np.array([cells.level for cells in layout.cells])
    behind = {layout.scopes[t] for t in np.flatnonzero(levels > 0)}
    alone = np.array([scope not in behind for scope in layout.scopes])
    return np.where(alone, -1, levels)


def _noise_left(problem: Problem) -> Floats:
    """Variance that noise adds to c − d·q in a cell of each table, as far as it is still there."""
    noise = np.zeros(problem.layout.n_tables)
    if problem.noise is not None:
        noise = problem.noise.rate_variance(slice(None), problem.rate)
    if problem.effects is not None:
        noise[_is_main(problem.layout)] = 0.0
        noise = noise * float(problem.effects.noisy.mean()) ** 2
    return noise


def _is_main(layout: Layout) -> npt.NDArray[np.bool_]:
    return np.array([is_main(layout, t) for t in range(layout.n_tables)])


@njit(nogil=True, inline="always")
def _information(d, d_run, c_run):  # type: ignore[no-untyped-def]
    """What the records of a cell tell of its weight."""
    if d_run > 0.0 and d > 0.0:
        rate = c_run / d_run
        return max(d * rate * (1.0 - rate), 0.0)
    return 0.0


@njit(nogil=True)
def _weigh(offsets, d, d_run, c_run, theta, precision, kappa, left, gamma, squares):  # type: ignore[no-untyped-def]
    for t in range(gamma.size):
        for k in range(offsets[t], offsets[t + 1]):
            squares[t] += theta[k] * theta[k]
            information = left * _information(d[k], d_run[k], c_run[k])
            if information > 0.0:
                determined = information / (information + precision[k])
                gamma[t] += determined / (1.0 + (kappa[t] - 1.0) * determined)


@njit(nogil=True)
def _move(offsets, precisions, d, noise, d_run, c_run, theta, theta_mean, precision, prior):  # type: ignore[no-untyped-def]
    for t in range(precisions.size):
        for k in range(offsets[t], offsets[t + 1]):
            information = _information(d[k], d_run[k], c_run[k])
            new = precisions[t] * (1.0 + noise[t] / max(information, _LEAST_INFORMATION))
            if information + new > 0.0:
                factor = min((information + precision[k]) / (information + new), 1.0)
                mean = prior[k] if prior.size > 0 else 0.0
                theta[k] = mean + factor * (theta[k] - mean)
                theta_mean[k] = mean + factor * (theta_mean[k] - mean)
            precision[k] = new
