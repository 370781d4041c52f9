"""Models that look at the records, under the same (ε, δ) for one record more or less, from the same bins and
values as the field.

- *Noisy gradient descent*: a logistic over all values of all features, records scaled to length 1; 200 steps
  over all records with momentum, each record's part of a gradient at most 0.5 long, the mean of the second
  half. One setting for all data and budgets: the best of 12 on validation records of Adult. Gaussian noise on
  all steps together is that of one release of 200 numbers, without loss.
- *Objective perturbation* (Kifer, Smith and Thakurta, 2012): the same logistic with a random linear term and
  the penalty that the promise asks for, solved to rest.
- *DP-EBM* of interpret: additive boosting with its defaults, bins by its own private means.
"""

from __future__ import annotations

import warnings
from functools import partial
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import expit

from agglearn.errors import InputError
from agglearn.schema.features import Binned, Codes
from evidence.page import spread, table
from evidence.privacy import budgets
from evidence.privacy.budgets import DELTA, EPSILONS, NAMES, Sizes
from evidence.runner import Cell, Results, Value
from evidence.zoo import sets
from evidence.zoo.judging import judged

TITLE = "Rivals"
FULL, QUICK = budgets.FULL, budgets.QUICK

Floats = npt.NDArray[np.float64]

MODELS = {
    "descent": "noisy gradient descent",
    "perturbed": "objective perturbation",
    "boosting": "DP-EBM",
}
_STEPS, _LENGTH, _CLIP, _MOMENTUM = 200, 10.0, 0.5, 0.9


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set, budget and seed."""
    how = {"steps": _STEPS, "length": _LENGTH, "clip": _CLIP, "momentum": _MOMENTUM}
    return [
        Cell(
            stem,
            {**budgets.settings(name, epsilon, seed, config), "descent": how},
            partial(measure, name, epsilon, seed, config),
        )
        for stem, name, epsilon, seed in budgets.runs(config)
    ]


def measure(name: str, epsilon: float, seed: int, config: Sizes) -> Value:
    """All rivals on one split and budget; one that is not installed is left out."""
    parts = sets.split(name, seed, config.part)
    schema = parts.aggregate(parts.whole, bins=budgets.bins(parts, epsilon), tables="singles").schema
    train, test = schema.encode(parts.whole), schema.encode(parts.test)
    y = schema.encode_labels(parts.whole)[0].astype(float)
    positive = schema.encode_labels(parts.test)[0] == 1
    x, x_test = (one_hot(codes, schema.cards) for codes in (train, test))
    rng = np.random.default_rng(seed)
    found: Value = {
        "descent": judged(positive, x_test @ descent(x, y, epsilon, rng)),
        "perturbed": judged(positive, x_test @ perturbed(x, y, epsilon, rng)),
    }
    numeric = [isinstance(feature, Binned) for feature in schema.features]
    boosted = boosting(train, y, test, numeric, epsilon, seed)
    if boosted is not None:
        found["boosting"] = judged(positive, boosted)
    return found


def one_hot(codes: Codes, cards: tuple[int, ...]) -> Any:
    """Values of all features and a constant, each record of length 1."""
    starts = np.cumsum(cards) - cards
    features, rows = codes.shape
    columns = np.concatenate([codes.T.astype(np.int64) + starts, np.full((rows, 1), sum(cards))], axis=1)
    length = np.full(columns.size, 1 / sqrt(features + 1))
    ends = np.arange(rows + 1) * (features + 1)
    return csr_matrix((length, columns.reshape(-1), ends), shape=(rows, sum(cards) + 1))


def descent(x: Any, y: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Weights of a logistic by clipped, noisy gradient descent."""
    scale = _CLIP * budgets.noise_on(_STEPS, epsilon).scale
    w, velocity, mean = (np.zeros(x.shape[1]) for _ in range(3))
    for step in range(_STEPS):
        residuals = np.clip(expit(x @ w) - y, -_CLIP, _CLIP)  # the length of a gradient, as records have 1
        gradient = x.T @ residuals + rng.normal(0.0, scale, w.size)
        velocity = _MOMENTUM * velocity + gradient / len(y)
        w = w - _LENGTH * velocity
        if 2 * step >= _STEPS:
            mean += 2 * w / _STEPS
    return mean


def perturbed(x: Any, y: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Weights of a logistic by objective perturbation with Gaussian noise."""
    pull = 2 * 0.25 / epsilon  # twice the greatest curvature of one record's loss
    sigma = sqrt(8 * log(2 / DELTA) + 4 * epsilon) / epsilon  # for gradients of length 1 at most
    push = rng.normal(0.0, sigma, x.shape[1])

    def objective(w: Floats) -> tuple[float, Floats]:
        z = x @ w
        value = np.logaddexp(0.0, z).sum() - y @ z + 0.5 * pull * (w @ w) + push @ w
        return float(value), x.T @ (expit(z) - y) + pull * w + push

    options = {"maxiter": 5_000, "maxfun": 20_000, "ftol": 1e-14, "gtol": 1e-6}
    return np.asarray(
        minimize(objective, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    )


def boosting(
    train: Codes, y: Floats, test: Codes, numeric: list[bool], epsilon: float, seed: int
) -> Floats | None:
    """Log-odds of interpret's DP-EBM, or None where it is not installed."""
    try:
        from interpret.privacy import DPExplainableBoostingClassifier  # type: ignore
    except ImportError:
        return None
    bounds = {f: (0.0, float(max(train[f].max(), 1))) for f, is_one in enumerate(numeric) if is_one}
    model = DPExplainableBoostingClassifier(
        feature_types=["continuous" if is_one else "nominal" for is_one in numeric],
        epsilon=epsilon,
        delta=DELTA,
        random_state=seed,
        privacy_bounds=bounds,
        n_jobs=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fixed seed protects nobody, and a value that is not seen is one
        model.fit(_raw(train, numeric), y.astype(int))
        p = model.predict_proba(_raw(test, numeric))[:, 1]
    if list(model.classes_) != [0, 1]:
        raise InputError("both labels are needed to boost")
    p = np.clip(p, 1e-9, 1 - 1e-9)
    return np.asarray(np.log(p / (1 - p)))


def _raw(codes: Codes, numeric: list[bool]) -> Any:
    """Records as interpret takes them: bins as numbers, other values as text."""
    columns = [c.astype(float) if one else c.astype(str) for c, one in zip(codes, numeric, strict=True)]
    raw = np.empty((codes.shape[1], len(columns)), object)
    for f, column in enumerate(columns):
        raw[:, f] = column
    return raw


def section(results: Results, images: Path) -> list[str]:
    """NLLH of each, with its spread."""
    rows = []
    for name in NAMES:
        for epsilon in EPSILONS:
            found = list(results.starting(f"{name}-epsilon{epsilon:g}-").values())
            if found:
                scores = [[one[m]["nllh"] for one in found if m in one] for m in MODELS]
                title = f"{sets.SETS[name].title}, ε = {epsilon:g}"
                rows.append([title, str(len(found)), *(spread(s) if s else "–" for s in scores)])
    return table(["", "runs", *MODELS.values()], rows)
