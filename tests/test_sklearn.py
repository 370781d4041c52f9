"""The classifier among scikit-learn's tools: records with labels are aggregated first, and that is said."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import agglearn
from agglearn import MaxEntClassifier
from agglearn.classifier import AggregatedWarning
from agglearn.errors import InputError

SMALL: dict[str, Any] = {"chains": 200, "iterations": 20, "threads": 1}

IMPOSSIBLE: dict[str, str] = {}
"""Checks of scikit-learn that cannot pass, each with the reason."""


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    colour = rng.choice(["red", "blue", "green"], 400)
    size = rng.integers(0, 4, 400)
    return pd.DataFrame({"colour": colour, "size": size, "weight": rng.normal(size, 1.0)})


@pytest.fixture(scope="module")
def labels(frame: pd.DataFrame) -> Any:
    rng = np.random.default_rng(1)
    odds = (frame["colour"] == "red") * 2.0 + frame["size"] - 2.0
    return np.where(rng.random(len(frame)) < 1 / (1 + np.exp(-odds)), "yes", "no")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AggregatedWarning)
        yield


def test_every_check_of_scikit_learn_passes_that_can() -> None:
    found = check_estimator(MaxEntClassifier(**SMALL), on_fail=None, on_skip=None)
    failed = {check["check_name"] for check in found if check["status"] == "failed"}
    assert failed == set(IMPOSSIBLE)
    assert len([check for check in found if check["status"] == "passed"]) > 40


def test_records_with_labels_are_aggregated_and_that_is_said(frame: pd.DataFrame, labels: Any) -> None:
    with pytest.warns(AggregatedWarning, match="400 records .* in 3 tables of 3 features"):
        model = MaxEntClassifier(**SMALL).fit(frame, labels)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.feature_names_in_.tolist() == ["colour", "size", "weight"]
    tables = agglearn.aggregate(frame.assign(y=(labels == "yes").astype(int)), "y")
    same = MaxEntClassifier(**SMALL).fit(tables)
    np.testing.assert_array_equal(model.predict_proba(frame), same.predict_proba(frame))
    assert set(model.predict(frame)) == {"no", "yes"}
    assert model.score(frame, labels) == pytest.approx(same.score(frame, (labels == "yes").astype(int)))


def test_the_tools_of_scikit_learn_work(frame: pd.DataFrame, labels: Any) -> None:
    scores = cross_val_score(MaxEntClassifier(**SMALL), frame, labels, cv=3, scoring="roc_auc")
    assert scores.min() > 0.6  # by chance 0.5 ± 0.05
    search = GridSearchCV(
        MaxEntClassifier(**SMALL), {"lambda_theta": [1.0, 1e9]}, cv=2, scoring="neg_log_loss"
    )
    assert search.fit(frame, labels).best_params_["lambda_theta"] == 1.0
    calibrated = CalibratedClassifierCV(MaxEntClassifier(**SMALL), cv=2).fit(frame, labels)
    assert calibrated.predict_proba(frame).shape == (400, 2)
    piped = make_pipeline(
        FunctionTransformer(lambda x: x.assign(size=x["size"] % 2)), MaxEntClassifier(**SMALL)
    )
    assert piped.fit(frame, labels).predict(frame).shape == (400,)


def test_tables_with_a_stray_y_are_an_error(frame: pd.DataFrame, labels: Any) -> None:
    tables = agglearn.aggregate(frame.assign(y=(labels == "yes").astype(int)), "y")
    with pytest.raises(InputError, match="tables hold their labels"):
        MaxEntClassifier(**SMALL).fit(tables, labels)
    with pytest.raises(InputError, match="fit takes aggregated data, not DataFrame"):
        MaxEntClassifier(**SMALL).fit(frame)
    with pytest.raises(InputError, match="399 labels were given for 400 records"):
        MaxEntClassifier(**SMALL).fit(frame, labels[1:])
    with pytest.raises(InputError, match="Only binary"):
        MaxEntClassifier(**SMALL).fit(frame, np.arange(400) % 3)


@pytest.fixture(scope="module")
def fitted(frame: pd.DataFrame, labels: Any) -> MaxEntClassifier:
    return MaxEntClassifier(**SMALL).fit(agglearn.aggregate(frame.assign(y=labels == "yes"), "y"))


def test_one_record_is_a_dict_and_several_are_a_list(fitted: MaxEntClassifier, frame: pd.DataFrame) -> None:
    expected = fitted.predict_proba(frame)
    records = frame.to_dict("records")
    np.testing.assert_array_equal(fitted.predict_proba(records), expected)
    np.testing.assert_array_equal(fitted.predict_proba(records[7]), expected[7:8])
    mixed = [{**records[0], "size": str(records[0]["size"])}, records[1]]  # a text here, a number there
    np.testing.assert_array_equal(fitted.predict_proba(mixed), expected[:2])


def test_logarithms_of_probabilities_are_exact(fitted: MaxEntClassifier, frame: pd.DataFrame) -> None:
    np.testing.assert_allclose(
        np.exp(fitted.predict_log_proba(frame)), fitted.predict_proba(frame), rtol=1e-12
    )


def test_the_weights_stand_by_table(fitted: MaxEntClassifier) -> None:
    weights = fitted.coef_
    assert set(weights) >= {("colour", "size"), ("colour", "weight"), ("size", "weight")}
    assert weights["colour", "size"].shape == (3, 4)
    record = {"colour": "red", "size": 2, "weight": 0.1}
    code = fitted.model_.schema.encode(pa.RecordBatch.from_pylist([record]))
    at = dict(zip(fitted.model_.schema.names, code[:, 0].tolist(), strict=True))
    total = fitted.intercept_ + sum(w[tuple(at[f] for f in scope)] for scope, w in weights.items())
    assert fitted.decision_function(record)[0] == pytest.approx(total, rel=1e-6)
    assert not hasattr(MaxEntClassifier(), "coef_")


def test_a_table_of_a_database_is_named_as_on_the_command_line(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute("CREATE TABLE sales AS SELECT i % 3 AS x, i % 2 AS y FROM range(60) t(i)")
    data = agglearn.aggregate(f"{tmp_path}/shop.duckdb:sales", "y")
    assert data.rows == 60
