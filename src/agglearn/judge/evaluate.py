"""A model judged on records that have their label."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agglearn.judge.scores import RecordScore, score_predictions
from agglearn.model.model import Model
from agglearn.model.predict import Counts, score_batches
from agglearn.records.sources import Source
from agglearn.schema.schema import require_columns


def evaluate(
    model: Model,
    source: Source,
    threads: int | None = None,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> tuple[RecordScore, Counts]:
    """The score on records that have their label, and unknown values per feature."""
    require_columns([model.label.name], source.columns, what="label")
    labels, scores = [np.zeros(0, np.uint8)], [np.zeros(0)]
    unknown = np.zeros(model.layout.n_features, np.int64)
    for batch, log_odds, count in score_batches(model, source, [model.label.name], threads):
        labels.append(model.schema.encode_labels(batch)[0])
        scores.append(log_odds)
        unknown += count
        on_rows(batch.num_rows)
    return score_predictions(np.concatenate(labels), np.concatenate(scores)), unknown
