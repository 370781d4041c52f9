"""One call opens tables and models alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agglearn
from agglearn import AggregatedData, MaxEntClassifier, Model
from agglearn.errors import StoreError

TOY = {"x": ["a", "b", "a", "c"] * 5, "z": ["u", "v"] * 10, "y": [1, 0, 1, 0] * 5}


def test_tables_and_models_open_by_the_same_name(tmp_path: Path) -> None:
    tables = agglearn.aggregate(TOY, "y")
    agglearn.save(tables, tmp_path / "t.agg")
    MaxEntClassifier(iterations=3, engine="exact").fit(tables).save(tmp_path / "m.model")
    opened = agglearn.load(tmp_path / "t.agg")
    assert isinstance(opened, AggregatedData)
    assert opened.equals(tables)
    assert isinstance(agglearn.load(str(tmp_path / "m.model")), Model)


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere\.agg does not exist"):
        agglearn.load(tmp_path / "nowhere.agg")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"empty holds neither tables nor a model: it has no manifest\.json"):
        agglearn.load(tmp_path / "empty")
    (tmp_path / "other").mkdir()
    for found in ("agglearn.checkpoint", ["agglearn.tables"], None):
        (tmp_path / "other" / "manifest.json").write_text(json.dumps({"format": found}))
        with pytest.raises(StoreError, match="other holds neither tables nor a model: its format is"):
            agglearn.load(tmp_path / "other")
