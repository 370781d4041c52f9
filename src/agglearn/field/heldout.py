"""A field's score on held-out tables: no record is needed.

The log-likelihood of held-out labels is c_v·θ + θ₀·positives − Σ log(1 + exp(φ(x)·θ + θ₀)). The first two
terms are exact from held-out tables. The last is a mean over X, of which the tables tell the part that is
linear in φ: with f = log(1 + e^s) and any β,

    E[f] = E[φ·β] + E[f − φ·β],   E[φ·β] = d_v·β / n_v exactly,

so only the residual is averaged over the chains. β is the ridge regression of f on φ over the chains, found
by conjugate gradients with the field's own gather and tally; each half of the chains is judged with the
other half's β, so that no chain judges itself.

The residual is averaged under the field's law of X. Where X has strong structure among three or more
features that no table shows, that law is smoother than the true one, and the score is mostly optimistic.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit

from agglearn.field.kernels import score_codes, tally
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint16]

_RIDGE = 5.0
_MOST_STEPS = 25  # of conjugate gradients: β need not be exact, any β is unbiased
_TOLERANCE = 1e-2


@dataclass(frozen=True)
class TableScore:
    """What held-out tables say of a field.

    Attributes
    ----------
    nllh, nllh_se
        Normalised log-likelihood, and its standard error (of the chains, and of the tables as a sample).
    log_loss
        Mean of −log of the probability given to the label, in nats.
    auc, brier
        As the field itself expects them: tables do not tell them.
    rows, positives
        Records behind the held-out tables, and the positive ones.
    """

    nllh: float
    nllh_se: float
    log_loss: float
    auc: float
    brier: float
    rows: float
    positives: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def score_heldout(
    heldout: Problem, codes: Codes, theta: Floats, intercept: float, threads: int = 1
) -> TableScore:
    """Score weights on held-out tables of the same layout, with chains of the field (a row per feature)."""
    layout, n = heldout.layout, heldout.rows
    scores = score_codes(codes, layout, theta, intercept, threads)
    losses = np.logaddexp(0.0, scores)
    p = expit(scores)
    residuals = np.empty(len(losses))
    linear = np.empty(len(losses))  # φ·β, to know how much of a record's loss the tables see
    from_tables = 0.0  # E[φ·β]
    halves = [np.arange(start, len(losses), 2) for start in (0, 1)]
    for mine, others in (halves, halves[::-1]):
        beta, offset = _regress(np.ascontiguousarray(codes[:, others]), losses[others], layout, threads)
        judged = np.ascontiguousarray(codes[:, mine])
        linear[mine] = score_codes(judged, layout, beta, offset, threads)
        residuals[mine] = losses[mine] - linear[mine]
        from_tables += float(offset + heldout.d @ beta / n) * len(mine) / len(losses)
    gain = (heldout.c @ theta + heldout.positives * intercept) / n
    log_loss = float(from_tables + residuals.mean() - gain)
    # One record's part that the tables measure is φ·β − y·s; under the field y is 1 with probability p.
    mean = linear - p * scores
    spread = float(np.var(mean) + np.mean(p * (1 - p) * scores**2))
    error = np.sqrt(spread / n + np.var(residuals) / len(residuals))
    rate = heldout.positives / n
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
    return TableScore(
        nllh=float(1 - log_loss / entropy),
        nllh_se=float(error / entropy),
        log_loss=float(log_loss),
        auc=_expected_auc(scores, p),
        brier=float(np.mean(p * (1 - p))),
        rows=n,
        positives=heldout.positives,
    )


def _regress(codes: Codes, target: Floats, layout: Layout, threads: int) -> tuple[Floats, float]:
    """Ridge regression of a target on φ over coded records."""
    offset = float(target.mean())
    counts, projected = tally(codes, target - offset, layout, threads)

    def normal(beta: Floats) -> Floats:
        fitted = score_codes(codes, layout, beta, 0.0, threads)
        product: Floats = tally(codes, fitted, layout, threads)[1] + _RIDGE * beta
        return product

    shape = (layout.n_cells, layout.n_cells)
    beta, _ = cg(
        LinearOperator(shape, matvec=normal, dtype=np.float64),
        projected,
        rtol=_TOLERANCE,
        maxiter=_MOST_STEPS,
        M=LinearOperator(shape, matvec=lambda v: v / (counts + _RIDGE), dtype=np.float64),
    )
    return beta, offset


def _expected_auc(scores: Floats, p: Floats) -> float:
    """P(a positive scores above a negative), each chain being positive with its own probability."""
    order = np.argsort(scores, kind="stable")
    _, start = np.unique(scores[order], return_index=True)
    positive = np.add.reduceat(p[order], start)
    negative = np.add.reduceat(1 - p[order], start)
    below = np.cumsum(negative) - negative
    return float((positive * (below + negative / 2)).sum() / (positive.sum() * negative.sum()))
