"""A field's score on held-out tables: no record is needed.

The log-likelihood of held-out labels is c_v·θ + θ₀·positives − Σ log(1 + exp(φ(x)·θ + θ₀)). The first two
terms are exact from held-out tables. The last is a mean over X, of which the tables tell the part that is
linear in φ: with f = log(1 + e^s) and any β,

    E[f] = E[φ·β] + E[f − φ·β],   E[φ·β] = d_v·β / n_v exactly,

so only the residual is averaged over chains. β is the regression of f on s and, with a ridge, on φ over the
chains, found by conjugate gradients with the field's own gather and tally; each half of the chains is judged
with the other half's β, so that no chain judges itself.

**Standard error.** NLLH = 1 − L/H(r), with L the log loss and r the share of positives. To first order a
held-out record moves it by −(φ·β − y·(s + q))/H, q = (L/H)·log((1 − r)/r), whose variance under the field
gives the tables' part; the residuals' variance over the chains, and declared noise on the tables, add theirs.
That is the error beside the NLLH on all records there could be. Beside the NLLH on the held-out records
themselves it is smaller: only their residuals' chance remains.
Two fields judged on the same tables and chains differ by much less than that: :func:`compare_heldout`.

**What it assumes.** The residual is averaged under the law of X of the field that the chains come from.
Where X has structure among three or more features that no table shows, that law is smoother than the true
one, and the score is too high. Chains of a field with hardly any penalty follow the same noise as its weights
do, and the score is too low; with far too much penalty they spread too little, and it is a little too high.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.field import Field
from agglearn.field.population import Moments, Population, Values
from agglearn.field.problem import Problem
from agglearn.field.solve import solve

Floats = npt.NDArray[np.float64]

_RIDGE = 5.0  # members' worth of belief that a cell has no weight of its own
# Of conjugate gradients. Any β is right on average; 8 steps left the score of Adult 0.003 higher than 24,
# and 64 changed nothing.
_MOST_STEPS = 24
_TOLERANCE = 1e-3  # of the regression, far below what the chains themselves leave open
_NO_SHARE = 1e-12  # of a cell that has no member and no ridge: keeps its weight at 0
_SORTED = 1 << 20  # members whose order tells the AUC: the error of so many is far below the law's own


@dataclass(frozen=True)
class TableScore:
    """What held-out tables say of a field.

    Attributes
    ----------
    nllh, nllh_se
        Normalised log-likelihood, and its standard error: of the tables as a sample of records, of the
        noise on them, and of the chains.
    chains_se
        The chains' part of it, which more chains would lower.
    records_se
        Standard error of the difference to the NLLH of the held-out records themselves: what of them no
        table tells, the noise on the tables, and the chains' part.
    log_loss
        Mean of −log of the probability given to the label, in nats.
    auc, brier
        As the field itself expects them: tables do not tell them.
    rows, positives
        Records behind the held-out tables, and the positive ones.
    """

    nllh: float
    nllh_se: float
    chains_se: float
    records_se: float
    log_loss: float
    auc: float
    brier: float
    rows: float
    positives: float

    def to_json(self) -> dict[str, Any]:
        """The score as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """By how much one field's NLLH is above another's on the same tables, and the standard error of that."""

    nllh: float
    nllh_se: float


def score_heldout(heldout: Problem, population: Population, field: Field) -> TableScore:
    """Score a field on held-out tables of the same layout.

    Parameters
    ----------
    heldout
        The tables, with the noise on them.
    population
        Stands for the law of X: that of the field itself, or of a better one.
    field
        The field to judge.
    """
    mean = _expectation(heldout, population, lambda s: np.logaddexp(0.0, s), [field])
    loss = mean.value - _gain(heldout, field.theta, field.intercept)
    auc, brier = _as_expected(population, field)
    of_records = mean.residual_variance / heldout.rows + mean.chain_variance
    of_records += _of_noise(heldout, mean.beta, field.theta)
    return TableScore(
        nllh=1 - loss / heldout.entropy,
        nllh_se=_error(heldout, mean, loss, [1.0], [field]),
        chains_se=float(np.sqrt(mean.chain_variance)) / heldout.entropy,
        records_se=float(np.sqrt(of_records)) / heldout.entropy,
        log_loss=loss,
        auc=auc,
        brier=brier,
        rows=heldout.rows,
        positives=heldout.positives,
    )


def compare_heldout(heldout: Problem, population: Population, field: Field, other: Field) -> Difference:
    """NLLH of a field minus that of another, both on the same held-out tables and population.

    What the two have in common cancels, so that the standard error is that of the difference alone.
    """
    mean = _expectation(
        heldout, population, lambda a, b: np.logaddexp(0.0, a) - np.logaddexp(0.0, b), [field, other]
    )
    loss = mean.value - _gain(heldout, field.theta - other.theta, field.intercept - other.intercept)
    error = _error(heldout, mean, loss, [1.0, -1.0], [field, other])
    return Difference(nllh=-loss / heldout.entropy, nllh_se=error)


@dataclass(frozen=True, eq=False)
class _Half:
    """Half of a population, judged with the other half's regression.

    Attributes
    ----------
    population
        The half.
    scores
        Log-odds of each field.
    linear
        φ·β with its constant: the part that the tables measure.
    residual
        What is left of the target.
    """

    population: Population
    scores: tuple[Values, ...]
    linear: Values
    residual: Values


@dataclass(frozen=True, eq=False)
class _Mean:
    """A mean over the held-out records' X, by a control variate.

    Attributes
    ----------
    value
        The mean.
    beta
        The weights of the part that the tables measure.
    halves
        The two halves of the population.
    residual_variance
        Variance of the part that the tables do not measure.
    chain_variance
        Square of the population's standard error.
    """

    value: float
    beta: Floats
    halves: tuple[_Half, _Half]
    residual_variance: float
    chain_variance: float


def _expectation(
    heldout: Problem,
    population: Population,
    function: Callable[..., npt.NDArray[Any]],
    fields: Sequence[Field],
) -> _Mean:
    """The held-out mean of a function of the fields' log-odds, which the function about follows."""
    known = heldout.records is population  # the held-out records themselves: nothing about their X is chance
    a, b = (population, population) if known else population.halves()
    scores = [tuple(half.scores(f.theta, f.intercept) for f in fields) for half in (a, b)]
    targets = [half.map(function, *own) for half, own in zip((a, b), scores, strict=True)]
    fitted = [_regress(*of) for of in zip((a, b), targets, scores, [fields] * 2, strict=True)]
    halves = []
    for half, target, own, (beta, constant) in zip((a, b), targets, scores, fitted[::-1], strict=True):
        linear = half.scores(beta, constant)
        halves.append(_Half(half, own, linear, half.map(np.subtract, target, linear)))
    residuals = [half.population.moments(half.residual) for half in halves]
    together = residuals[0] + residuals[1]
    shares = [part.members / together.members for part in residuals]
    # A half is judged with the other's regression, so that no chain judges itself.
    beta = shares[0] * fitted[1][0] + shares[1] * fitted[0][0]
    constant = shares[0] * fitted[1][1] + shares[1] * fitted[0][1]
    return _Mean(
        value=float(constant + heldout.d @ beta / heldout.rows + together.mean),
        beta=beta,
        halves=(halves[0], halves[1]),
        residual_variance=together.variance,
        chain_variance=0.0 if known else together.variance_of_mean,
    )


def _regress(
    population: Population, target: Values, scores: Sequence[Values], fields: Sequence[Field]
) -> tuple[Floats, float]:
    """Regression of a target on the fields' log-odds, then with a ridge on φ: weights and a constant."""
    constant, *slopes = _least_squares(population, target, scores)

    def rest(target: Any, *scores: Any) -> npt.NDArray[Any]:
        return np.asarray(target - constant - sum(k * s for k, s in zip(slopes, scores, strict=True)))

    ridge = _RIDGE / population.size
    shares = population.shares() + max(ridge, _NO_SHARE)
    projected = population.cells(population.map(rest, target, *scores))

    def normal(beta: Floats) -> Floats:
        product: Floats = population.cells(population.scores(beta))
        product += ridge * beta
        return product

    beta = solve(normal, projected, shares, steps=_MOST_STEPS, tolerance=_TOLERANCE)
    for field, slope in zip(fields, slopes, strict=True):
        beta += slope * field.theta
        constant += slope * field.intercept
    return beta, constant


def _least_squares(population: Population, target: Values, scores: Sequence[Values]) -> list[float]:
    """A constant and a slope for each score, by the normal equations of centred values.

    Two scores stand by their difference and their sum: exchanging them then changes signs and nothing else.
    """
    basis = np.array([[1.0, -1.0], [1.0, 1.0]]) if len(scores) == 2 else np.eye(len(scores))
    along = [population.map(lambda *s, of=row: sum(map(mul, of, s)), *scores) for row in basis]
    means = [population.mean(values) for values in (target, *along)]

    def covariance(a: Values, b: Values, mean_a: float, mean_b: float) -> float:
        return float(population.mean(population.map(lambda u, v: (u - mean_a) * (v - mean_b), a, b)))

    pairs = list(zip(along, means[1:], strict=True))
    matrix = [[covariance(a, b, mean_a, mean_b) for b, mean_b in pairs] for a, mean_a in pairs]
    right = [covariance(a, target, mean_a, means[0]) for a, mean_a in pairs]
    # Two fields may have the same log-odds, or none that vary: the least of all solutions will do.
    slopes = np.linalg.lstsq(np.array(matrix), np.array(right))[0]
    return [float(means[0] - sum(map(mul, slopes, means[1:]))), *(basis.T @ slopes).tolist()]


def _gain(heldout: Problem, theta: Floats, intercept: float) -> float:
    """The mean of y·s over the held-out records, which their tables tell exactly."""
    return float((heldout.c @ theta + heldout.positives * intercept) / heldout.rows)


def _error(
    heldout: Problem, mean: _Mean, loss: float, signs: Sequence[float], fields: Sequence[Field]
) -> float:
    """Standard error of −loss / entropy, where the loss of a record is f(x) − y·s(x).

    s is the signed sum of the fields' log-odds, and P(y=1|x) the mean of their probabilities.
    """
    base = loss / heldout.entropy * heldout.base_log_odds
    spreads: list[Moments] = []
    chances: list[Moments] = []
    for half in mean.halves:

        def slope(*scores: Any) -> Any:
            return sum(sign * s for sign, s in zip(signs, scores, strict=True)) - base

        def known(linear: Any, *scores: Any) -> Any:
            return linear - sum(expit(s) for s in scores) / len(scores) * slope(*scores)

        def chance(*scores: Any) -> Any:
            p = sum(expit(s) for s in scores) / len(scores)
            return p * (1 - p) * slope(*scores) ** 2

        population = half.population
        spreads.append(population.moments(population.map(known, half.linear, *half.scores)))
        chances.append(population.moments(population.map(chance, *half.scores)))
    spread = (spreads[0] + spreads[1]).variance + (chances[0] + chances[1]).mean
    variance = spread / heldout.rows + mean.chain_variance
    theta = np.asarray(sum(sign * field.theta for sign, field in zip(signs, fields, strict=True)))
    return float(np.sqrt(variance + _of_noise(heldout, mean.beta, theta))) / heldout.entropy


def _of_noise(heldout: Problem, beta: Floats, theta: Floats) -> float:
    """Variance of a mean loss that the noise on the tables gives it."""
    if heldout.noise is None:
        return 0.0
    on_d, on_c = (heldout.noise.variance_of(cells, heldout.layout) for cells in ("counts", "sums"))
    both = heldout.noise.covariance_of(heldout.layout)
    variance = on_d @ np.square(beta) + on_c @ np.square(theta) - 2 * both @ (beta * theta)
    return max(float(variance), 0.0) / heldout.rows**2


def _as_expected(population: Population, field: Field) -> tuple[float, float]:
    """AUC and Brier score if each member is positive with its own probability."""
    scores = population.scores(field.theta, field.intercept)
    brier = population.mean(population.map(lambda s: expit(s) * expit(-s), scores))
    some = field.log_odds(population.some(_SORTED))
    return _expected_auc(some, expit(some)), float(brier)


def _expected_auc(scores: Floats, p: Floats) -> float:
    """P(a positive scores above a negative), each chain being positive with its own probability."""
    order = np.argsort(scores, kind="stable")
    _, start = np.unique(scores[order], return_index=True)
    positive = np.add.reduceat(p[order], start)
    negative = np.add.reduceat(1 - p[order], start)
    below = np.cumsum(negative) - negative
    return float((positive * (below + negative / 2)).sum() / (positive.sum() * negative.sum()))
