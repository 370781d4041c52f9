"""The models of the paper's table on one split: fitted, chosen and judged.

Penalties, iterations and pairs are chosen by NLLH on the validation records after fitting to the other
training records; the model is then fitted to all training records and judged on the test records. What ends
in ``_on_test`` is fitted to all training records and chosen by the test records themselves, as the paper did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from agglearn.field.field import Field
from agglearn.judge.baselines import LogOddsModel, PairModel, logistic, naive_bayes, one_hot, pair_models
from agglearn.judge.contenders import climb
from agglearn.train.loop import begin, fit, iterate
from agglearn.train.settings import FitSettings, TrainingSettings
from evidence.paper import published
from evidence.runner import Value
from evidence.splits import Part, Predictor, Split
from evidence.timing import THREADS

GRID = tuple(2.0**k for k in range(11))  # the paper's "log 2 scale"
PAIR_GRID = tuple(2.0**k for k in range(-4, 7))
NAIVE_BAYES_GRID = tuple(4.0**k for k in range(8))
PATH_GRID = (1.0, 16.0, 256.0)
FIRST = 16.0  # where the searches begin

PAPERS_METHOD = FitSettings(
    lambda_mu=published.TYPICAL_LAMBDA_MU,
    tolerance=0.0,
    chains=published.CHAINS["adult"],
    iterations=published.NOTEBOOK_ITERATIONS,
    training=TrainingSettings(
        start="independent",
        growth=1,
        first_step_mu=published.STEP,
        step_mu=published.STEP,
        first_step_theta=published.STEP,
        step_theta=published.STEP,
        momentum=0.0,
        lag=1.0,
        law="one",
        rate_memory=0.0,
        averaging=False,
    ),
)
"""The paper's training as its appendix tells it: constant steps of 1/tables on 10,000 chains from an
independent start, nothing averaged. Only the shrinking of μ is ours, toward its start instead of 0."""


def with_steps(step_mu: float, step_theta: float) -> FitSettings:
    """The paper's training with other constant steps, in units of 1/tables."""
    training = replace(
        PAPERS_METHOD.training,
        first_step_mu=step_mu,
        step_mu=step_mu,
        first_step_theta=step_theta,
        step_theta=step_theta,
    )
    return replace(PAPERS_METHOD, training=training)


def models_of(split: Split, naive_bayes_iterations: int) -> Value:
    """Every model of the table, by name: its NLLH on the test records and what was chosen."""
    return {
        **_logistics(split),
        **_fields(split),
        **_naive_bayes(split, naive_bayes_iterations),
        **_best_pairs(split),
    }


def judge(model: Predictor, part: Part) -> float:
    """NLLH of a model on a part's records, rounded for the file."""
    return round(part.held_out.nllh(model), 5)


class Logistic:
    """Logistics of one part by their penalty, each begun at the last one fitted."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._design = one_hot(part.codes, part.layout)
        self._last: LogOddsModel | None = None
        self.fit = lru_cache(maxsize=None)(self._fit)

    def _fit(self, l2: float) -> LogOddsModel:
        part = self._part
        model = logistic(
            part.codes,
            part.y,
            part.layout,
            l2,
            max_iter=published.LOGISTIC_ITERATIONS,
            warm=self._last,
            design=self._design,
        )
        self._last = model
        return model


def choose(fit_train: Callable[[float], Predictor], split: Split) -> float:
    """The penalty of the greatest NLLH on the validation records."""
    return climb(GRID, lambda l2: judge(fit_train(l2), split.valid), FIRST)


def _chosen(
    fit_train: Callable[[float], Predictor],
    fit_whole: Callable[[float], Predictor],
    split: Split,
    name: str,
) -> Value:
    """A penalised model, its penalty chosen on validation records and on the test records."""
    l2 = choose(fit_train, split)
    best = climb(GRID, lambda l2: judge(fit_whole(l2), split.test), l2)
    return {
        name: {"nllh": judge(fit_whole(l2), split.test), "lambda": l2},
        f"{name}_on_test": {"nllh": judge(fit_whole(best), split.test), "lambda": best},
    }


def _logistics(split: Split) -> Value:
    return _chosen(Logistic(split.train).fit, Logistic(split.whole).fit, split, "logistic")


def fit_field(part: Part, settings: FitSettings) -> Field:
    """A field of a part's tables."""
    return fit(part.problem, settings, threads=THREADS).field


def _fields(split: Split) -> Value:
    settings = FitSettings(seed=split.seed)

    def fitter(part: Part) -> Callable[[float], Field]:
        return lru_cache(maxsize=None)(lambda l2: fit_field(part, replace(settings, lambda_theta=l2)))

    fitted = fit(split.whole.problem, settings, threads=THREADS)
    return {
        "field_rule": {
            "nllh": judge(fitted.field, split.test),
            "lambda": round(fitted.state.lambda_theta, 2),
            "iterations": fitted.iterations,
        },
        **_chosen(fitter(split.train), fitter(split.whole), split, "field"),
    }


def _naive_bayes(split: Split, iterations: int) -> Value:
    train, whole = split.train.over("singles"), split.whole.over("singles")

    def valid_score(l2: float) -> float:
        return judge(naive_bayes(train.problem, l2), split.valid)

    l2 = max(NAIVE_BAYES_GRID, key=valid_score)
    plain = naive_bayes(whole.problem, 0.0)
    shrunk = naive_bayes(whole.problem, l2)
    on_valid = {g: path(train, split.valid, g, iterations) for g in PATH_GRID}
    on_test = {g: path(whole, split.test, g, iterations) for g in PATH_GRID}
    stop = max(on_valid, key=lambda g: max(on_valid[g]))
    at = int(np.argmax(on_valid[stop]))
    best = max(on_test, key=lambda g: max(on_test[g]))
    return {
        "naive_bayes_plain": {"nllh": judge(plain, split.test), "lambda": 0.0},
        "naive_bayes": {"nllh": judge(shrunk, split.test), "lambda": l2},
        "naive_bayes_stopped": {"nllh": on_test[stop][at], "lambda": stop, "iterations": at + 1},
        "naive_bayes_on_test": {
            "nllh": max(on_test[best]),
            "lambda": best,
            "iterations": int(np.argmax(on_test[best])) + 1,
        },
    }


def path(part: Part, judged_on: Part, l2: float, iterations: int) -> list[float]:
    """NLLH after each iteration of the paper's training on a part's tables.

    On tables of the single features the field is Naive Bayes, and this is how the paper trained it.
    """
    settings = replace(PAPERS_METHOD, lambda_theta=l2, iterations=iterations)
    engine, start, state = begin(part.problem, settings, THREADS)
    steps = iterate(engine, start, part.problem, settings, state, THREADS)
    return [judge(state.weights.now, judged_on) for _ in steps]


def _best_pairs(split: Split) -> Value:
    chosen = max((_best_pair(split.train, split.valid, l2) for l2 in PAIR_GRID), key=lambda found: found[0])
    (model,) = pair_models(split.whole.problem, chosen[1], [chosen[2].pair])
    best = max((_best_pair(split.whole, split.test, l2) for l2 in PAIR_GRID), key=lambda found: found[0])
    return {
        "best_pair": {
            "nllh": judge(model, split.test),
            "lambda": chosen[1],
            "pair": pair_names(split, chosen[2]),
        },
        "best_pair_on_test": {"nllh": best[0], "lambda": best[1], "pair": pair_names(split, best[2])},
    }


def pair_names(split: Split, model: PairModel) -> list[str]:
    """The two features of a pair."""
    return [split.whole.schema.names[f] for f in model.pair]


def _best_pair(part: Part, judged_on: Part, l2: float) -> tuple[float, float, PairModel]:
    """NLLH, penalty and model of the pair that does best on some records."""
    models: Sequence[PairModel] = pair_models(part.problem, l2)
    scores = [judge(model, judged_on) for model in models]
    best = int(np.argmax(scores))
    return scores[best], l2, models[best]
