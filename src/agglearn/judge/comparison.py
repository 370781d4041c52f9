"""The field beside its baselines and its skyline, on the same records: the paper's table on any data.

The records are read and encoded once. Each model's penalty is chosen by its NLLH on a validation part of
the training records (the field's own are found from its tables, unless some to choose from are given); with
that penalty it is fitted again on all of them and judged on the test records,
which nothing before has looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.aggregation.options import AggregateOptions
from agglearn.aggregation.tally import Tally
from agglearn.aggregation.triples import Sample, telling_scopes
from agglearn.errors import InputError
from agglearn.field.problem import Problem, make_problem
from agglearn.judge.baselines import (
    LogOddsModel,
    PairModel,
    logistic,
    naive_bayes,
    one_hot,
    pair_models,
)
from agglearn.judge.scores import RecordScore, check_labels, nllh, score_predictions
from agglearn.judge.tree_bayes import tree_augmented_nb
from agglearn.records.first_pass import learn_schema
from agglearn.records.options import Coding, ReadOptions, Split, check_split
from agglearn.records.roles import Columns, make_labels
from agglearn.records.sources import Source, open_source
from agglearn.records.split import assign
from agglearn.report.document import Column, Document, Grid, number
from agglearn.report.finding import Finding
from agglearn.runtime.memory import require
from agglearn.runtime.options import as_names, with_keywords
from agglearn.runtime.progress import meter
from agglearn.runtime.threads import thread_count
from agglearn.schema.features import Codes
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.scopes import AUTO, parse_scopes
from agglearn.tables.table import Scope, Table
from agglearn.train.loop import fit
from agglearn.train.settings import FitSettings

MODELS = ("maxent", "logistic", "naive_bayes", "best_pair", "tan")
_TOLD = {  # what each is called and learns from, in the order of the paper's table
    "logistic": ("logistic regression", "records"),
    "maxent": ("agglearn", "tables"),
    "tan": ("tree-augmented Naive Bayes", "tables"),
    "naive_bayes": ("Naive Bayes", "tables"),
    "best_pair": ("best pair of features", "tables"),
}
DEFAULT_LAMBDAS = tuple(2.0**k for k in range(-4, 15))  # from hardly any penalty to hardly any weight

_CHEAP = ("naive_bayes", "tan")  # so quick that the whole grid is tried
_FIRST_LAMBDA = 16.0  # where the search of the others begins: about the best on many data sets
_WARM_UP_CHAINS, _WARM_UP_ITERATIONS = 64, 20  # enough to have compiled every kernel


@dataclass(frozen=True)
class ModelResult:
    """How a model did.

    Attributes
    ----------
    score
        Its score on the test records.
    seconds
        Time of the fit alone, on all training records with the penalty chosen, after compilation.
    lambda_theta
        The penalty chosen on the validation records; for ``tan`` its pseudo-records; for ``maxent`` what one
        for all tables would be, where it has found one for each.
    pair
        For ``best_pair``, the features chosen.
    """

    score: RecordScore
    seconds: float
    lambda_theta: float
    pair: Scope | None = None

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        score = {name: getattr(self.score, name) for name in ("nllh", "auc", "log_loss", "brier")}
        result = {**score, "seconds": self.seconds, "lambda_theta": self.lambda_theta}
        return result if self.pair is None else {**result, "pair": list(self.pair)}


@dataclass(frozen=True)
class Comparison(Finding):
    """What a comparison gave: a result for each model, and the size of what they were fitted to."""

    models: dict[str, ModelResult]
    train_rows: int
    test_rows: int
    features: int
    tables: int
    cells: int

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON values."""
        sizes = {k: v for k, v in asdict(self).items() if k != "models"}
        return {"models": {name: result.to_json() for name, result in self.models.items()}, **sizes}

    def document(self) -> Document:
        """The paper's table, on these records."""
        columns = (
            Column("model"),
            number("NLLH", ".4f"),
            number("AUC", ".4f"),
            number("seconds", ".2f"),
            number("penalty", ".3g"),
            Column("learnt from"),
        )
        rows = tuple(
            (text, m.score.nllh, m.score.auc, m.seconds, m.lambda_theta, source)
            for name, (text, source) in _TOLD.items()
            if (m := self.models.get(name)) is not None
        )
        return Document(
            title=f"trained on {self.train_rows:,} records, tested on {self.test_rows:,}",
            blocks=(Grid(columns, rows),),
            data=self.to_json(),
        )

    def rows(self) -> list[dict[str, Any]]:
        """A row per model, the best NLLH first, for a table that a person reads."""
        named = [{"model": name, **result.to_json()} for name, result in self.models.items()]
        return sorted(named, key=lambda row: -float(row["nllh"]))


def compare(
    train: Any,
    test: Any = None,
    *,
    label: str,
    positive: str | None = None,
    test_share: float = 0.2,
    valid_share: float = 0.2,
    seed: int = 0,
    models: Sequence[str] = MODELS,
    lambdas: Sequence[float] | None = None,
    fit_settings: FitSettings | None = None,
    threads: int | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    tables: str | Iterable[Sequence[str]] = AggregateOptions.tables,
    hash_size: int | None = None,
    read: ReadOptions | None = None,
    show_progress: bool = False,
    **coding: Any,
) -> Comparison:
    """Fit the field, its baselines and the logistic skyline to the same records, and score them.

    Parameters
    ----------
    train
        Records to train on: whatever :func:`~agglearn.aggregation.api.aggregate` reads, except lazy
        frames.
    test
        Records to judge by. Without them a random share of ``train`` is held out.
    label, positive
        The column to predict, and its positive value where it is not 0/1 or true/false.
    test_share
        Share of the records held out where ``test`` is not given.
    valid_share
        Share of the training records that penalties are chosen on.
    seed
        Seed of the splits.
    models
        Which models, of ``maxent``, ``logistic``, ``naive_bayes``, ``best_pair`` and ``tan``.
    lambdas
        Penalties to choose from; powers of 2 by default. The field finds its own unless some are given.
    fit_settings
        How the field is fitted; its ``lambda_theta`` is chosen here.
    threads
        Threads to use, all cores by default.
    features, exclude, tables, hash_size, read
        As in :func:`~agglearn.aggregation.api.aggregate_split`.
    **coding
        How columns are coded, learnt on the training records: ``bins``, ``binning``, ``categorical``
        and whatever else :class:`~agglearn.records.options.Coding` has.
    """
    unknown = [name for name in models if name not in MODELS]
    if unknown or not models:
        raise InputError(f"model {', '.join(unknown) or '(none)'} is not one of {', '.join(MODELS)}")
    grid = _check_grid(lambdas)
    named = None if features is None else as_names(features)
    columns = Columns(named, as_names(exclude), make_labels(label, positive))
    test_part = {} if test is not None else {"test": test_share}
    shares = {**test_part, "valid": valid_share * (1 - sum(test_part.values()))}
    check_split(shares)
    source = open_source(train, read)
    how_coded = with_keywords(Coding(), coding, "compare")
    learnt = learn_schema(
        source, columns, how_coded, split=Split(test_part, seed), show_progress=show_progress
    )
    schema = learnt.schema
    codes, y = _encode(source, schema)
    part = assign(0, len(y), seed, shares)
    is_valid = part == len(shares)
    if test is None:
        test_codes, test_y = codes[:, part == 1], y[part == 1]
        codes, y, is_valid = codes[:, part != 1], y[part != 1], is_valid[part != 1]
    else:
        test_codes, test_y = _encode(open_source(test, read), schema)
    check_labels(test_y, "the test records")
    check_labels(y[is_valid], "the validation part of the training records")
    scopes = parse_scopes(tables, schema)
    if tables == AUTO:
        sample = Sample()
        sample.add(codes)
        scopes += telling_scopes(sample, schema, len(y), threads)
    how = _How(schema, scopes, hash_size, fit_settings or FitSettings(), thread_count(threads))
    fitted_on = _Training(how, codes[:, ~is_valid], y[~is_valid])
    valid = (codes[:, is_valid], y[is_valid] == 1)
    with meter("fitting", unit="fits", show=show_progress) as advance:
        by_itself = ("maxent",) if lambdas is None else ()
        chosen = {
            name: _Choice(None) if name in by_itself else _choose(name, fitted_on, valid, grid, advance)
            for name in models
        }
        del fitted_on, valid
        whole = _Training(how, codes, y)
        results = {}
        for name, choice in chosen.items():
            if name == "maxent":
                _warm_up(whole)
            model, seconds, penalty = _fit(name, whole, choice.l2, pair=choice.pair)
            advance(1)
            score = score_predictions(test_y, model.log_odds(test_codes, how.threads))
            pair = None if choice.pair is None else tuple(schema.names[f] for f in choice.pair)
            results[name] = ModelResult(score, seconds, penalty, pair)
    return Comparison(
        models=results,
        train_rows=len(y),
        test_rows=len(test_y),
        features=len(schema.features),
        tables=whole.problem.layout.n_tables,
        cells=whole.problem.layout.n_cells,
    )


@dataclass(frozen=True)
class _How:
    """What is the same for every fit."""

    schema: Schema
    scopes: list[Scope]
    hash_size: int | None
    settings: FitSettings
    threads: int


@dataclass(eq=False)
class _Training:
    """Records to fit on, and what models make of them, made when first asked for."""

    how: _How
    codes: Codes
    y: npt.NDArray[np.uint8]
    skyline: LogOddsModel | None = None  # the last logistic that was fitted

    @cached_property
    def problem(self) -> Problem:
        return self._problem(self._tables(self.how.scopes, self.how.hash_size))

    @cached_property
    def with_singles(self) -> Problem:
        """The problem, where it has hashed tables with those of the single features beside them."""
        if all(cells.apart for cells in self.problem.layout.cells):
            return self.problem
        singles = self._tables([(name,) for name in self.how.schema.names], None)
        return self._problem({**self._tables(self.how.scopes, self.how.hash_size), **singles})

    def _tables(self, scopes: list[Scope], hash_size: int | None) -> dict[Scope, Table]:
        tally = Tally(self.how.schema, scopes, hash_size)
        tally.add(np.ascontiguousarray(self.codes), self.y[None, :])
        return tally.tables()

    def _problem(self, tables: dict[Scope, Table]) -> Problem:
        return make_problem(AggregatedData(self.how.schema, tables, len(self.y), (int(self.y.sum()),)))

    @cached_property
    def design(self) -> Any:
        return one_hot(self.codes, self.problem.layout)


@dataclass(frozen=True)
class _Choice:
    """What the validation records chose."""

    l2: float | None  # None: the model finds its own
    pair: tuple[int, ...] | None = None


_Valid = tuple[Codes, npt.NDArray[np.bool_]]


def _choose(
    name: str, training: _Training, valid: _Valid, grid: list[float], advance: Callable[[float], None]
) -> _Choice:
    """The penalty (and the pair) of greatest NLLH on the validation records."""
    if len(grid) == 1 and name != "best_pair":
        return _Choice(grid[0])
    pairs: dict[float, tuple[int, ...]] = {}

    def score(l2: float) -> float:
        candidates: Sequence[LogOddsModel]
        if name == "best_pair":
            candidates = pair_models(training.problem, l2)
        else:
            candidates = [_fit(name, training, l2, warm=True)[0]]
        advance(1)
        scores = [nllh(valid[1], m.log_odds(valid[0], training.how.threads)) for m in candidates]
        best = int(np.argmax(scores))
        if isinstance(candidates[best], PairModel):
            pairs[l2] = candidates[best].layout.scopes[0]
        return scores[best]

    l2 = max(grid, key=score) if name in _CHEAP else climb(grid, score, _FIRST_LAMBDA)
    return _Choice(l2, pairs.get(l2))


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


def _fit(
    name: str,
    training: _Training,
    l2: float | None,
    *,
    pair: tuple[int, ...] | None = None,
    warm: bool = False,
) -> tuple[LogOddsModel, float, float]:
    """A model, the seconds its fit took, and its penalty; a warm logistic begins at the last one fitted."""
    problem, how = training.problem, training.how
    if name == "maxent":
        began = time.perf_counter()
        fitted = fit(problem, replace(how.settings, lambda_theta=l2), threads=how.threads)
        field = LogOddsModel(fitted.field.layout, fitted.field.theta, fitted.field.intercept)
        return field, time.perf_counter() - began, fitted.state.lambda_theta
    assert l2 is not None, "only the field finds its own penalty"
    if name == "logistic":
        first = training.skyline if warm else None
        skyline = logistic(training.codes, training.y, problem.layout, l2, warm=first, design=training.design)
        training.skyline = skyline
        return skyline, skyline.seconds, l2
    tables = training.with_singles if name in _CHEAP else problem
    began = time.perf_counter()
    model: LogOddsModel
    if name == "naive_bayes":
        model = naive_bayes(tables, l2)
    elif name == "tan":
        model = tree_augmented_nb(tables, l2)
    else:
        (model,) = pair_models(problem, l2, None if pair is None else [pair])
    return model, time.perf_counter() - began, l2


def _warm_up(training: _Training) -> None:
    """Have the kernels compiled, so that no fit is timed with that."""
    settings = replace(training.how.settings, iterations=_WARM_UP_ITERATIONS, chains=_WARM_UP_CHAINS)
    fit(training.problem, settings, threads=training.how.threads)


def _check_grid(lambdas: Sequence[float] | None) -> list[float]:
    grid = sorted({float(value) for value in (DEFAULT_LAMBDAS if lambdas is None else lambdas)})
    if not grid or not all(np.isfinite(value) and value > 0 for value in grid):
        raise InputError("the penalties to choose from must be one or more numbers above 0")
    return grid


def _encode(source: Source, schema: Schema) -> tuple[Codes, npt.NDArray[np.uint8]]:
    """All records of a source as ``codes[feature, record]``, and their labels."""
    codes, labels, rows = [], [], 0
    for batch in source.batches([*schema.names, *schema.label_names]):
        codes.append(schema.encode(batch))
        labels.append(schema.encode_labels(batch)[0])
        rows += batch.num_rows
        require(
            2 * 2 * rows * len(schema.features),
            f"{rows:,} or more encoded records",
            "compare on a sample of them",
        )
    if not rows:
        raise InputError("there are no records to compare on")
    return np.concatenate(codes, axis=1), np.concatenate(labels)
