"""Raw records through a model, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.score import Codes
from agglearn.model.model import Model
from agglearn.records.sources import Source
from agglearn.runtime.threads import thread_count
from agglearn.schema.schema import require_columns

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def code_records(
    model: Model, source: Source, others: Sequence[str] = ()
) -> Iterator[tuple[Any, Codes, Counts]]:
    """For each batch of raw records: the batch, the codes, and unknown values per feature.

    The batches hold the features and ``others``.
    """
    require_columns(model.schema.names, source.columns)
    cards = np.array(model.schema.cards)[:, None]
    for batch in source.batches(list(dict.fromkeys([*model.schema.names, *others]))):
        codes = model.schema.encode(batch)
        yield batch, codes, (codes >= cards).sum(axis=1)


def score_batches(
    model: Model, source: Source, others: Sequence[str] = (), threads: int | None = None
) -> Iterator[tuple[Any, Floats, Counts]]:
    """For each batch of raw records: the batch, the log-odds, and unknown values per feature."""
    workers = thread_count(threads)
    for batch, codes, unknown in code_records(model, source, others):
        yield batch, model.field.log_odds(codes, workers), unknown
