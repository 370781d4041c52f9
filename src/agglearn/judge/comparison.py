"""The field beside its baselines and its skyline, on the same records: the paper's table on any data.

The records are read and encoded once. Each model's penalty is chosen by its NLLH on a validation part of
the training records (the field's own are found from its tables, unless some to choose from are given); with
that penalty it is fitted again on all of them and judged on the test records,
which nothing before has looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.aggregation.options import AggregateOptions
from agglearn.aggregation.triples import Sample, telling_scopes
from agglearn.errors import InputError
from agglearn.judge.contenders import (
    CONTENDERS,
    DEFAULT_LAMBDAS,
    MODELS,
    TOLD,
    Choice,
    How,
    Training,
    choose,
    contend,
    warm_up,
)
from agglearn.judge.scores import RecordScore, check_labels, score_predictions
from agglearn.records.first_pass import learn_schema
from agglearn.records.options import Coding, ReadOptions, Split, check_split
from agglearn.records.roles import Columns, make_labels
from agglearn.records.sources import Source, open_source
from agglearn.records.split import assign
from agglearn.report.document import Column, Document, Grid, number
from agglearn.report.finding import Finding
from agglearn.runtime.memory import require
from agglearn.runtime.options import AUTO, as_names, with_keywords
from agglearn.runtime.threads import thread_count
from agglearn.schema.features import Codes
from agglearn.schema.schema import Schema
from agglearn.tables.scopes import parse_scopes
from agglearn.tables.table import Scope
from agglearn.train.settings import FitSettings


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
            for name, (text, source) in TOLD.items()
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
    progress: Callable[[str], None] = lambda doing: None,
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
    show_progress, progress
        Whether to draw bars on a terminal, and what to call with what is being done.
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
    how = How(schema, scopes, hash_size, fit_settings or FitSettings(), thread_count(threads))
    fitted_on = Training(how, codes[:, ~is_valid], y[~is_valid])
    valid = (codes[:, is_valid], y[is_valid] == 1)
    whole = Training(how, codes, y)
    results = {}
    for name in sorted(models, key=CONTENDERS.index):  # the slow ones last
        progress(f"fitting: {TOLD[name][0]}")
        choice = Choice(None)
        if name != "maxent" or lambdas is not None:
            choice = choose(name, fitted_on, valid, grid, show_progress)
            progress(_about(name, choice, whole, fitted_on))
        if name == "maxent":
            warm_up(whole)
        model, seconds, penalty = contend(name, whole, choice.l2, pair=choice.pair, show=show_progress)
        score = score_predictions(test_y, model.log_odds(test_codes, how.threads))
        pair = None if choice.pair is None else tuple(schema.names[f] for f in choice.pair)
        results[name] = ModelResult(score, seconds, penalty, pair)
    return Comparison(
        models={name: results[name] for name in models},
        train_rows=len(y),
        test_rows=len(test_y),
        features=len(schema.features),
        tables=whole.problem.layout.n_tables,
        cells=whole.problem.layout.n_cells,
    )


def _about(name: str, choice: Choice, whole: Training, part: Training) -> str:
    """What was chosen, and how long the last fit may take, where it takes long."""
    text = f"  penalty {choice.l2:g} by {choice.fits} fits"
    if name != "logistic" or not choice.fits:
        return text
    searched = part.searched.codes.shape[1]
    if searched < len(part.y):
        text += f" to {searched:,} of {len(part.y):,} records"
    seconds = choice.seconds * len(whole.y) / searched
    return f"{text}; now all records, about {seconds:,.0f} s" if seconds > 1 else text


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
