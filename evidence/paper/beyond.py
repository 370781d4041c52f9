"""What a reader pays for having tables instead of records. Beside the field and its skyline, both with the
tables of all pairs in quantile bins, stands scikit-learn's `HistGradientBoostingClassifier` on the records:
on the same codes, and on the columns as they are. Its leaves (4 to 32) and its number of trees are chosen on
the validation records, as are the penalties of the other two, and every model is then fitted to all training
records. The differences add up: what coding loses, what a model of pairs loses against trees, and what
aggregation loses.

Then Adult with the tables of all triples of features beside those of all pairs: the field, and the logistic
on the same cells, their penalties a power of 4, the first from 256 down after which NLLH on the
validation records falls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from agglearn.field.field import Field
from agglearn.judge.scores import nllh
from agglearn.schema.features import Categorical
from agglearn.train.settings import FitSettings
from evidence.figures import BLUE, GREEN, GREY, ORANGE, figure
from evidence.page import picture, spread, table
from evidence.paper.nllh_fits import Logistic, choose, fit_field, judge
from evidence.runner import Cell, Results, Value
from evidence.splits import DATA_SETS, TITLES, Part, Predictor, Split, split

TITLE = "Beyond the paper: what aggregation costs, and tables of three features"

MODELS = {
    "field": "field, from tables of pairs",
    "logistic": "logistic on pairs, from records",
    "boosting_coded": "gradient boosting on the same codes",
    "boosting_raw": "gradient boosting on the columns as they are",
}
TRIPLES = {
    "field": "field, pairs",
    "field_triples": "field, pairs and triples",
    "field_triples_rule": "field, pairs and triples, penalty by its rule",
    "logistic": "logistic, pairs",
    "logistic_triples": "logistic, pairs and triples",
}
Choose = Callable[[Callable[[float], Predictor], Split], float]
_LEAVES = (4, 8, 16, 32)
_RATE = 0.1
_TRIPLE_GRID = (256.0, 64.0, 16.0, 4.0, 1.0)  # falling: a strong penalty is fitted soon


@dataclass(frozen=True)
class Sizes:
    """Sizes: which splits, the share of the records, the most trees, and which features of Adult."""

    seeds: tuple[int, ...]
    triple_seeds: tuple[int, ...]
    share: float
    trees: int
    adult_features: tuple[str, ...] | None


FULL = Sizes(seeds=(0, 1, 2, 3), triple_seeds=(0, 1, 2), share=1.0, trees=300, adult_features=None)
QUICK = Sizes(
    seeds=(0, 1),
    triple_seeds=(0,),
    share=0.25,
    trees=100,
    adult_features=("age", "education", "marital-status", "occupation", "capital-gain", "hours-per-week"),
)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set and split, and one for each split of Adult with triples."""
    runs = [
        Cell(
            f"{name}-seed{seed}",
            {**_settings(name, seed, config), "trees": config.trees},
            partial(_compare, name, seed, config),
        )
        for name in DATA_SETS
        for seed in config.seeds
    ]
    triples = [
        Cell(
            f"triples-adult-seed{seed}",
            _settings("adult", seed, config),
            partial(_triples, seed, config),
        )
        for seed in config.triple_seeds
    ]
    return runs + triples


def _settings(name: str, seed: int, config: Sizes) -> Value:
    features = list(_features(name, config) or ["all"])
    return {"data": name, "seed": seed, "share": config.share, "features": features}


def _features(name: str, config: Sizes) -> tuple[str, ...] | None:
    return config.adult_features if name == "adult" else None


def _compare(name: str, seed: int, config: Sizes) -> Value:
    parts = split(name, "quantile", seed, features=_features(name, config), share=config.share)
    return {
        "train_rows": len(parts.whole.y),
        "field": _field(parts),
        "logistic": _logistic(parts),
        "boosting_coded": _boosting(parts, {p: _coded(getattr(parts, p)) for p in _PARTS}, config),
        "boosting_raw": _boosting(parts, {p: _raw(parts, p) for p in _PARTS}, config),
    }


def _triples(seed: int, config: Sizes) -> Value:
    parts, more = (
        split("adult", "quantile", seed, tables=tables, features=config.adult_features, share=config.share)
        for tables in ("pairs", "pairs,triples")
    )
    return {
        "tables": more.whole.layout.n_tables,
        "cells": more.whole.layout.n_cells,
        "cells_seen": int(np.count_nonzero(more.whole.problem.d)),
        "field": _field(parts),
        "logistic": _logistic(parts),
        "field_triples": _field(more, _first_peak),
        "field_triples_rule": {
            "nllh": judge(fit_field(more.whole, FitSettings(seed=seed)), more.test),
        },
        "logistic_triples": _logistic(more, _first_peak),
    }


def _field(parts: Split, choose: Choose = choose) -> Value:
    def on_train(l2: float) -> Field:
        return fit_field(parts.train, FitSettings(lambda_theta=l2, seed=parts.seed))

    l2 = choose(on_train, parts)
    model = fit_field(parts.whole, FitSettings(lambda_theta=l2, seed=parts.seed))
    return {"nllh": judge(model, parts.test), "lambda": l2}


def _logistic(parts: Split, choose: Choose = choose) -> Value:
    l2 = choose(Logistic(parts.train).fit, parts)
    return {"nllh": judge(Logistic(parts.whole).fit(l2), parts.test), "lambda": l2}


def _first_peak(fit_train: Callable[[float], Predictor], parts: Split) -> float:
    """The penalty of the falling grid after which NLLH on the validation records falls."""
    best, at = -np.inf, _TRIPLE_GRID[0]
    for l2 in _TRIPLE_GRID:
        score = judge(fit_train(l2), parts.valid)
        if score < best:
            break
        best, at = score, l2
    return at


_PARTS = ("train", "valid", "whole", "test")


@dataclass(frozen=True, eq=False)
class _Matrix:
    """Records for the trees, a column per feature, and which columns are categories."""

    values: npt.NDArray[np.float64]
    categories: list[int]


def _coded(part: Part) -> _Matrix:
    """The codes; those of bins are in order, those of categories are not."""
    categories = [i for i, f in enumerate(part.schema.features) if isinstance(f, Categorical)]
    return _Matrix(part.codes.T.astype(np.float64), categories)


def _raw(parts: Split, which: str) -> _Matrix:
    """Columns of numbers as they are, columns of text as categories."""
    part: Part = getattr(parts, which)
    records = parts.raw[which]
    columns, categories = [], []
    for i, feature in enumerate(part.schema.features):
        column = records.column(feature.name)
        is_text = str(column.type) == "string"
        columns.append(part.codes[i] if is_text else column.to_numpy())
        categories += [i] if is_text else []
    return _Matrix(np.column_stack(columns).astype(np.float64), categories)


def _boosting(parts: Split, matrices: Mapping[str, _Matrix], config: Sizes) -> Value:
    """Gradient boosting, its leaves and trees chosen on the validation records."""
    with threadpool_limits(1):  # trees so small that threads wait for each other longer than they work
        found = [_best_trees(parts, matrices, leaves, config.trees) for leaves in _LEAVES]
        _, leaves, trees = max(found)
        model = _trees(matrices["whole"], leaves, trees).fit(matrices["whole"].values, parts.whole.y)
        score = nllh(parts.test.held_out.positive, model.decision_function(matrices["test"].values))
    return {"nllh": round(score, 5), "leaves": leaves, "trees": trees}


def _best_trees(
    parts: Split, matrices: Mapping[str, _Matrix], leaves: int, trees: int
) -> tuple[float, int, int]:
    """NLLH on the validation records with the best number of trees, the leaves, and that number."""
    model = _trees(matrices["train"], leaves, trees).fit(matrices["train"].values, parts.train.y)
    positive = parts.valid.held_out.positive
    scores = [nllh(positive, z.ravel()) for z in model.staged_decision_function(matrices["valid"].values)]
    at = int(np.argmax(scores))
    return scores[at], leaves, at + 1


def _trees(matrix: _Matrix, leaves: int, trees: int) -> Any:
    return HistGradientBoostingClassifier(
        learning_rate=_RATE,
        max_iter=trees,
        max_leaf_nodes=leaves,
        categorical_features=matrix.categories,
        early_stopping=False,
        random_state=0,
    )


Scores = dict[str, list[float]]


def section(results: Results, images: Path) -> list[str]:
    """The two comparisons."""
    columns = {name: _scores(results.starting(f"{name}-"), MODELS) for name in DATA_SETS}
    columns = {TITLES[name]: scores for name, scores in columns.items() if scores}
    triples = _scores(results.starting("triples-"), TRIPLES)
    lines: list[str] = []
    if columns:
        rows = [[title, *(spread(s[key]) for s in columns.values())] for key, title in MODELS.items()]
        lines += ["### Against gradient boosting", "", *table(["NLLH on test records", *columns], rows), ""]
        lines += [_splits(results), "", *_steps(columns)]
        _draw(columns, images / "paper-beyond.svg")
        lines += picture("paper-beyond.svg", "NLLH by model and split on Adult and Bank")
    if triples:
        found = next(iter(results.starting("triples-").values()))
        rows = [[title, spread(triples[key])] for key, title in TRIPLES.items()]
        lines += ["### All triples of Adult", "", *table(["NLLH on test records", "Adult"], rows), ""]
        lines += [_about_triples(found, triples)]
    return lines


def _splits(results: Results) -> str:
    seeds = sorted({results.settings(cell)["seed"] for cell in results})
    return (
        f"Mean ± standard deviation over the splits of seeds {', '.join(map(str, seeds))}; seed 0 of Adult "
        f"is its published split. Where the difference comes from, split by split:"
    )


def _scores(found: Mapping[str, Value], models: Mapping[str, str]) -> Scores:
    """NLLH of each model over the splits."""
    return {key: [cell[key]["nllh"] for cell in found.values()] for key in models} if found else {}


def _steps(columns: Mapping[str, Scores]) -> list[str]:
    """The way from boosting on raw columns to the field, one step at a time."""
    ways = {
        "coding: boosting on codes − on the columns": ("boosting_coded", "boosting_raw"),
        "shape of the model: logistic on pairs − boosting on codes": ("logistic", "boosting_coded"),
        "aggregation: field − logistic": ("field", "logistic"),
        "all together: field − boosting on the columns": ("field", "boosting_raw"),
    }
    rows = [
        [title, *(spread(_paired(scores, a, b)) for scores in columns.values())]
        for title, (a, b) in ways.items()
    ]
    return table(["difference of NLLH", *columns], rows)


def _paired(scores: Scores, a: str, b: str) -> list[float]:
    return [x - y for x, y in zip(scores[a], scores[b], strict=True)]


def _about_triples(found: Value, scores: Scores) -> str:
    field = spread(_paired(scores, "field_triples", "field"))
    skyline = spread(_paired(scores, "logistic_triples", "logistic"))
    gap = spread(_paired(scores, "field_triples", "logistic_triples"))
    return (
        f"{found['tables']} tables with {found['cells']:,} cells, of which {found['cells_seen']:,} hold a "
        f"record. Triples less pairs, split by split: {field} for the field, {skyline} for the logistic. "
        f"With triples, field less logistic: {gap}."
    )


def _draw(columns: Mapping[str, Scores], target: Path) -> None:
    colours = dict(zip(MODELS, (BLUE, ORANGE, GREEN, GREY), strict=True))
    with figure(target, 8.2, 0.8 + 1.5 * len(columns)) as drawing:
        axes = drawing.subplots(len(columns), 1, squeeze=False, sharex=True)[:, 0]
        for axis, (title, scores) in zip(axes, columns.items(), strict=True):
            for place, key in enumerate(reversed(MODELS)):
                heights = [place] * len(scores[key])
                axis.plot(scores[key], heights, "o", ms=6, alpha=0.6, mec="none", color=colours[key])
                axis.plot(np.mean(scores[key]), place, "|", ms=16, mew=2, color=colours[key])
            axis.set_yticks(range(len(MODELS)), [MODELS[key] for key in reversed(MODELS)])
            axis.set_ylim(-0.6, len(MODELS) - 0.4)
            axis.grid(axis="x")
            axis.set_title(title)
        axes[-1].set_xlabel("NLLH on test records; a dot a split, the bar their mean")
