"""A model at work elsewhere: how long SQL in DuckDB and ONNX take beside ``predict_proba``."""

from __future__ import annotations

from typing import Any

import numpy as np

import agglearn
from agglearn import MaxEntClassifier
from agglearn.datasets import load_adult
from agglearn.export.onnx import onnx_inputs, onnx_model
from agglearn.export.sql import scoring_query
from evidence.speed.sizes import Sizes
from evidence.speed.targets import Result, at_most, not_measured
from evidence.timing import THREADS, in_turns

TITLE = "Exports"
SECTION = "exports"
_BLOCK = 100_000  # records that the graph is given at a time
_MOST = 5.0


def run(config: Sizes) -> list[Result]:
    """Adult's records, repeated; every way is given them in memory and gives an array of probabilities."""
    train, _ = load_adult(download=False)
    fitted = MaxEntClassifier(iterations=20, chains=2000, threads=THREADS).fit(
        agglearn.aggregate(train, "income", positive=">50K")
    )
    records = train.take(np.arange(config.export_rows) % len(train)).combine_chunks()
    setting = f"{config.export_rows:,} records of Adult, {fitted.model_.layout.n_tables} tables"
    return [_beside(way, work, fitted, records, config, setting) for way, work in _WAYS.items()]


def _beside(
    name: str, make: Any, fitted: MaxEntClassifier, records: Any, config: Sizes, setting: str
) -> Result:
    what = f"time of {name} beside predict_proba"
    try:
        work = make(fitted, records)
    except ImportError as error:
        return not_measured(SECTION, what, str(error))
    own, there = in_turns([lambda: fitted.predict_proba(records), work], config.repeat)
    return at_most(SECTION, what, there / own, _MOST, setting=setting, seconds=there, predict_seconds=own)


def _duckdb(fitted: MaxEntClassifier, records: Any) -> Any:
    import duckdb

    connection = duckdb.connect(config={"threads": THREADS})
    connection.register("given", records)
    connection.execute("CREATE TABLE records AS SELECT * FROM given")
    query = scoring_query(fitted.model_, "duckdb").rstrip().removesuffix(";")
    return lambda: connection.execute(f"SELECT probability FROM ({query})").fetchnumpy()


def _onnx(fitted: MaxEntClassifier, records: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        onnx_model(fitted.model_).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = onnx_inputs(fitted.model_, records)

    def work() -> None:
        for start in range(0, len(records), _BLOCK):
            part = {name: column[start : start + _BLOCK] for name, column in inputs.items()}
            session.run(["probability"], part)

    return work


_WAYS = {"SQL in DuckDB": _duckdb, "ONNX": _onnx}
