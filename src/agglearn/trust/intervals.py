"""Intervals for predictions and weights, from a model alone.

**Law of the weights.** Before any table is seen the weights are N(0, T), T = g^α/ρ cell by cell, with ρ and
α learnt from the fit (:mod:`.prior`). The tables tell of θ what a logistic regression on their records would
(:mod:`.information`): I.

**Centre.** The fit stands where the positives expected in each cell are c = ĉ + 2λθ̂. The centre of the
intervals is where a fit with the precision ρ would stand, where they are c − ρθ. It is found by Newton steps
on the chains.

**Spread.** The centre is off by (I + ρ)⁻¹(u − ρθ), with u ~ N(0, I + noise) for what the tables could have
been off by: I taken at the centre, and the noise of the tables σ²(1 + p²) a cell, where it is known. With
weights θ ~ N(0, T) this is a draw of −θ which the tables then correct, −θ + (I + ρ)⁻¹(u + Iθ); so what the
tables do not tell of is right from the start. u is a sum over the chains, each with a normal number: nothing
is needed but gathers, tallies and conjugate gradients. A prediction's interval is its centre ± t·s, s the
root mean square over K draws and t the quantile of Student's law with K degrees of freedom, stretched to
hold the fit's own prediction: a fit with far too much penalty may predict what the tables do not bear out,
and then its interval reaches from there to where they point.

**What training left undone.** It stops before the weights are quite at rest. Predicted log-odds were seen to
move (root mean square m, in ten iterations up to iteration t) like t^−(a+1); then u = m·t/10a is left to go.
Steps along the gradient are short where the tables tell least, so what is left is taken to be spread like
the draws of a law with precision 2λ, of mean square s̄²: the gradient left over is N(0, κ(I + 2λ)), κ =
u²/s̄², and is added to u − ρθ.

What it covers: the log-odds of a pairwise field that the records were drawn from, averaged over records and
such fields. What it does not: structure that no table shows, and chains that have not mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from agglearn.errors import InputError
from agglearn.field.information import Information, Shifts
from agglearn.field.kernels.score import Codes, score_codes
from agglearn.field.kernels.sets import Floats
from agglearn.field.layout import Layout
from agglearn.runtime.memory import limit, require
from agglearn.runtime.threads import thread_count
from agglearn.trust.prior import DRAW, Normals, learn_prior, probe_count

if TYPE_CHECKING:
    from agglearn.model.model import Model

DRAWS = 64
_FEWEST = 16  # draws of a field of many cells
_DRAWN_CELLS = 1 << 27  # numbers that draws are limited to: 512 MiB, unless the fewest take more
_WIDTH = 16  # draws solved for at a time: a cache line of float32
_WORKING = 7  # arrays of that width that a solution takes, by cells
_TOLERANCE = 0.003  # of the draws; at 0.01 the smallest spreads came out 2 % too large
_FINE = 0.02  # of the mode
_NEWTON_STEPS = 4
_SETTLED = 1e-2  # standard deviations (root mean square) that the last Newton step may move predictions by
_HALVINGS = 4
_LOOKED_EVERY = 10  # iterations between two looks at the predictions
_USUAL_DECAY = 2.0  # where there was one look only
_DECAY = (0.3, 4.0)  # of a, the power at which what is left to go falls; 0.2 to 5 were seen
_BLOCK = 1 << 16  # records at a time
_MOST_STATES = 2_000_000  # of a field that is drawn from by enumeration
_EXACT_DRAWS = 20_000


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the tables leave open about the weights of a model.

    Attributes
    ----------
    layout
        Of the model.
    fitted, fitted_intercept
        The model's own θ and θ₀.
    theta, intercept
        The centre of the law of the weights given the tables.
    draws
        How far draws of that law are from its centre.
    precision
        1/variance of the weights before any table is seen, as learnt from the tables; 2λ_θ is the fit's.
    undone
        Square of what the training left undone, beside that of what the tables leave open.
    """

    layout: Layout
    fitted: Floats
    fitted_intercept: float
    theta: Floats
    intercept: float
    draws: Shifts
    precision: float
    undone: float

    def log_odds(self, codes: Codes, level: float = 0.9, threads: int | None = None) -> tuple[Floats, Floats]:
        """Intervals for the log-odds of coded records (a row per feature): lower and upper ends.

        A value that the model does not know has weights that no table tells of, so it widens the interval
        by the prior's variance for each table.
        """
        factor = self._quantile(level)
        lower, upper = np.empty(codes.shape[1]), np.empty(codes.shape[1])
        for start in range(0, codes.shape[1], _BLOCK):
            part = slice(start, start + _BLOCK)
            lower[part], upper[part] = self._ends(codes[:, part], factor, thread_count(threads))
        return lower, upper

    def _ends(self, codes: Codes, factor: float, threads: int) -> tuple[Floats, Floats]:
        layout = self.layout
        fitted = score_codes(codes, layout, self.fitted, self.fitted_intercept, threads)
        centre = score_codes(codes, layout, self.theta, self.intercept, threads)
        variance = self.draws.mean_square(codes, layout, threads)
        if (codes >= np.array(layout.cards)[:, None]).any():
            known = score_codes(codes, layout, np.ones(layout.n_cells), 0.0, threads)
            variance += (layout.n_tables - known) / self.precision
        reach = factor * np.sqrt(variance)
        return np.minimum(centre - reach, fitted), np.maximum(centre + reach, fitted)

    def weights(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Intervals for θ of each cell: lower and upper ends.

        Tables share what they tell of one feature: what can move from one table to another without a
        change of any prediction is known by the prior alone, and the intervals are wide accordingly.
        """
        squares = np.einsum("ck,ck->c", self.draws.theta, self.draws.theta, dtype=np.float64)
        reach = self._quantile(level) * np.sqrt(squares / self.draws.theta.shape[1])
        return np.minimum(self.theta - reach, self.fitted), np.maximum(self.theta + reach, self.fitted)

    def _quantile(self, level: float) -> float:
        check_level(level)
        return float(stdtrit(self.draws.theta.shape[1], (1 + level) / 2))


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
    if seed < 0:
        raise InputError(f"seed {seed} must be at least 0")
    if draws is not None and draws < 2:
        raise InputError(f"{draws} draws tell no interval: ask for at least 2")
    if model.chains is not None:
        chains = model.chains
    elif prod(model.layout.cards) <= _MOST_STATES:
        chains = model.exact_draws(_EXACT_DRAWS, seed)
    else:
        raise InputError(
            "the model kept no chains, and intervals are found with them: fit it again with the local engine"
        )
    return posterior(
        np.ascontiguousarray(chains.T),
        model.layout,
        model.theta,
        model.intercept,
        model.rows,
        model.summary["lambda_theta"],
        noise=model.summary.get("noise"),
        left_to_go=left_to_go(model.history),
        draws=draws,
        seed=seed,
        threads=threads,
    )


def left_to_go(history: Sequence[Mapping[str, Any]]) -> float:
    """How far the predicted log-odds (root mean square) still were from rest, by how they had moved."""
    looks = [(entry["iteration"], entry["moved"]) for entry in history if "moved" in entry]
    if not looks:
        raise InputError(
            f"{len(history)} iterations are too few to tell how far the weights were from rest, which "
            "intervals depend on: fit it again with more"
        )
    last, moved = looks[-1]
    if moved == 0.0:
        return 0.0
    recent = [look for look in looks if 2 * look[0] >= last and look[1] > 0] or looks
    power = _USUAL_DECAY
    if len(recent) > 1:
        at, size = np.log(np.array(recent)).T
        power = -float(np.polyfit(at, size, 1)[0]) - 1
    return float(moved * last / _LOOKED_EVERY / np.clip(power, *_DECAY))


def posterior(
    codes: Codes,
    layout: Layout,
    theta: Floats,
    intercept: float,
    rows: float,
    lambda_theta: float,
    *,
    noise: Sequence[float] | None = None,
    left_to_go: float = 0.0,
    draws: int | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Posterior:
    """The same from a field's weights, its chains (a row per feature) and the penalty it was fitted with.

    ``noise`` is the standard deviation of the noise on each number of a table, one for each table;
    ``left_to_go`` how far predicted log-odds were from where training would have ended (root mean square).
    """
    if not lambda_theta > 0:
        raise InputError("intervals need a penalty on θ: fit with lambda-theta above 0, or auto")
    draws, width = _affordable(layout, codes.shape[1], draws)
    workers = thread_count(threads)
    at_fit = Information(codes, layout, rows, theta, intercept, workers)
    expected, positives = at_fit.expected()
    sigma = np.zeros(layout.n_cells)
    if noise is not None:
        sigma = np.repeat(np.asarray(noise, np.float64), layout.sizes)
        rates = np.divide(expected, at_fit.d, out=np.zeros_like(expected), where=at_fit.d > 0)
        sigma *= np.sqrt(1 + rates**2)
    normals = Normals(seed, sigma)
    penalty = 2 * lambda_theta
    told = (expected + penalty * theta, positives)
    prior = learn_prior(at_fit, theta, penalty, normals)
    precision, undone = prior.precision, left_to_go**2 / prior.spread
    centre, centre_intercept, at_mode = _mode(at_fit, theta, intercept, told, precision)
    variances = prior.variances(at_mode) + penalty * undone / precision**2
    deviations = np.sqrt(variances).astype(np.float32)[:, None]
    kept = Shifts(np.empty((layout.n_cells, draws), np.float32), np.empty(draws))
    for start in range(0, draws, width):
        some = range(start, min(start + width, draws))
        before = normals.cells(layout.n_cells, DRAW, some)
        before *= deviations
        right = normals.tables(at_mode, DRAW, some, 1 + undone)
        told_of_it = at_mode.times(Shifts(before, np.zeros(len(some))))
        right.theta[:] -= told_of_it.theta
        right.intercept[:] -= told_of_it.intercept
        moved = at_mode.solve(right, precision, _TOLERANCE)
        kept.theta[:, some.start : some.stop] = before + moved.theta
        kept.intercept[some.start : some.stop] = moved.intercept
    return Posterior(layout, theta, intercept, centre, centre_intercept, kept, precision, undone)


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
    information: Information,
    theta: Floats,
    intercept: float,
    told: tuple[Floats, float],
    precision: float,
) -> tuple[Floats, float, Information]:
    """Where the expected positives are those told, less ρθ; and the information there."""

    def objective(theta: Floats, intercept: float) -> float:
        scores = score_codes(information.codes, information.layout, theta, intercept, information.threads)
        loss = information.scale * float(np.logaddexp(0.0, scores).sum())
        gain = float(told[0] @ theta) + told[1] * intercept
        return float(loss - gain + precision / 2 * (theta @ theta))

    value = objective(theta, intercept)
    for _ in range(_NEWTON_STEPS):
        expected, positives = information.expected()
        gap = told[0] - expected - precision * theta
        right = Shifts(gap.astype(np.float32)[:, None], np.array([told[1] - positives]))
        step = information.solve(right, precision, _FINE)
        for halving in range(_HALVINGS):
            tried = theta + 0.5**halving * step.theta[:, 0].astype(np.float64)
            tried_intercept = intercept + 0.5**halving * float(step.intercept[0])
            tried_value = objective(tried, tried_intercept)
            if tried_value <= value:
                break
        else:
            break
        theta, intercept, value = tried, tried_intercept, tried_value
        moved = float(information.variance(step)[0] / information.weights.sum())
        information = Information(
            information.codes, information.layout, information.rows, theta, intercept, information.threads
        )
        if moved < _SETTLED**2:
            break
    return theta, intercept, information
