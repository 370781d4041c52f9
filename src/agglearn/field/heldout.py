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

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.field.kernels.score import score_codes, tally
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem
from agglearn.field.solve import solve

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint16]
Weights = tuple[Floats, float]  # θ and θ₀

_RIDGE = 5.0
# Of conjugate gradients. Any β is right on average; 8 steps left the score of Adult 0.003 higher than 24,
# and 64 changed nothing.
_MOST_STEPS = 24
_TOLERANCE = 1e-3


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
        table tells, and the chains' part.
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


def score_heldout(
    heldout: Problem,
    codes: Codes,
    theta: Floats,
    intercept: float,
    threads: int = 1,
    *,
    draws: int = 1,
    noise: Floats | None = None,
) -> TableScore:
    """Score weights on held-out tables of the same layout.

    Parameters
    ----------
    heldout
        The tables of other records.
    codes
        Chains that stand for the law of X, a row per feature: those of the field itself, or of a better one.
    theta, intercept
        The weights to judge.
    draws
        How often each chain was drawn: the columns of the first draw, of the second, and so on. Draws of
        one chain depend on each other, which the standard error must know.
    noise
        For each table the standard deviation of the noise on its numbers.
    """
    scores = score_codes(codes, heldout.layout, theta, intercept, threads)
    p = expit(scores)
    mean = _expectation(
        heldout, codes, np.logaddexp(0.0, scores), [(theta, intercept, scores)], threads, draws
    )
    loss = mean.value - _gain(heldout, theta, intercept)
    entropy = _entropy(heldout)
    return TableScore(
        nllh=1 - loss / entropy,
        nllh_se=_error(heldout, mean, scores, p, loss, theta, noise),
        chains_se=float(np.sqrt(mean.chain_variance)) / entropy,
        records_se=float(np.sqrt(mean.residual_variance / heldout.rows + mean.chain_variance)) / entropy,
        log_loss=loss,
        auc=_expected_auc(scores, p),
        brier=float(np.mean(p * (1 - p))),
        rows=heldout.rows,
        positives=heldout.positives,
    )


def compare_heldout(
    heldout: Problem,
    codes: Codes,
    weights: Weights,
    others: Weights,
    threads: int = 1,
    *,
    draws: int = 1,
    noise: Floats | None = None,
) -> Difference:
    """NLLH of some weights (θ, θ₀) minus that of others, both on the same held-out tables and chains.

    What the two have in common cancels, so that the standard error is that of the difference alone. The
    other parameters are those of :func:`score_heldout`.
    """
    layout = heldout.layout
    a = score_codes(codes, layout, *weights, threads)
    b = score_codes(codes, layout, *others, threads)
    target = np.logaddexp(0.0, a) - np.logaddexp(0.0, b)
    mean = _expectation(heldout, codes, target, [(*weights, a), (*others, b)], threads, draws)
    theta, intercept = weights[0] - others[0], weights[1] - others[1]
    loss = mean.value - _gain(heldout, theta, intercept)
    p = (expit(a) + expit(b)) / 2
    error = _error(heldout, mean, a - b, p, loss, theta, noise)
    return Difference(nllh=-loss / _entropy(heldout), nllh_se=error)


@dataclass(frozen=True, eq=False)
class _Mean:
    """A mean over the held-out records' X, by a control variate.

    Attributes
    ----------
    value
        The mean.
    beta
        The weights of the part that the tables measure.
    linear
        That part, φ·β with its constant, for each chain.
    residual_variance
        Variance of the part that they do not measure.
    chain_variance
        Square of the chains' standard error.
    """

    value: float
    beta: Floats
    linear: Floats
    residual_variance: float
    chain_variance: float


def _expectation(
    heldout: Problem,
    codes: Codes,
    target: Floats,
    along: Sequence[tuple[Floats, float, Floats]],
    threads: int,
    draws: int,
) -> _Mean:
    """The held-out mean of a function of x, given on the chains.

    ``along`` names linear functions that the target follows: weights, intercept, values on the chains.
    """
    layout = heldout.layout
    n_chains = target.size // draws
    assert n_chains * draws == target.size
    half = np.arange(target.size) % n_chains % 2
    linear = np.empty(target.size)
    beta, constant = np.zeros(layout.n_cells), 0.0
    for mine in (0, 1):
        judged, seen = np.flatnonzero(half == mine), np.flatnonzero(half != mine)
        follow = [(weights, shift, values[seen]) for weights, shift, values in along]
        fitted, offset = _regress(np.ascontiguousarray(codes[:, seen]), target[seen], follow, layout, threads)
        share = judged.size / target.size
        linear[judged] = score_codes(np.ascontiguousarray(codes[:, judged]), layout, fitted, offset, threads)
        constant += share * offset
        fitted *= share
        beta += fitted
    residuals = (target - linear).reshape(draws, n_chains)
    of_chains = residuals.mean(axis=0)
    return _Mean(
        value=float(constant + heldout.d @ beta / heldout.rows + of_chains.mean()),
        beta=beta,
        linear=linear,
        residual_variance=float(np.var(residuals)),
        chain_variance=float(np.var(of_chains) / n_chains),
    )


def _regress(
    codes: Codes, target: Floats, along: Sequence[tuple[Floats, float, Floats]], layout: Layout, threads: int
) -> tuple[Floats, float]:
    """Regression of a target on given linear functions, then with a ridge on φ: weights and a constant."""
    design = np.column_stack([np.ones(target.size), *(values for _, _, values in along)])
    constant, *slopes = np.linalg.lstsq(design, target)[0].tolist()
    rest = target - design @ [constant, *slopes]
    counts, projected = tally(codes, rest, layout, threads)
    counts += _RIDGE

    def normal(beta: Floats) -> Floats:
        fitted = score_codes(codes, layout, beta, 0.0, threads)
        product: Floats = tally(codes, fitted, layout, threads)[1]
        product += _RIDGE * beta
        return product

    beta = solve(normal, projected, counts, steps=_MOST_STEPS, tolerance=_TOLERANCE)
    for (weights, shift, _), slope in zip(along, slopes, strict=True):
        beta += slope * weights
        constant += slope * shift
    return beta, constant


def _gain(heldout: Problem, theta: Floats, intercept: float) -> float:
    """The mean of y·s over the held-out records, which their tables tell exactly."""
    return float((heldout.c @ theta + heldout.positives * intercept) / heldout.rows)


def _entropy(heldout: Problem) -> float:
    """Entropy of the held-out labels."""
    rate = heldout.positives / heldout.rows
    return float(-(rate * np.log(rate) + (1 - rate) * np.log1p(-rate)))


def _error(
    heldout: Problem, mean: _Mean, scores: Floats, p: Floats, loss: float, theta: Floats, noise: Floats | None
) -> float:
    """Standard error of −loss / entropy, where the loss of a record is f(x) − y·s(x) and P(y=1|x) = p."""
    entropy = _entropy(heldout)
    slope = scores - loss / entropy * heldout.base_log_odds
    spread = np.var(mean.linear - p * slope) + np.mean(p * (1 - p) * slope**2)
    variance = spread / heldout.rows + mean.chain_variance
    if noise is not None:
        layout = heldout.layout
        for t, sigma in enumerate(noise):
            if sigma > 0:
                cells = [layout.table(w, t).reshape(-1) for w in (mean.beta, theta)]
                variance += (sigma / heldout.rows) ** 2 * sum(w @ w for w in cells)
    return float(np.sqrt(variance)) / entropy


def _expected_auc(scores: Floats, p: Floats) -> float:
    """P(a positive scores above a negative), each chain being positive with its own probability."""
    order = np.argsort(scores, kind="stable")
    _, start = np.unique(scores[order], return_index=True)
    positive = np.add.reduceat(p[order], start)
    negative = np.add.reduceat(1 - p[order], start)
    below = np.cumsum(negative) - negative
    return float((positive * (below + negative / 2)).sum() / (positive.sum() * negative.sum()))
