"""Scoring: from integer codes, and from a file of text to a file of probabilities."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import agglearn
from agglearn import MaxEntClassifier
from agglearn.cli.model import predict
from agglearn.datasets import AdsLog
from agglearn.field.kernels.score import score_codes
from agglearn.field.layout import Layout
from evidence.speed.sizes import Sizes
from evidence.speed.targets import Result, at_least
from evidence.splits import split
from evidence.timing import THREADS, seconds

TITLE = "Prediction"
SECTION = "prediction"
_TEXT_MODALITIES = 100


def run(config: Sizes) -> list[Result]:
    """Measure both."""
    with tempfile.TemporaryDirectory() as folder:
        return [_from_codes(config), _from_text(config, Path(folder))]


def _from_codes(config: Sizes) -> Result:
    """Adult's features, all pairs and singles, with weights at random."""
    train = split("adult", "quantile", 0).whole
    features = range(train.layout.n_features)
    scopes = [*train.layout.scopes, *((f,) for f in features)]
    layout = Layout.plain(train.layout.cards, scopes)
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(layout.n_cells)
    codes = train.codes[:, rng.integers(0, train.codes.shape[1], config.code_rows)]
    spent = seconds(lambda: score_codes(codes, layout, theta, -1.0, THREADS), config.repeat)
    setting = f"{config.code_rows:,} records, {layout.n_features} features, {layout.n_tables} tables"
    what = "records a second from codes"
    return at_least(SECTION, what, config.code_rows / spent, 2_000_000, "/s", setting=setting)


def _from_text(config: Sizes, folder: Path) -> Result:
    """What ``agglearn predict`` does, called in this process; reading the model is part of it."""
    log = AdsLog(n_features=14, max_modalities=_TEXT_MODALITIES, seed=1)
    records, model, scores = folder / "log.parquet", folder / "log.model", folder / "scores.parquet"
    table = log.to_table(*log.sample(config.text_rows, seed=0), strings=True)
    pq.write_table(table, records, compression="zstd")
    data = agglearn.aggregate(records, "click", tables="pairs,singles")
    MaxEntClassifier(iterations=2, chains=1000, threads=THREADS).fit(data).save(model)

    def through_the_command_line() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            predict(str(model), [str(records)], str(scores), threads=THREADS, json=True)

    spent = seconds(through_the_command_line, config.repeat)
    setting = f"{config.text_rows:,} records, {len(log.names)} features, {len(data.tables)} tables"
    what = "records a second from text to scores, in Parquet"
    return at_least(SECTION, what, config.text_rows / spent, 300_000, "/s", setting=setting)
