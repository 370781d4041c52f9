"""The comparison end to end: what it fits on, what it chooses by, and what it reports."""

from __future__ import annotations

import csv
import json
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from agglearn.errors import InputError, TableError
from agglearn.judge.comparison import Comparison, compare
from agglearn.judge.contenders import MODELS, climb
from agglearn.records.split import assign
from agglearn.train.settings import FitSettings

QUICK = FitSettings(iterations=60, chains=1000)
FEATURES = ("colour", "size", "place", "hour")
GRID = (0.25, 1.0, 4.0, 16.0, 64.0)


Frame: TypeAlias = dict[str, npt.NDArray[Any]]


def simulated(seed: int = 0, n: int = 3000) -> Frame:
    """Records of four dependent categories; the label depends on three pairs of them."""
    rng = np.random.default_rng(7)
    cards = (3, 4, 5, 6)
    weights = [rng.normal(0, 1.2, (a, b)) for a, b in pairwise(cards)]
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, m, n) for m in cards]
    for f in range(1, 4):
        codes[f] = np.where(rng.random(n) < 0.4, codes[f - 1], codes[f])
    z = -0.5 + sum(w[a, b] for w, (a, b) in zip(weights, pairwise(codes), strict=True))
    frame: Frame = {
        name: np.array([f"{name[0]}{v}" for v in x], object) for name, x in zip(FEATURES, codes, strict=True)
    }
    return {**frame, "click": (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)}


def rows_of(frame: Frame, chosen: npt.NDArray[np.bool_]) -> Frame:
    return {name: column[chosen] for name, column in frame.items()}


def run(train: Any, test: Any = None, **options: Any) -> Comparison:
    return compare(train, test, **{"label": "click", "lambdas": GRID, "fit_settings": QUICK, **options})


def choices(comparison: Comparison) -> dict[str, Any]:
    return {name: (m.lambda_theta, m.pair) for name, m in comparison.models.items()}


@pytest.fixture(scope="module")
def whole() -> Comparison:
    return run(simulated(0), simulated(1))


def test_the_json_has_the_keys_that_others_rely_on(whole: Comparison) -> None:
    document = json.loads(json.dumps(whole.to_json()))
    assert document.keys() == {"models", "train_rows", "test_rows", "features", "tables", "cells"}
    assert list(document["models"]) == list(MODELS)
    numbers = {"nllh", "auc", "log_loss", "brier", "seconds", "lambda_theta"}
    for name, result in document["models"].items():
        assert result.keys() == (numbers | {"pair"} if name == "best_pair" else numbers)
        assert result["seconds"] > 0
        assert result["lambda_theta"] in GRID
    assert (document["train_rows"], document["test_rows"]) == (3000, 3000)
    assert (document["features"], document["tables"]) == (4, 6)
    assert document["cells"] == 3 * 4 + 3 * 5 + 3 * 6 + 4 * 5 + 4 * 6 + 5 * 6
    assert set(document["models"]["best_pair"]["pair"]) < set(FEATURES)


def test_the_rows_are_the_models_by_falling_nllh(whole: Comparison) -> None:
    rows = whole.rows()
    assert {row["model"] for row in rows} == set(MODELS)
    assert [row["nllh"] for row in rows] == sorted((row["nllh"] for row in rows), reverse=True)


def test_the_field_comes_near_the_skyline_and_the_simple_baselines_do_not(whole: Comparison) -> None:
    """With all pairs of four features the field has the logistic's shape; 60 iterations of 1,000 chains
    cost 0.004 NLLH when measured, and the label's three pairs are worth far more than one of them."""
    score = {name: m.score.nllh for name, m in whole.models.items()}
    assert score["maxent"] > score["logistic"] - 0.02
    assert score["naive_bayes"] < score["logistic"] - 0.05
    assert score["best_pair"] < score["logistic"] - 0.05


def test_the_logistic_is_fitted_to_all_training_records_and_scored_on_the_test(whole: Comparison) -> None:
    train, test = simulated(0), simulated(1)
    result = whole.models["logistic"]

    def one_hot(frame: Frame) -> npt.NDArray[np.float64]:
        blocks = []
        for a, b in combinations(FEATURES, 2):
            values = np.unique(train[a] + train[b])
            blocks.append((frame[a] + frame[b])[:, None] == values)
        return np.hstack(blocks).astype(np.float64)

    model = LogisticRegression(C=1 / (2 * result.lambda_theta), max_iter=200)
    p = model.fit(one_hot(train), train["click"]).predict_proba(one_hot(test))[:, 1]
    rate = np.full(len(p), test["click"].mean())
    # The order of the columns is another, which moves where L-BFGS stops within its tolerance.
    assert result.score.log_loss == pytest.approx(log_loss(test["click"], p), abs=2e-4)
    assert result.score.auc == pytest.approx(roc_auc_score(test["click"], p), abs=1e-3)
    assert result.score.nllh == pytest.approx(
        1 - log_loss(test["click"], p) / log_loss(test["click"], rate), abs=3e-4
    )


def test_nothing_is_chosen_on_the_test_records(whole: Comparison) -> None:
    test = simulated(1)
    test["click"] = 1 - test["click"]
    spoilt = run(simulated(0), test)
    assert choices(spoilt) == choices(whole)
    assert spoilt.models["maxent"].score.nllh < 0 < whole.models["maxent"].score.nllh


def test_nothing_is_chosen_on_the_records_held_out_for_the_test() -> None:
    """Neither their labels nor their values: a spoilt held-out part changes nothing but the score."""
    clean = simulated(2)
    held_out = assign(0, len(clean["click"]), 5, {"test": 0.3}) == 1
    spoilt = {
        **clean,
        "click": np.where(held_out, 1 - clean["click"], clean["click"]),
        "hour": np.where(held_out, "never seen", clean["hour"]),
    }
    a, b = (run(frame, test_share=0.3, seed=5) for frame in (clean, spoilt))
    assert a.test_rows == b.test_rows == held_out.sum()
    assert a.train_rows == b.train_rows == (~held_out).sum()
    assert choices(a) == choices(b)
    assert a.cells == b.cells
    assert a.models["logistic"].score.nllh > b.models["logistic"].score.nllh


def test_the_penalty_is_the_best_of_the_grid_on_the_validation_part() -> None:
    """Each penalty alone, trained without the validation part and scored on it, gives the same order."""
    records = simulated(3)
    is_valid = assign(0, len(records["click"]), 1, {"valid": 0.4}) == 1
    names = ("logistic", "naive_bayes", "tan")
    chosen = run(records, simulated(4), seed=1, valid_share=0.4, models=names)
    scores: dict[str, dict[float, float]] = {name: {} for name in names}
    for l2 in GRID:
        one = run(rows_of(records, ~is_valid), rows_of(records, is_valid), lambdas=(l2,), models=names)
        for name, result in one.models.items():
            assert result.lambda_theta == l2
            scores[name][l2] = result.score.nllh
    for name in names:
        best = max(scores[name].values())
        # A warm start moves where L-BFGS stops, by about 1e-4.
        assert scores[name][chosen.models[name].lambda_theta] == pytest.approx(best, abs=3e-4)


def test_files_and_frames_give_the_same(tmp_path: Path) -> None:
    records = simulated(5, 1500)
    path = tmp_path / "records.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([list(records), *zip(*records.values(), strict=True)])
    options: dict[str, Any] = {"models": ("naive_bayes", "best_pair", "tan")}
    a, b = run(records, **options), run(str(path), **options)
    assert choices(a) == choices(b)
    for name in a.models:
        assert a.models[name].score == b.models[name].score


def test_models_tables_and_coding_are_as_asked() -> None:
    records = simulated(6, 1000)
    records["amount"] = np.random.default_rng(0).normal(size=1000)
    comparison = run(
        records, models=("naive_bayes",), tables="singles", bins=4, exclude=("hour",), lambdas=(2.0,)
    )
    assert list(comparison.models) == ["naive_bayes"]
    assert comparison.models["naive_bayes"].lambda_theta == 2.0
    assert (comparison.tables, comparison.cells) == (4, 3 + 4 + 5 + 4)


def test_hashed_tables_serve_every_model() -> None:
    comparison = run(simulated(7), hash_size=16)
    assert comparison.cells == 12 + 15 + 4 * 16
    score = {name: m.score.nllh for name, m in comparison.models.items()}
    assert score["logistic"] > score["best_pair"] > 0
    assert min(score["maxent"], score["tan"], score["naive_bayes"]) > 0
    # Naive Bayes reads single features, which hashing leaves alone.
    plain = run(simulated(7), models=("naive_bayes",))
    assert plain.models["naive_bayes"].score.nllh == pytest.approx(score["naive_bayes"])


def test_it_says_what_is_fitted_the_slow_ones_last() -> None:
    said: list[str] = []
    found = compare(simulated(8, 1000), label="click", fit_settings=QUICK, progress=said.append)
    begun = [line.removeprefix("fitting: ") for line in said if line.startswith("fitting: ")]
    assert begun[-2:] == ["agglearn", "logistic regression"]
    assert len(begun) == len(MODELS)
    assert list(found.models) == list(MODELS)  # as they were asked for
    chosen = [line for line in said if "penalty" in line]
    assert len(chosen) == len(MODELS) - 1  # agglearn finds its own
    assert f"penalty {found.models['logistic'].lambda_theta:g} by" in chosen[-1]


def test_a_penalty_chosen_on_a_part_of_the_records_is_fitted_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = simulated(0), simulated(1)
    whole = run(train, test, models=("logistic",)).models["logistic"]
    monkeypatch.setattr("agglearn.judge.contenders._SEARCHED", 1000 * 6)  # records, times six tables
    said: list[str] = []
    part = run(train, test, models=("logistic",), progress=said.append).models["logistic"]
    assert any(re.search(r"fits to 1,000 of 2,\d{3} records", line) for line in said)
    # The best penalty of a third of the records is within a step or two, of a factor of 4 each.
    assert 1 / 16 <= part.lambda_theta / whole.lambda_theta <= 16
    fixed = run(train, test, models=("logistic",), lambdas=(part.lambda_theta,)).models["logistic"]
    assert part.score == fixed.score


@pytest.mark.parametrize("peak", range(9))
@pytest.mark.parametrize("first", [0.001, 1.0, 16.0, 1e9])
def test_the_climb_finds_the_peak_and_scores_nothing_twice(peak: int, first: float) -> None:
    grid = [2.0**k for k in range(9)]
    asked: list[float] = []

    def score(value: float) -> float:
        asked.append(value)
        return -abs(float(np.log2(value)) - peak)

    assert climb(grid, score, first) == grid[peak]
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"models": ("maxent", "forest")}, "forest is not one of maxent, logistic"),
        ({"models": ()}, "is not one of"),
        ({"lambdas": ()}, "penalties"),
        ({"lambdas": (1.0, -2.0)}, "penalties"),
        ({"label": "sale"}, "sale"),
        ({"valid_share": 1.0}, "leave nothing to train on"),
        ({"test_share": 0.0}, "must be between 0 and 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        run(simulated(0, 200), **options)


def test_records_of_one_label_are_refused_before_any_fit() -> None:
    good, bad = simulated(0, 300), simulated(1, 300)
    bad["click"] = np.zeros(300, int)
    with pytest.raises(InputError, match="the test records: every label is negative"):
        run(good, bad)
    with pytest.raises((InputError, TableError), match=r"every (label|record) is negative"):
        run(bad, good)


def test_an_unknown_option_is_a_mistake_of_the_programmer() -> None:
    with pytest.raises(TypeError, match="binz"):
        run(simulated(0, 100), binz=3)


def test_on_adult_one_pair_and_naive_bayes_are_far_below_the_logistic(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The official split with ten quantile bins learnt on its training part.

    Measured when written: logistic 0.4624 (0.4625 when run to full convergence), Naive Bayes 0.286, best
    pair 0.307, tree-augmented 0.408; 0.002 leaves room for another version of the solver.
    """
    from agglearn.datasets import load_adult

    monkeypatch.setenv("AGGLEARN_DATA", str(shared_data))
    train, test = load_adult(download=False)
    comparison = compare(
        train,
        test,
        label="income",
        positive=">50K",
        models=("logistic", "naive_bayes", "best_pair", "tan"),
        lambdas=(0.25, 16.0, 64.0, 512.0),
        bins=10,
    )
    score = {name: m.score.nllh for name, m in comparison.models.items()}
    assert comparison.models["logistic"].lambda_theta == 16
    assert score["logistic"] == pytest.approx(0.4624, abs=0.002)
    assert score["naive_bayes"] < score["logistic"] - 0.1
    assert score["best_pair"] < score["logistic"] - 0.1
    assert score["tan"] < score["logistic"] - 0.03
