"""Records drawn from a private law of all columns, and a logistic regression fitted to them: the usual way to
private data for any use. Laws by mbi ("Private-PGM", McKenna, Sheldon and Miklau, 2019), under the same
(ε, δ) and with the same bins as the field; as many records as there are. A logistic over all values with
scikit-learn's defaults.

- *Of all pairs*: the very noisy tables that the field has, two features with the label each, and mbi's
  mixture of products fitted to all of them, with its defaults (100 products, 1,000 steps).
- *Of a tree*: a third of the budget for single columns, a third to choose a spanning tree (the exponential
  mechanism), a third for its pairs, and a graphical model of those (MST, 2021, without its merging of rare
  values). It is accounted for by ρ, as a choice is no Gaussian noise.
"""

from __future__ import annotations

import warnings
from functools import partial
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize_scalar

from agglearn.errors import InputError
from agglearn.privacy.release import simulate
from agglearn.schema.features import Codes
from evidence.page import spread, table
from evidence.privacy import budgets
from evidence.privacy.budgets import DELTA, EPSILONS, NAMES, Sizes
from evidence.privacy.rivals import one_hot
from evidence.runner import Cell, Results, Value
from evidence.zoo import sets
from evidence.zoo.judging import judged

TITLE = "Synthetic records"
FULL, QUICK = budgets.FULL, budgets.QUICK

Floats = npt.NDArray[np.float64]

_STEPS = 1_000
MODELS = {"mixture": "synthetic records of all pairs", "tree": "synthetic records of a tree"}


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set, budget and seed."""
    return [
        Cell(
            stem,
            {**budgets.settings(name, epsilon, seed, config), "steps": _STEPS},
            partial(measure, name, epsilon, seed, config),
        )
        for stem, name, epsilon, seed in budgets.runs(config)
    ]


def measure(name: str, epsilon: float, seed: int, config: Sizes) -> Value:
    """Both on one split and budget."""
    parts = sets.split(name, seed, config.part)
    exact = parts.aggregate(parts.whole, bins=budgets.bins(parts, epsilon), tables="pairs")
    schema = exact.schema
    train, test = schema.encode(parts.whole), schema.encode(parts.test)
    y = schema.encode_labels(parts.whole)[0].astype(train.dtype)
    positive = schema.encode_labels(parts.test)[0] == 1
    private = simulate(exact, epsilon, DELTA, seed=seed)
    released = []
    for scope, one in private.tables.items():
        assert one.noise is not None
        classes = np.stack([one.counts - one.sums[0], one.sums[0]], axis=-1)
        released.append((tuple(schema.index[f] for f in scope), classes, one.noise.sigma))
    np.random.seed(seed)  # noqa: NPY002 (mbi draws by it)
    cards = (*schema.cards, 2)
    drawn = {
        "mixture": mixture(released, cards, seed),
        "tree": tree(np.vstack([train, y]), cards, epsilon, np.random.default_rng(seed)),
    }
    return {
        model: judged(positive, _logistic(records, test, schema.cards)) for model, records in drawn.items()
    }


def mixture(
    released: list[tuple[tuple[int, ...], Floats, float]], cards: tuple[int, ...], seed: int
) -> Codes:
    """Records of a mixture of products that is fitted to noisy tables of features with the label."""
    mbi = _mbi()
    import optax
    from mbi.extensions import MixtureOfProductsEstimator

    label = len(cards) - 1
    measured = [
        mbi.LinearMeasurement(numbers.reshape(-1), (*map(_name, scope), _name(label)), sigma)
        for scope, numbers, sigma in released
    ]
    estimator = MixtureOfProductsEstimator(optimizer=optax.adam(0.1), seed=seed)  # its own example's
    law = estimator.estimate(_domain(mbi, cards), measured, iters=_STEPS)
    return _records(law, cards)


def tree(codes: Codes, cards: tuple[int, ...], epsilon: float, rng: np.random.Generator) -> Codes:
    """Records of a graphical model of a spanning tree of all columns."""
    mbi = _mbi()
    each, n = concentrated(epsilon, DELTA) / 3, len(cards)

    def measured(clique: tuple[int, ...], sigma: float) -> Any:
        numbers = counted(codes, cards, clique)
        noisy = (numbers + rng.normal(0.0, sigma, numbers.shape)).reshape(-1)
        return mbi.LinearMeasurement(noisy, tuple(map(_name, clique)), sigma)

    found = [measured((f,), sqrt(n / (2 * each))) for f in range(n)]
    total = float(np.mean([one.noisy_measurement.sum() for one in found]))
    shares = [np.maximum(one.noisy_measurement, 0.0) / total for one in found]
    off = {
        (f, g): float(np.abs(counted(codes, cards, (f, g)) - total * np.outer(shares[f], shares[g])).sum())
        for f in range(n)
        for g in range(f + 1, n)
    }
    found += [measured(edge, sqrt((n - 1) / (2 * each))) for edge in chosen(off, n, each, rng)]
    law = mbi.estimation.MirrorDescent().estimate(_domain(mbi, cards), found, iters=_STEPS)
    return _records(law, cards)


def chosen(
    off: dict[tuple[int, int], float], n: int, rho: float, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Edges of a spanning tree, each by the exponential mechanism among those that close no circle."""
    epsilon = sqrt(8 * rho / (n - 1))
    part = list(range(n))  # the component of each column
    edges = []
    for _ in range(n - 1):
        open_edges = [edge for edge in off if part[edge[0]] != part[edge[1]]]
        scores = 0.5 * epsilon * np.array([off[edge] for edge in open_edges])  # a record moves a score by 1
        odds = np.exp(scores - scores.max())
        f, g = open_edges[int(rng.choice(len(open_edges), p=odds / odds.sum()))]
        edges.append((f, g))
        joined = part[g]
        part = [part[f] if p == joined else p for p in part]
    return edges


def concentrated(epsilon: float, delta: float) -> float:
    """The ρ that (ε, δ) follows from (Canonne, Kamath and Steinke, 2020)."""

    def log_delta(rho: float) -> float:
        def at(a: float) -> float:
            return float((a - 1) * (a * rho - epsilon) + a * log(1 - 1 / a) - log(a - 1))

        found = minimize_scalar(lambda u: at(1 + exp(u)), bounds=(-5, 10), method="bounded")
        return float(found.fun)

    return float(brentq(lambda rho: log_delta(rho) - log(delta), 1e-8, epsilon))


def counted(codes: Codes, cards: tuple[int, ...], clique: tuple[int, ...]) -> Floats:
    """Records in the cells of some columns."""
    shape = [cards[f] for f in clique]
    flat = np.ravel_multi_index([codes[f].astype(np.int64) for f in clique], shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape).astype(float)


def _mbi() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of settings that are set below
            import jax
            import mbi
    except ImportError:
        raise InputError("mbi is not installed: pip install mbi") from None
    jax.config.update("jax_enable_x64", True)
    return mbi


def _name(column: int) -> str:
    return f"c{column}"


def _domain(mbi: Any, cards: tuple[int, ...]) -> Any:
    return mbi.Domain([_name(f) for f in range(len(cards))], list(cards))


def _records(law: Any, cards: tuple[int, ...]) -> Codes:
    """As many records as the law counts, coded; the label is the last row."""
    data = law.synthetic_data().to_dict()
    return np.stack([np.asarray(data[_name(f)]) for f in range(len(cards))]).astype(np.uint16)


def _logistic(records: Codes, test: Codes, cards: tuple[int, ...]) -> Floats:
    """Log-odds of test records by a logistic fitted to synthetic ones."""
    from sklearn.linear_model import LogisticRegression

    length = sqrt(len(cards) + 1)  # one_hot makes records of length 1
    model = LogisticRegression(max_iter=1_000).fit(length * one_hot(records[:-1], cards), records[-1])
    return np.asarray(model.decision_function(length * one_hot(test, cards)))


def section(results: Results, images: Path) -> list[str]:
    """NLLH of each, with its spread, beside the field's on the same splits with the same noise."""
    from evidence.privacy import SUBJECT

    fields, rows = SUBJECT.results("learning"), []
    for name in NAMES:
        for epsilon in EPSILONS:
            found = results.starting(f"{name}-epsilon{epsilon:g}-")
            if found:
                title = f"{sets.SETS[name].title}, ε = {epsilon:g}"
                own = [fields[run]["field"]["nllh"] for run in found if run in fields]
                scores = [[one[model]["nllh"] for one in found.values()] for model in MODELS]
                rows.append([title, str(len(found)), *(spread(s) if s else "–" for s in (own, *scores))])
    return table(["", "runs", "field", *MODELS.values()], rows)
