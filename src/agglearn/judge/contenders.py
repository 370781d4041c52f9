"""The models that a comparison puts side by side: how each is fitted, and how its penalty is chosen.

A choice costs about three fits at most. Penalties are powers of 2, climbed from the usual one
(:func:`climb`); the logistic, which is the slowest, is searched on no more records than :data:`_SEARCHED`
allows, to less precision than it is fitted with in the end, and each time from where it last was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from agglearn.aggregation.tally import Tally
from agglearn.field.problem import Problem, make_problem
from agglearn.judge.baselines import LogOddsModel, naive_bayes, pair_models
from agglearn.judge.scores import nllh
from agglearn.judge.skyline import skyline
from agglearn.judge.tree_bayes import tree_augmented_nb
from agglearn.runtime.progress import meter
from agglearn.runtime.random import Use, generator
from agglearn.schema.features import Codes
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope, Table
from agglearn.train.loop import fit
from agglearn.train.settings import FitSettings

MODELS = ("maxent", "logistic", "naive_bayes", "best_pair", "tan")
CONTENDERS = ("naive_bayes", "best_pair", "tan", "maxent", "logistic")  # the same, the slow ones last
TOLD = {  # what each is called and learns from, in the order of the paper's table
    "logistic": ("logistic regression", "records"),
    "maxent": ("agglearn", "tables"),
    "tan": ("tree-augmented Naive Bayes", "tables"),
    "naive_bayes": ("Naive Bayes", "tables"),
    "best_pair": ("best pair of features", "tables"),
}
DEFAULT_LAMBDAS = tuple(2.0**k for k in range(-4, 15))  # from hardly any penalty to hardly any weight

_OF_SINGLES = ("naive_bayes", "tan")  # which ask for counts of single features
_FIRST_LAMBDA = 16.0  # where a search begins: about the best on many data sets
_SEARCHED = 8_000_000  # records times tables that a penalty of the logistic is chosen on
_KEPT_PAIRS = 30  # of all pairs, those that are best with the first penalty are fitted with others
_SEARCH_REST = 1e-2  # root mean square of log-odds that a fit may be from rest while penalties are chosen
_WARM_UP_CHAINS, _WARM_UP_ITERATIONS = 64, 20  # enough to have compiled every kernel


@dataclass(frozen=True)
class How:
    """What is the same for every fit."""

    schema: Schema
    scopes: list[Scope]
    hash_size: int | None
    settings: FitSettings
    threads: int


@dataclass(eq=False)
class Training:
    """Records to fit on, and what models make of them, made when first asked for."""

    how: How
    codes: Codes
    y: npt.NDArray[np.uint8]

    @cached_property
    def problem(self) -> Problem:
        """What the field is fitted to."""
        return self._problem(self._tables(self.how.scopes, self.how.hash_size))

    @cached_property
    def with_singles(self) -> Problem:
        """The problem, where it has hashed tables with those of the single features beside them."""
        if all(cells.apart for cells in self.problem.layout.cells):
            return self.problem
        singles = self._tables([(name,) for name in self.how.schema.names], None)
        return self._problem({**self._tables(self.how.scopes, self.how.hash_size), **singles})

    @cached_property
    def searched(self) -> Training:
        """As many of the records, at random, as penalties of the logistic are chosen on."""
        most = max(_SEARCHED // self.problem.layout.n_tables, 1)
        if len(self.y) <= most:
            return self
        rng = generator(self.how.settings.seed, Use.SEARCHED)
        some = np.sort(rng.permutation(len(self.y))[:most])
        return Training(self.how, np.ascontiguousarray(self.codes[:, some]), self.y[some])

    def _tables(self, scopes: list[Scope], hash_size: int | None) -> dict[Scope, Table]:
        tally = Tally(self.how.schema, scopes, hash_size)
        tally.add(np.ascontiguousarray(self.codes), self.y[None, :])
        return tally.tables()

    def _problem(self, tables: dict[Scope, Table]) -> Problem:
        return make_problem(AggregatedData(self.how.schema, tables, len(self.y), (int(self.y.sum()),)))


@dataclass(frozen=True)
class Choice:
    """What the validation records chose, by so many fits; and the seconds of the first of them."""

    l2: float | None  # None: the model finds its own
    pair: tuple[int, ...] | None = None
    fits: int = 0
    seconds: float = 0.0


Valid = tuple[Codes, npt.NDArray[np.bool_]]


def choose(name: str, training: Training, valid: Valid, grid: list[float], show: bool = False) -> Choice:
    """The penalty (and the pair) of greatest NLLH on the validation records."""
    if len(grid) == 1 and name != "best_pair":
        return Choice(grid[0])
    pairs: dict[float, tuple[int, ...]] = {}
    seconds: list[float] = []
    last: list[LogOddsModel] = []
    kept: list[tuple[int, ...]] = []
    threads = training.how.threads

    def candidates(l2: float) -> Sequence[LogOddsModel]:
        if name == "best_pair":
            return pair_models(training.problem, l2, kept or None)
        if name != "logistic":
            return [contend(name, training, l2)[0]]
        some, layout = training.searched, training.problem.layout
        warm = last[0] if last else None
        last[:] = [skyline(some.codes, some.y, layout, l2, warm=warm, rest=_SEARCH_REST, threads=threads)]
        return last

    def score(l2: float) -> float:
        began = time.perf_counter()
        fitted = candidates(l2)
        seconds.append(time.perf_counter() - began)
        scores = [nllh(valid[1], m.log_odds(valid[0], threads)) for m in fitted]
        best = int(np.argmax(scores))
        if name == "best_pair":
            pairs[l2] = fitted[best].layout.scopes[0]
            if not kept:
                order = np.argsort(scores)[::-1][:_KEPT_PAIRS]
                kept.extend(fitted[k].layout.scopes[0] for k in order)
        advance(1, f"penalty {l2:g}")
        return scores[best]

    with meter(f"choosing the penalty: {TOLD[name][0]}", unit="fits", show=show) as advance:
        l2 = climb(grid, score, _FIRST_LAMBDA)
    return Choice(l2, pairs.get(l2), len(seconds), seconds[0])


def climb(grid: Sequence[float], score: Callable[[float], float], first: float) -> float:
    """The value of a rising grid with the greatest score, if the score has one peak.

    Goes uphill from the value nearest to ``first`` by two places at a time, then by one; each value is
    scored once.
    """
    scores: dict[int, float] = {}

    def known(k: int) -> float:
        if k not in scores:
            scores[k] = score(grid[k])
        return scores[k]

    at = min(range(len(grid)), key=lambda k: abs(np.log(max(grid[k], 1e-12) / first)))
    for stride in (2, 1):
        while True:
            near = [k for k in (at, at - stride, at + stride) if 0 <= k < len(grid)]
            best = max(near, key=known)
            if best == at:
                break
            at = best
    return grid[at]


def contend(
    name: str,
    training: Training,
    l2: float | None,
    *,
    pair: tuple[int, ...] | None = None,
    show: bool = False,
) -> tuple[LogOddsModel, float, float]:
    """A model, the seconds its fit took, and its penalty."""
    problem, how = training.problem, training.how
    began = time.perf_counter()
    if name == "maxent":
        settings = replace(how.settings, lambda_theta=l2)
        with meter("fitting", settings.iterations, "iterations", show=show) as advance:
            fitted = fit(problem, settings, threads=how.threads, on_iteration=lambda state: advance(1))
        field = LogOddsModel(fitted.field.layout, fitted.field.theta, fitted.field.intercept)
        return field, time.perf_counter() - began, fitted.state.lambda_theta
    assert l2 is not None, "only the field finds its own penalty"
    if name == "logistic":
        with meter("fitting", unit="steps", show=show) as advance:
            found = skyline(
                training.codes,
                training.y,
                problem.layout,
                l2,
                threads=how.threads,
                on_step=lambda left: advance(1, f"log-odds still off by about {left:.2g}"),
            )
        return found, found.seconds, l2
    tables = training.with_singles if name in _OF_SINGLES else problem
    began = time.perf_counter()
    model: LogOddsModel
    if name == "naive_bayes":
        model = naive_bayes(tables, l2)
    elif name == "tan":
        model = tree_augmented_nb(tables, l2)
    else:
        (model,) = pair_models(problem, l2, None if pair is None else [pair])
    return model, time.perf_counter() - began, l2


def warm_up(training: Training) -> None:
    """Have the kernels compiled, so that no fit is timed with that."""
    settings = replace(training.how.settings, iterations=_WARM_UP_ITERATIONS, chains=_WARM_UP_CHAINS)
    fit(training.problem, settings, threads=training.how.threads)
