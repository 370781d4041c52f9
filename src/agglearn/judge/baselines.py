"""What a field is compared with: simpler models from the same tables, and a skyline from the records.

Every one is a sum of cell weights, log-odds(x) = θ₀ + φ(x)·θ, over some layout of tables, as the field
is; they differ in which tables they read and how the weights are found:

- **Naive Bayes**: the table of each single feature, each fitted alone;
- **best pair**: one pair of features alone;
- **tree-augmented Naive Bayes**: a tree of pairs in each class (Friedman, Geiger and Goldszmidt 1997);
- **logistic**: all tables of the field at once, fitted to the records.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.special import expit

from agglearn.errors import InputError, TableError
from agglearn.field.kernels.score import score_codes
from agglearn.field.layout import Layout
from agglearn.field.margins import is_sparse, marginal, pair_tables, single
from agglearn.field.problem import Problem
from agglearn.runtime.memory import require
from agglearn.schema.features import Codes
from agglearn.tables.cells import Cells, DenseCells

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_NO_L2 = 1e-9  # the penalty that stands for none: keeps the weight of a cell with one label finite
_NEWTON_STEPS = 100  # a safeguard: a bracket halves at each, and ends by the precision
_PRECISION = 1e-12  # of weights and rates


@dataclass(frozen=True, eq=False)
class LogOddsModel:
    """Log-odds as a sum of cell weights.

    Attributes
    ----------
    layout
        The tables whose cells have a weight.
    theta
        The weights, in the layout's order.
    intercept
        The log-odds where no cell adds anything.
    """

    layout: Layout
    theta: Floats
    intercept: float

    def log_odds(self, codes: Codes, threads: int = 1) -> Floats:
        """Log-odds of records given as ``codes[feature, record]``; unknown values add nothing."""
        return score_codes(codes, self.layout, self.theta, self.intercept, threads)


@dataclass(frozen=True, eq=False)
class PairModel(LogOddsModel):
    """A model of one pair, and its gain over the base rate in penalised log-likelihood."""

    gain: float

    @property
    def pair(self) -> tuple[int, ...]:
        """Indices of the two features."""
        return self.layout.scopes[0]


@dataclass(frozen=True, eq=False)
class LogisticModel(LogOddsModel):
    """A logistic regression, the iterations it took and the seconds of the optimisation alone."""

    n_iter: int
    seconds: float


def naive_bayes(problem: Problem, l2: float) -> LogOddsModel:
    """Naive Bayes from tables, its weights shrunk by an L2 penalty.

    For each modality of each feature, minimises −c·w + d·log(1 + e^{b+w}) + l2·w² with b the log-odds
    of the base rate. With ``l2`` = 0 this is Naive Bayes by frequencies, where w = log P(x_f|1) −
    log P(x_f|0).
    """
    check_l2(l2)
    layout = Layout.plain(problem.layout.cards, [(f,) for f in range(problem.layout.n_features)])
    d = np.concatenate([single_counts(problem, problem.d, f) for f in range(layout.n_features)])
    c = np.concatenate([single_counts(problem, problem.c, f) for f in range(layout.n_features)])
    d, c = possible(d, c)
    base = problem.base_log_odds
    return LogOddsModel(layout, _cell_weights(d, c, np.full(d.size, base), l2), base)


def pair_models(
    problem: Problem, l2: float, pairs: Iterable[tuple[int, ...]] | None = None
) -> list[PairModel]:
    """For each pair of features that a table tells, the L2-penalised logistic on its cells.

    Parameters
    ----------
    problem
        The tables.
    l2
        Penalty on the weights; the intercept is free.
    pairs
        Which pairs, as increasing feature indices; all by default. A problem of one feature has that
        feature for its only pair.
    """
    check_l2(l2)
    parts = _pair_counts(problem, None if pairs is None else set(pairs))
    if not parts:
        raise TableError("no table tells a pair of features: a best pair needs one")
    d, c = possible(*(np.concatenate([part[k] for part in parts.values()]) for k in (0, 1)))
    starts = np.cumsum([0, *(len(part[0]) for part in parts.values())])
    intercepts, w = _fit_tables(d, c, starts, problem.base_log_odds, l2)
    gains = _gains(d, c, starts, intercepts, w, l2)
    models = []
    for k, (pair, (_, _, cells)) in enumerate(parts.items()):
        layout = Layout(problem.layout.cards, (pair,), (cells,))
        weights = w[starts[k] : starts[k + 1]]
        models.append(PairModel(layout, weights, float(intercepts[k]), float(gains[k])))
    return models


def best_pair(problem: Problem, l2: float) -> PairModel:
    """The pair whose penalised likelihood gains most, judged on the tables it was fitted to.

    With other records at hand, choose among :func:`pair_models` by their score instead.
    """
    return max(pair_models(problem, l2), key=lambda model: model.gain)


def logistic(
    codes: Codes,
    y: npt.NDArray[np.uint8],
    layout: Layout,
    l2: float,
    *,
    max_iter: int = 200,
    warm: LogOddsModel | None = None,
    design: Any = None,
) -> LogisticModel:
    """The skyline: a logistic regression with exactly the field's cells, fitted to records.

    Minimises Σ log loss + l2·‖θ‖², the intercept free, by L-BFGS.

    Parameters
    ----------
    codes, y
        Records as ``codes[feature, record]``, and their labels.
    layout
        The tables.
    l2
        Penalty on the weights.
    max_iter
        The most iterations.
    warm
        A model of the same layout to begin from.
    design
        ``one_hot(codes, layout)``, where it is made already.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    check_l2(l2)
    matrix = one_hot(codes, layout) if design is None else design
    # Cells without a record keep the weight 0 all along: leaving them out changes nothing but the cost.
    seen = np.flatnonzero(np.bincount(matrix.indices, minlength=layout.n_cells))
    place = np.zeros(layout.n_cells, np.int32)
    place[seen] = np.arange(len(seen), dtype=np.int32)
    matrix = csr_matrix(
        (matrix.data, place[matrix.indices], matrix.indptr), shape=(matrix.shape[0], len(seen)), copy=False
    )
    model = LogisticRegression(
        solver="lbfgs", C=1 / (2 * l2) if l2 else np.inf, max_iter=max_iter, warm_start=warm is not None
    )
    if warm is not None:
        model.coef_, model.intercept_ = warm.theta[seen][None, :], np.array([warm.intercept])
    began = time.perf_counter()
    with warnings.catch_warnings():
        # So many iterations and no more is the definition of the skyline; n_iter tells.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(matrix, y)
    seconds = time.perf_counter() - began
    theta = np.zeros(layout.n_cells)
    theta[seen] = model.coef_[0]
    return LogisticModel(layout, theta, float(model.intercept_[0]), int(model.n_iter_[0]), seconds)


def one_hot(codes: Codes, layout: Layout) -> Any:
    """φ(x) of each record as a sparse CSR matrix: a 1 in each cell that counts it."""
    n = codes.shape[1]
    require(
        20 * n * layout.n_tables,
        f"the one-hot of {n:,} records over {layout.n_tables:,} tables",
        "take fewer records, or leave the logistic out",
    )
    cells = np.empty((n, layout.n_tables), np.int32)
    for t in range(layout.n_tables):
        cells[:, t] = _cells(codes, layout, t)
    known = cells >= 0
    ends = np.concatenate([[0], np.cumsum(known.sum(axis=1), dtype=np.int64)])
    indices = cells.reshape(-1) if known.all() else cells[known]
    if len(indices) < 2**31:
        ends = ends.astype(np.int32)
    return csr_matrix((np.ones(len(indices)), indices, ends), shape=(n, layout.n_cells))


def _cells(codes: Codes, layout: Layout, t: int) -> Ints:
    """The cell of table ``t`` that counts each record, in the order of the layout; −1 where none does."""
    scope = list(layout.scopes[t])
    own = np.ascontiguousarray(codes[scope])
    cards = np.array([layout.cards[f] for f in scope])
    unknown = (own >= cards[:, None]).any(axis=0)
    return np.where(unknown, -1, layout.cells[t].find(own) + layout.offsets[t])


def check_l2(l2: float) -> None:
    if not (np.isfinite(l2) and l2 >= 0):
        raise InputError(f"the penalty {l2} must be at least 0")


def possible(d: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Counts that noise has left impossible, brought to the nearest possible ones."""
    d = np.maximum(d, 0.0)
    return d, np.clip(c, 0.0, d)


def single_counts(problem: Problem, vector: Floats, f: int) -> Floats:
    """The sums of a feature's modalities, as all tables together tell them."""
    total, weight = single(problem.layout, vector, f)
    if not weight:
        raise TableError(f"feature number {f + 1} is in hashed tables only: its own counts are not known")
    return total / weight


def _pair_counts(
    problem: Problem, wanted: set[tuple[int, ...]] | None
) -> dict[tuple[int, ...], tuple[Floats, Floats, Cells]]:
    """For each pair (of those wanted) d, c and its cells."""
    layout = problem.layout
    counts: dict[tuple[int, ...], tuple[Floats, Floats, Cells]] = {}
    for pair, t in pair_tables(layout).items():
        if wanted is not None and pair not in wanted:
            continue
        if is_sparse(layout, t) and layout.scopes[t] == pair:
            part = layout.part(t)
            counts[pair] = (problem.d[part], problem.c[part], layout.cells[t])
            continue
        d, c = (marginal(layout, vector, t, pair) for vector in (problem.d, problem.c))
        counts[pair] = (d.reshape(-1), c.reshape(-1), DenseCells(d.shape))
    for t, scope in enumerate(layout.scopes):
        is_wanted = wanted is None or scope in wanted
        if is_wanted and scope not in counts and len(scope) == min(2, layout.n_features):
            part = layout.part(t)
            counts[scope] = (problem.d[part], problem.c[part], layout.cells[t])
    return counts


def _cell_weights(d: Floats, c: Floats, offset: Floats, l2: float, first: Floats | None = None) -> Floats:
    """The w of each cell that minimises −c·w + d·log(1 + e^{offset+w}) + l2·w².

    Newton's method kept in a bracket: the slope is increasing in w, so its sign tells the side.
    """
    l2 = max(l2, _NO_L2)
    w = np.zeros(d.size) if first is None else first.copy()
    low, high = np.full(d.size, -np.inf), np.full(d.size, np.inf)
    for _ in range(_NEWTON_STEPS):
        p, q = expit(offset + w), expit(-offset - w)
        slope = (d - c) * p - c * q + 2 * l2 * w  # d·p − c, exact also where p is all but 0 or 1
        low, high = np.where(slope <= 0, w, low), np.where(slope >= 0, w, high)
        move = -slope / (d * p * q + 2 * l2)
        # While a side is open, go at most 2 toward it: a flat sigmoid throws Newton far out.
        ahead = w + np.clip(move, -2.0, 2.0)
        with np.errstate(invalid="ignore"):  # ∞ − ∞ where both sides are open
            middle = (low + high) / 2
        ahead = np.where((ahead < low) | (ahead > high), middle, ahead)
        done = np.abs(ahead - w).max(initial=0.0)
        w = ahead
        if done < _PRECISION:
            break
    return w


def _fit_tables(d: Floats, c: Floats, starts: Ints, base: float, l2: float) -> tuple[Floats, Floats]:
    """Weights of many one-table logistics at once, each with a free intercept.

    Newton's method on the intercepts, with the weights at their best for each. There the slope of an
    intercept is Σ(d·p − c) = −2·l2·Σw, and with h = d·p(1−p) its curvature is Σ 2·l2·h / (h + 2·l2).
    """
    l2 = max(l2, _NO_L2)
    sizes = np.diff(starts)
    intercepts, w = np.full(len(sizes), base), np.zeros(d.size)
    for _ in range(_NEWTON_STEPS):
        offset = np.repeat(intercepts, sizes)
        w = _cell_weights(d, c, offset, l2, w)
        h = d * expit(offset + w) * expit(-offset - w)
        slope = -np.add.reduceat(w, starts[:-1])
        curvature = np.add.reduceat(h / (h + 2 * l2), starts[:-1])
        move = np.clip(-slope / np.maximum(curvature, _PRECISION), -1.0, 1.0)
        if np.abs(move).max() < 1e-9:
            break
        intercepts += move
    return intercepts, w


def _gains(d: Floats, c: Floats, starts: Ints, intercepts: Floats, w: Floats, l2: float) -> Floats:
    """Penalised log-likelihood of each table's logistic, less that of the table's own base rate."""
    z = np.repeat(intercepts, np.diff(starts)) + w
    likelihood = np.add.reduceat(c * z - d * np.logaddexp(0.0, z) - l2 * w**2, starts[:-1])
    positives, rows = np.add.reduceat(c, starts[:-1]), np.add.reduceat(d, starts[:-1])
    rate = np.clip(positives / np.maximum(rows, 1.0), _PRECISION, 1 - _PRECISION)
    constant = positives * np.log(rate) + (rows - positives) * np.log1p(-rate)
    return np.asarray(likelihood - constant)
