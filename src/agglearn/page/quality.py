"""How good a model is, for its report: on records or tables of others, and beside simpler models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.errors import AgglearnError
from agglearn.field.field import Field
from agglearn.field.heldout import score_heldout
from agglearn.field.layout import Layout
from agglearn.field.population import Population
from agglearn.field.problem import Problem
from agglearn.judge.baselines import LogOddsModel, naive_bayes, pair_models
from agglearn.judge.scores import RecordScore, entropy, score_predictions
from agglearn.judge.tree_bayes import tree_augmented_nb
from agglearn.model.draw import population
from agglearn.model.model import Model, problem_of
from agglearn.model.predict import code_records
from agglearn.records.sources import Source
from agglearn.runtime.threads import thread_count
from agglearn.schema.features import Codes
from agglearn.tables.cells import Cells
from agglearn.tables.data import AggregatedData
from agglearn.trust.score import HeldoutScore, score_tables

Floats = npt.NDArray[np.float64]

_PENALTIES = (0.25, 4.0, 64.0, 1024.0)  # a simpler model is shown with the best of these
_NAMES = {
    "naive_bayes": "Naive Bayes",
    "tan": "tree-augmented Naive Bayes",
    "best_pair": "best pair of features",
}
_Judge = Callable[[LogOddsModel], tuple[float, float] | None]


def on_records(
    model: Model, source: Source, tables: AggregatedData | None, threads: int | None
) -> dict[str, Any]:
    """The score on records, with calibration and lift; with tables to fit to, simpler models beside it."""
    codes, y = _coded(model, source)
    workers = thread_count(threads)
    log_odds = model.field.log_odds(codes, workers)
    score = score_predictions(y, log_odds)

    def judge(other: LogOddsModel) -> tuple[float, float]:
        return _nllh(y, other.log_odds(codes, workers))

    own = _nllh(y, log_odds)
    return {
        "kind": "records",
        "rows": score.rows,
        "positives": score.positives,
        "scores": {
            "nllh": own[0],
            "nllh_se": own[1],
            "log_loss": score.log_loss,
            "auc": score.auc,
            "brier": score.brier,
        },
        "calibration": [
            {"count": b.count, "predicted": b.predicted, "observed": b.observed, "error": b.standard_error}
            for b in score.calibration
        ],
        "lift": _lift(score),
        "baselines": [] if tables is None else _beside(model, own, tables, judge),
    }


def _coded(model: Model, source: Source) -> tuple[Codes, npt.NDArray[np.uint8]]:
    codes, labels = [], []
    for batch, coded, _ in code_records(model, source, [model.label.name]):
        codes.append(coded)
        labels.append(model.schema.encode_labels(batch)[0])
    if not codes:
        return np.zeros((model.layout.n_features, 0), np.uint16), np.zeros(0, np.uint8)
    return np.concatenate(codes, axis=1), np.concatenate(labels)


def _nllh(y: npt.NDArray[np.uint8], log_odds: Floats) -> tuple[float, float]:
    """NLLH on records, and its standard error with the entropy taken as known."""
    positive = y == 1
    losses = np.logaddexp(0.0, np.where(positive, -log_odds, log_odds))
    most = entropy(positive)
    return float(1 - losses.mean() / most), float(losses.std() / np.sqrt(y.size) / most)


def _lift(score: RecordScore) -> list[dict[str, float]]:
    """Of the records with the highest predictions: their share, and the share of all positives among them."""
    points, records, positives = [{"share": 0.0, "gain": 0.0}], 0, 0.0
    for b in reversed(score.calibration):
        records += b.count
        positives += b.count * b.observed
        points.append({"share": records / score.rows, "gain": positives / score.positives})
    return points


def on_tables(
    model: Model, valid: AggregatedData, tables: AggregatedData | None, threads: int | None, seed: int
) -> tuple[dict[str, Any], HeldoutScore]:
    """The score on tables of other records; with tables to fit to, simpler models beside it."""
    score = score_tables(model, valid, threads=threads, seed=seed)
    problem = problem_of(model, valid)
    law = population(model, problem, seed=seed, threads=threads)

    def judge(other: LogOddsModel) -> tuple[float, float] | None:
        field = _on_layout(other, model)
        if field is None:
            return None
        found = score_heldout(problem, law, field)
        return found.nllh, found.nllh_se

    cells = [
        {
            "count": c.records,
            "predicted": c.expected,
            "observed": c.observed,
            "error": abs(c.observed - c.expected) / max(abs(c.z), 1e-9),
            "name": c.name,
        }
        for c in score.calibration.worst
    ]
    beside = (
        []
        if tables is None or not score.known
        else _beside(model, (score.nllh, score.nllh_se), tables, judge)
    )
    return {
        "kind": "tables",
        "rows": score.rows,
        "positives": score.positives,
        "own_tables": score.own_tables,
        "scores": {
            "nllh": score.nllh if score.known else None,
            "nllh_se": score.nllh_se,
            "log_loss": score.log_loss if score.known else None,
            "auc": score.auc,
            "brier": score.brier,
        },
        "calibration": _by_prediction(problem, law, model),
        "cells": cells,
        "lift": _expected_lift(law, model.field),
        "baselines": beside,
    }, score


def _by_prediction(problem: Problem, law: Population, model: Model) -> list[dict[str, float]]:
    """Cells of the tables by the rate that the model expects in them, and the rate they have."""
    shares = law.shares()
    p = law.cells(law.map(expit, law.scores(model.field.theta, model.field.intercept)))
    expected = np.divide(p, shares, out=np.zeros_like(p), where=shares > 0)
    kept = (shares > 0) & (problem.d > 0)
    order = np.flatnonzero(kept)[np.argsort(expected[kept], kind="stable")]
    weight = np.cumsum(problem.d[order])
    bins = []
    for part in np.split(order, np.searchsorted(weight, weight[-1] * np.arange(1, 10) / 10)):
        d = float(problem.d[part].sum())
        if d > 0:
            rate = float(problem.c[part].sum()) / d
            predicted = float(problem.d[part] @ expected[part]) / d
            # A record is counted in every table, so the bin is worth as many records as one table gives it.
            count = d / problem.layout.n_tables
            error = np.sqrt(max(predicted * (1 - predicted), 0.0) / max(count, 1.0))
            bins.append({"count": count, "predicted": predicted, "observed": rate, "error": float(error)})
    return bins


def _expected_lift(law: Population, field: Field) -> list[dict[str, float]]:
    """The lift that the model itself expects."""
    codes = law.some(20_000)
    p = np.sort(1 / (1 + np.exp(-field.log_odds(codes))))[::-1]
    gained = np.cumsum(p) / p.sum()
    places = np.linspace(0, p.size, 11).astype(int)
    return [{"share": k / p.size, "gain": float(gained[k - 1]) if k else 0.0} for k in places.tolist()]


def _beside(
    model: Model, own: tuple[float, float], tables: AggregatedData, judge: _Judge
) -> list[dict[str, Any]]:
    """This model and simpler ones fitted to the same tables, the best first."""
    rows = [{"model": "this model", "nllh": own[0], "nllh_se": own[1], "own": True}]
    problem = problem_of(model, tables, "the tables")
    for name, fits in _simpler(problem):
        judged = [found for fit in fits if (found := judge(fit)) is not None]
        if judged:
            nllh, error = max(judged)
            rows.append({"model": _NAMES[name], "nllh": nllh, "nllh_se": error, "own": False})
    return sorted(rows, key=lambda row: -float(row["nllh"]))


def _simpler(problem: Problem) -> Iterator[tuple[str, list[LogOddsModel]]]:
    for name, make in (("naive_bayes", naive_bayes), ("tan", tree_augmented_nb)):
        try:
            yield name, [make(problem, penalty) for penalty in _PENALTIES]
        except (AgglearnError, KeyError):  # hashed tables tell no margins, few tables no tree
            continue
    try:
        pairs = pair_models(problem, _PENALTIES[1])
    except AgglearnError:
        return
    best = sorted(pairs, key=lambda pair: -pair.gain)[:3]
    yield "best_pair", list(best)


def _on_layout(other: LogOddsModel, model: Model) -> Field | None:
    """A simpler model as a field over the model's own tables, or None if these cannot hold its weights."""
    layout = model.layout
    theta = np.zeros(layout.n_cells)
    for k, scope in enumerate(other.layout.scopes):
        weights = np.asarray(other.layout.table(other.theta, k), float)
        t = _holder(layout, scope, other.layout.cells[k])
        if t is None:
            return None
        own = layout.table(theta, t)
        if layout.cells[t] == other.layout.cells[k] and layout.scopes[t] == scope:
            own += weights
        else:
            shape = [layout.cards[f] if f in scope else 1 for f in layout.scopes[t]]
            own += weights.reshape(shape)
    return Field(layout, np.zeros(layout.n_cells), theta, other.intercept)


def _holder(layout: Layout, scope: tuple[int, ...], cells: Cells) -> int | None:
    """A table with these cells, or a dense one that holds its features."""
    for t, own in enumerate(layout.cells):
        if layout.scopes[t] == scope and own == cells:
            return t
    if not cells.dense:
        return None
    holding = (t for t, s in enumerate(layout.scopes) if set(scope) <= set(s) and layout.cells[t].dense)
    return next(holding, None)
