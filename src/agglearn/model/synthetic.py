"""Synthetic records drawn on a Spark cluster: blocks of a model's chains, each moved where its task is.

They are the records that one machine draws, bit for bit, in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from agglearn.model.draw import Synthesis
from agglearn.model.model import Model
from agglearn.runtime.threads import limit_threads
from agglearn.spark.session import open_session, require_package


def sample_frame(model: Model, n: int, *, seed: int = 0) -> Any:
    """A Spark DataFrame of synthetic records with their label, drawn when it is asked for.

    Parameters
    ----------
    model
        What to draw from.
    n
        How many records.
    seed
        Of the draws.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    drawing = Synthesis.of(model, n, seed)
    session = open_session()
    require_package(session)
    context = session.sparkContext
    schema = _schema(model)
    tasks = min(drawing.blocks, max(int(context.defaultParallelism), 1))
    blocks = session.range(0, drawing.blocks, 1, tasks)
    work = partial(_drawn, context.broadcast(drawing), schema)
    return blocks.mapInArrow(work, from_arrow_schema(schema, prefer_timestamp_ntz=True))


def _schema(model: Model) -> Any:
    """Names and types of the records: those that all values of a feature have in common."""
    rng = np.random.default_rng(0)
    fields = []
    for feature in model.schema.features:
        every = np.arange(feature.n_modalities).astype(np.uint32)
        fields.append(pa.field(feature.name, feature.decode(every, rng).type))
    label = model.label.decode(np.zeros(1, np.uint8))
    return pa.schema([*fields, pa.field(model.label.name, label.type)])


def _drawn(drawing: Any, schema: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """What a task does: move its blocks, which follow one another, round by round."""
    from pyspark import TaskContext

    limit_threads(TaskContext.get().cpus())
    own = [block for batch in batches for block in batch.column(0).to_pylist()]
    if own:
        for table in drawing.value.tables(own[0], own[-1] + 1):
            yield from table.cast(schema).to_batches()
