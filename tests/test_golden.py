"""Tables and models are byte for byte those that were stored: a change of bits must be on purpose.

Counts are whole numbers, so the tables' fingerprints hold everywhere. Weights are floats: the last bits
depend on the processor and on the compiler, so a model's fingerprint is compared only where both are those it
was stored with.
``python -m tests.test_golden`` stores them anew.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import llvmlite.binding
import numba
import numpy as np
import pytest

from agglearn import AggregatedData, MaxEntClassifier, TrainingSettings, aggregate, aggregate_split
from agglearn.datasets import AdsLog, load_adult, load_bank
from agglearn.tables.cells import DenseCells
from agglearn.tables.scopes import shape_of
from tests.records import make_records

Case: TypeAlias = tuple[str, Callable[[], AggregatedData], dict[str, Any]]  # name, tables, how to fit them

_STORED = Path(__file__).parent / "golden" / "fingerprints.json"


def _machine() -> str:
    """What the last bits of a float may depend on."""
    processor = llvmlite.binding.get_host_cpu_name()
    return f"{platform.machine()} {processor}, numba {numba.__version__}, numpy {np.__version__}"


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]


def _of_tables(data: AggregatedData) -> str:
    tables = data.tables.values()
    return _digest(*(array for t in tables for array in (t.counts, t.sums, t.unknown)))


def _of_model(classifier: MaxEntClassifier) -> str:
    model = classifier.model_
    chains = () if model.chains is None else (model.chains.T,)
    return _digest(model.field.mu, model.field.theta, np.array([model.field.intercept]), *chains)


def _log(rows: int, hash_size: int | None = None) -> AggregatedData:
    log = AdsLog(max_modalities=150, seed=1)
    records = log.to_table(*log.sample(rows, seed=2))
    return aggregate(records, "click", categorical=["*"], hash_size=hash_size)


def _dense(data: AggregatedData) -> AggregatedData:
    """The same tables with a cell for every combination."""
    tables = {s: t.over(DenseCells(shape_of(s, data.schema))) for s, t in data.tables.items()}
    return replace(data, tables=tables)


def _small() -> Iterator[Case]:
    """Cases that need no data from elsewhere."""
    few: dict[str, Any] = {"iterations": 20, "chains": 2000}
    yield "log", lambda: _dense(_log(20_000)), few
    yield "log sparse", lambda: _log(20_000), few
    yield "log hashed", lambda: _log(20_000, hash_size=500), {**few, "lambda_theta": 16.0}
    yield "records exact", lambda: _records(), {"engine": "exact", "iterations": 30}
    plain = TrainingSettings(start="independent", gradient="plain")
    yield "records independent", lambda: _records(), {**few, "training": plain}


def _records() -> AggregatedData:
    return aggregate(make_records(), "bought", positive="yes", exclude=["id"])


def _public() -> Iterator[Case]:
    """Adult and Bank, by default."""
    yield "adult", lambda: aggregate(load_adult()[0], "income", positive=">50K"), {}
    yield "bank", lambda: aggregate(load_bank(), "y", positive="yes", exclude=["duration"]), {}


def _chosen() -> MaxEntClassifier:
    """A fit whose penalties are chosen on validation tables."""
    records = make_records(6000)
    parts = aggregate_split(records, "bought", positive="yes", exclude=["id"], split={"valid": 0.3}).parts
    settings: dict[str, Any] = {"lambda_theta": "auto", "chains": 2000, "iterations": 60}
    return MaxEntClassifier(**settings).fit(parts["train"], valid=parts["valid"])


def _fingerprints(cases: Iterator[Case]) -> dict[str, Any]:
    found = {}
    for name, make, settings in cases:
        tables = make()
        classifier = MaxEntClassifier(**settings).fit(tables)
        found[name] = {"tables": _of_tables(tables), "model": _of_model(classifier)}
    return found


def _stored() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_STORED.read_text())
    return document


def _same_machine() -> bool:
    return bool(_stored()["machine"] == _machine())


def _compare(cases: Iterator[Case]) -> None:
    stored, found = _stored()["cases"], _fingerprints(cases)
    for name, prints in found.items():
        assert prints["tables"] == stored[name]["tables"], name
    if not _same_machine():
        pytest.skip(f"models were stored on {_stored()['machine']}, this is {_machine()}")
    for name, prints in found.items():
        assert prints["model"] == stored[name]["model"], name


def test_tables_and_models_of_simulated_records_are_byte_for_byte_those_stored() -> None:
    _compare(_small())


def test_tables_and_models_of_adult_and_bank_are_byte_for_byte_those_stored(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGGLEARN_DATA", str(shared_data))
    _compare(_public())


def test_a_model_whose_penalties_were_chosen_is_byte_for_byte_the_one_stored() -> None:
    if not _same_machine():
        pytest.skip(f"models were stored on {_stored()['machine']}, this is {_machine()}")
    assert _of_model(_chosen()) == _stored()["cases"]["records chosen"]["model"]


if __name__ == "__main__":
    cases = {**_fingerprints(_small()), **_fingerprints(_public())}
    cases["records chosen"] = {"model": _of_model(_chosen())}
    _STORED.write_text(json.dumps({"machine": _machine(), "cases": cases}, indent=1) + "\n")
    print(_STORED.read_text())
