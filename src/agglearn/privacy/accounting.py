"""How much noise a budget asks for, and what a release then promises.

**Gaussian noise.** One record moves `moved` numbers by at most `by` each, so all of them together by
Δ = by·√moved in the Euclidean norm, and a Gaussian of standard deviation σ on each tells of it what a single
one with μ = Δ/σ does. The least σ for (ε, δ) is the root of

    δ = Φ(μ/2 − ε/μ) − exp(ε) Φ(−μ/2 − ε/μ)                            (Balle and Wang, 2018).

That is exact for a continuous law. The numbers are released with a *discrete* Gaussian, for which it is off
by up to a few percent in δ where few numbers are moved, so the scale found is certified: dp-accounting
composes the privacy loss of the discrete law `moved` times, never below the truth, and as long as it says
more than ε the scale is raised. Beside OpenDP's own accounting, by ρ-zCDP, that is 7 % less noise at ε = 1
and δ = 10⁻⁶; and it holds for the law that was drawn from, as a continuous reckoning alone would not quite.

**Laplace noise.** With δ = 0, b = by·moved/ε. With δ above 0, the least b that dp-accounting certifies for
the composition.

Numbers of a different kind (what bins and vocabularies are learnt from) take a share of the budget: of μ², or
of ε where the law is Laplace's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from agglearn.errors import MissingExtraError
from agglearn.privacy.budget import Budget
from agglearn.tables.promise import Spending

_GRID = 1e-4  # of privacy losses; connecting the dots between them errs by less than 1e-5 of ε
_FINEST = 2e-3  # the share of a loss' spread that the grid may have: many small losses need a finer one
_TRIES = 20
_SMOOTH_SCALE, _SMOOTH_ERROR = 1000.0, 1e-4


@dataclass(frozen=True)
class Ask:
    """Numbers to be released.

    Attributes
    ----------
    what
        In words.
    numbers
        How many.
    moved
        How many of them one record moves, each by one.
    share
        Of the budget.
    """

    what: str
    numbers: int
    moved: int
    share: float = 1.0


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ of Gaussian noise whose standard deviation is 1/μ of the sensitivity."""
    from scipy.special import log_ndtr  # here: tables without noise are made without it, and quicker

    first = math.exp(log_ndtr(mu / 2 - epsilon / mu))
    return first - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The greatest μ = sensitivity/σ that keeps (ε, δ)."""
    from scipy.optimize import brentq

    high = 1.0
    while gaussian_delta(epsilon, high) < delta:
        high *= 2
    low = high
    while gaussian_delta(epsilon, low) > delta:
        low /= 2
    return float(brentq(lambda mu: gaussian_delta(epsilon, mu) - delta, low, high, xtol=1e-15, rtol=1e-14))


def uncertified(budget: Budget, asks: Sequence[Ask]) -> list[Spending]:
    """The noise on each kind of numbers, by the formula for a continuous law: a start, or a simulation."""
    by = budget.max_records
    if budget.mechanism == "laplace":
        assert budget.epsilon is not None  # a budget in ρ is refused
        scales = [by * ask.moved / (ask.share * budget.epsilon) for ask in asks]
    else:
        if budget.rho is not None:
            mu = math.sqrt(2 * budget.rho)
        else:
            assert budget.epsilon is not None
            mu = gaussian_mu(budget.epsilon, budget.told_delta)
        scales = [by * math.sqrt(ask.moved / ask.share) / mu for ask in asks]
    return [
        Spending(ask.what, budget.mechanism, scale, ask.numbers, ask.moved, by, ask.share)
        for ask, scale in zip(asks, scales, strict=True)
    ]


def calibrate(budget: Budget, asks: Sequence[Ask], set_aside: float = 0.0) -> tuple[list[Spending], float]:
    """The noise on each kind of numbers, and the ε that all of it together keeps with the budget's δ.

    Parameters
    ----------
    budget
        What may be spent.
    asks
        What is to be released; the shares sum to one.
    set_aside
        A part of δ that is spent elsewhere, on values that come to light by name.
    """
    delta = budget.told_delta - set_aside
    spent = uncertified(budget if budget.rho is not None else replace(budget, delta=delta), asks)
    if budget.mechanism == "laplace" and delta <= 0:
        assert budget.epsilon is not None
        return spent, budget.epsilon
    if budget.rho is not None:
        spent = [replace(s, scale=s.scale * (1 + 1e-12)) for s in spent]  # ρ is kept after rounding too
        return spent, certified_epsilon(spent, delta)
    assert budget.epsilon is not None
    if budget.mechanism == "laplace":
        return _least_laplace(spent, budget.epsilon, delta)
    for _ in range(_TRIES):
        epsilon = certified_epsilon(spent, delta)
        if epsilon <= budget.epsilon:
            return spent, budget.epsilon
        factor = max(epsilon / budget.epsilon, 1 + 1e-6)
        spent = [replace(s, scale=s.scale * factor) for s in spent]
    raise AssertionError("no scale could be certified")


def _least_laplace(spent: list[Spending], epsilon: float, delta: float) -> tuple[list[Spending], float]:
    """Less noise than δ = 0 needs, by bisection: what is kept has been certified."""

    def scaled(factor: float) -> list[Spending]:
        return [replace(s, scale=s.scale * factor) for s in spent]

    low, high = 0.0, 1.0
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        if certified_epsilon(scaled(middle), delta) <= epsilon:
            high = middle
        else:
            low = middle
    return scaled(high), epsilon


def certified_epsilon(spent: Sequence[Spending], delta: float) -> float:
    """The ε that everything spent keeps together with δ, by dp-accounting: never below the truth."""
    if not spent:
        return 0.0
    if delta <= 0:
        return sum(s.by * s.moved / s.scale for s in spent) if _all_laplace(spent) else math.inf
    # One grid for all losses: in proportion to what is told in all, and finer where single ones are small.
    told = sum((s.sensitivity / s.scale) ** 2 / 2 for s in spent if s.mechanism == "gaussian")
    grid = min([_GRID * max(1.0, told), *(_FINEST * s.by / s.scale for s in spent if not _smooth(s))])
    with np.errstate(over="ignore", invalid="ignore"):  # of losses whose chance is nil
        losses = [_loss(s, grid) for s in spent]
        total = losses[0]
        for loss in losses[1:]:
            total = total.compose(loss)
        return float(total.get_epsilon_for_delta(delta * (1 - _SMOOTH_ERROR)))


def _all_laplace(spent: Sequence[Spending]) -> bool:
    return all(s.mechanism == "laplace" for s in spent)


def _smooth(spending: Spending) -> bool:
    """Whether a discrete Gaussian is as good as a continuous one.

    δ is a sum over whole numbers of what is an integral for the continuous law. Beyond the threshold the
    terms fall by exp(−ε/(by·moved)) a step, so the two differ by a share of some (ε/(by·moved))²/8: from
    these scales on by less than what δ is lowered by, as by·√moved is then at least 1000 μ.
    """
    return spending.mechanism == "gaussian" and spending.scale >= _SMOOTH_SCALE


def _loss(spending: Spending, grid: float) -> Any:
    """The privacy loss of all numbers that a record moves."""
    try:
        from dp_accounting.pld import privacy_loss_distribution as losses
        from dp_accounting.pld.common import DifferentialPrivacyParameters
    except ImportError:
        raise MissingExtraError("Reckoning what a release promises", "privacy") from None
    if _smooth(spending):
        return losses.from_gaussian_mechanism(
            spending.scale, spending.sensitivity, value_discretization_interval=grid
        )
    if spending.mechanism == "laplace" and spending.by == 1:
        one = losses.from_discrete_laplace_mechanism(
            1 / spending.scale, 1, value_discretization_interval=grid, use_connect_dots=True
        )
    elif spending.mechanism == "laplace":
        # Several records may move one number or several: whatever they do, it is by/scale-private.
        pure = DifferentialPrivacyParameters(spending.by / spending.scale, 0.0)
        one = losses.from_privacy_parameters(pure, value_discretization_interval=grid)
    else:
        # Of all that several records of a person can do, moving one number by all of them tells most: the
        # squared norm is by², and at most (by − 1)² + 1 for anything else.
        one = losses.from_discrete_gaussian_mechanism(
            spending.scale, spending.by, value_discretization_interval=grid, use_connect_dots=True
        )
    return one.self_compose(spending.moved) if spending.moved > 1 else one


def told_accounting(budget: Budget) -> str:
    """How a promise was reckoned, with the versions of what reckoned it."""
    libraries = f"noise by OpenDP {version('opendp')}, ε by dp-accounting {version('dp-accounting')}"
    if budget.rho is not None:
        return f"ρ-zCDP; {libraries}"
    return f"privacy loss of the discrete {budget.mechanism.title()} law, composed; {libraries}"
