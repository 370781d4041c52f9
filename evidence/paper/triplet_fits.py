"""Three features alone: field, logistic and Naive Bayes at their optima, and what the pairs do not show.

The states x of three features are few enough to list. The field's optimum comes by enumeration (by chains
where the states are too many for that to be quick), the logistic's from the states weighted by their records:

    Σ_x d(x)·log(1 + e^{z(x)}) − c(x)·z(x) + λ‖θ‖²,   z = θ₀ + φ(x)·θ,

the objective of the records themselves, of which d(x) are in state x and c(x) of those positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
from scipy.sparse import vstack
from sklearn.linear_model import LogisticRegression

from agglearn.field.engines.exact import ExactEngine
from agglearn.field.field import Field
from agglearn.field.optimum import exact_optimum
from agglearn.field.problem import Problem, make_problem
from agglearn.field.start import tree_start
from agglearn.judge.baselines import LogOddsModel, naive_bayes, one_hot
from agglearn.judge.scores import entropy, nllh
from agglearn.runtime.random import Numbers
from agglearn.train.loop import fit
from agglearn.train.settings import FitSettings
from evidence.runner import Value
from evidence.splits import Part, Predictor
from evidence.timing import THREADS

MODELS = ("field", "logistic", "naive_bayes")

Triplet = tuple[str, str, str]
Codes = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float64]

_LAMBDA_MU = 0.1  # the default
_ENUMERATED = 20_000  # states, above which chains are faster
_TOLERANCE = 1e-6  # of an expected cell, as a share of the records: the NLLH is right to about 1e-5
_STRENGTHS = (30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 100_000.0)  # of the field's word, in records


@dataclass(frozen=True, eq=False)
class Three:
    """The training records of three features: their pair tables, and their number in each state."""

    problem: Problem
    d: Floats
    c: Floats

    @classmethod
    def of(cls, triplet: Triplet, part: Part) -> Three:
        """The pair tables, and the counts of all three together, which the field is not told."""
        problem = make_problem(part.data.select(features=triplet))
        cards = problem.layout.cards
        state = np.ravel_multi_index(tuple(columns(triplet, part).astype(np.int64)), cards)
        d, c = (np.bincount(state, weights, prod(cards)) for weights in (np.ones(len(state)), part.y))
        return cls(problem, np.asarray(d, np.float64), np.asarray(c, np.float64))

    @property
    def states(self) -> Codes:
        """Every state, a row per feature, in the order of ``d`` and ``c``."""
        cards = self.problem.layout.cards
        return np.array(np.unravel_index(np.arange(len(self.d)), cards), np.uint16)

    def log_loss(self, model: Predictor) -> float:
        """Mean log loss on these records."""
        z = model.log_odds(self.states)
        return float((self.d @ np.logaddexp(0.0, z) - self.c @ z) / self.d.sum())


def fit_model(name: str, three: Three, penalty: float) -> Predictor:
    """One of the models, with this λ_θ."""
    if name == "field":
        return fit_field(three.problem, penalty)[0]
    return fit_logistic(three, penalty) if name == "logistic" else naive_bayes(three.problem, penalty)


def fit_field(problem: Problem, lambda_theta: float) -> tuple[Field, Floats]:
    """The field, and its law of X over the states."""
    layout = problem.layout
    engine = ExactEngine(layout, problem.rows)
    if engine.states.size > _ENUMERATED:
        settings = FitSettings(lambda_theta=lambda_theta, lambda_mu=_LAMBDA_MU)
        field = fit(problem, settings, threads=THREADS).field
    else:
        mu0 = tree_start(layout, problem.d, problem.rows, 2, Numbers(0)).mu
        tables = (problem.d, problem.c, problem.positives)
        best = exact_optimum(engine, *tables, _LAMBDA_MU, lambda_theta, mu0, tolerance=_TOLERANCE)
        field = best.field
    return field, engine.probabilities(field).sum(axis=1)


def fit_logistic(three: Three, l2: float) -> LogOddsModel:
    """The logistic of the records, all pairs of the three features being its cells."""
    layout = three.problem.layout
    seen = np.flatnonzero(three.d)
    design = one_hot(three.states[:, seen], layout)
    weights = np.concatenate([three.c[seen], (three.d - three.c)[seen]])
    there = weights > 0
    labels = np.repeat([1, 0], len(seen))
    model = LogisticRegression(solver="lbfgs", C=1 / (2 * l2), tol=1e-7, max_iter=5_000)
    model.fit(vstack([design, design], format="csr")[there], labels[there], weights[there])
    return LogOddsModel(layout, model.coef_[0], float(model.intercept_[0]))


def judge(triplet: Triplet, training: Part, test: Part, penalties: dict[str, float]) -> Value:
    """NLLH of the three models on other records, what the field loses, and what pairs do not show of X.

    ``lost`` is the logistic's NLLH less the field's, with the standard error over the test records, and on
    the training records.
    """
    three = Three.of(triplet, training)
    field, law = fit_field(three.problem, penalties["field"])
    skyline = fit_logistic(three, penalties["logistic"])
    models = (field, skyline, naive_bayes(three.problem, penalties["naive_bayes"]))
    positive, codes = test.y == 1, columns(triplet, test)
    odds = dict(zip(MODELS, (model.log_odds(codes) for model in models), strict=True))
    paired = np.logaddexp(0.0, odds["field"]) - np.logaddexp(0.0, odds["logistic"])
    paired -= positive * (odds["field"] - odds["logistic"])
    error = paired.std() / np.sqrt(len(paired)) / entropy(positive)
    in_training = (three.log_loss(field) - three.log_loss(skyline)) / entropy(training.y == 1)
    return {
        "triplet": " × ".join(triplet),
        **{name: round(nllh(positive, z), 6) for name, z in odds.items()},
        "lost_error": round(float(error), 6),
        "lost_in_training": round(in_training, 6),
        "information": round(three_way_information(three, law, codes), 6),
        "furthest": _furthest(triplet, training, three, law),
    }


def columns(triplet: Triplet, part: Part) -> Codes:
    """The codes of three features, in the order of the schema."""
    return np.ascontiguousarray(part.codes[[part.schema.index[name] for name in triplet]])


def three_way_information(three: Three, law: Floats, codes: Codes) -> float:
    """How much better the triple's counts describe other records' x than the field does, in nats a record.

    The counts' law is P(x) = (d(x) + κπ(x)) / (n + κ), the training records and κ more that follow the field;
    κ is that of the best leave-one-out likelihood of the training records. A mean over other records has no
    upward bias, as KL(P̂‖π) on the same ones would have: it is about 0 where pairs tell all.
    """
    n, seen = three.d.sum(), three.d > 0
    d, pi = three.d[seen], law[seen]
    strength = max(_STRENGTHS, key=lambda k: float(d @ np.log((d - 1 + k * pi) / (n - 1 + k))))
    known = (codes < np.array(three.problem.layout.cards)[:, None]).all(axis=0)
    state = np.ravel_multi_index(tuple(codes[:, known].astype(np.int64)), three.problem.layout.cards)
    return float(np.mean(np.log((three.d / law + strength) / (n + strength))[state]))


def _furthest(triplet: Triplet, part: Part, three: Three, law: Floats) -> Value:
    """The state where the law of the records and that of the field differ most."""
    shares = three.d / three.d.sum()
    at = int(np.abs(shares - law).argmax())
    codes = three.states[:, at].tolist()
    names = [part.schema.feature(n).modalities[code] for n, code in zip(triplet, codes, strict=True)]
    return {
        "state": " · ".join(names),
        "records": round(float(shares[at]), 5),
        "field": round(float(law[at]), 5),
    }
