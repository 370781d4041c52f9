"""Records of a Spark DataFrame through a model, where they are.

The model is broadcast once; every task scores its Arrow batches as they come, in the order they have, so a
stream is scored as a table is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit

from agglearn.errors import InputError
from agglearn.field.field import Field
from agglearn.records.spread import joined
from agglearn.runtime.arrays import from_numpy
from agglearn.runtime.threads import limit_threads, thread_count
from agglearn.schema.columns import check_supported
from agglearn.schema.schema import Schema, require_columns

UNKNOWN = "(agglearn unknown)"  # of each record, the features whose value the model does not know


def transform(
    schema: Schema,
    field: Field,
    frame: Any,
    name: str = "probability",
    *,
    keep: Sequence[str] | None = None,
    unknown: bool = False,
) -> Any:
    """The frame with P(Y=1) of each record in a further column.

    Parameters
    ----------
    schema, field
        How records are coded, and the field that scores them.
    frame
        A Spark DataFrame, of a stream or not.
    name
        The column to add.
    keep
        Columns to keep beside it; all by default.
    unknown
        Whether to add :data:`UNKNOWN` too.
    """
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_schema

    kept = list(frame.columns if keep is None else keep)
    require_columns([*schema.names, *kept], frame.columns)
    if name in kept:
        raise InputError(f"the records have a column {name!r} already: name another for the score")
    chosen = frame.select(*(_quoted(column) for column in dict.fromkeys([*schema.names, *kept])))
    for own in to_arrow_schema(chosen.schema):
        if own.name in schema.names:
            check_supported(own.name, own.type)
    fields = [chosen.schema[column] for column in kept]
    fields.append(types.StructField(name, types.DoubleType(), nullable=False))
    if unknown:
        fields.append(types.StructField(UNKNOWN, types.ArrayType(types.IntegerType()), nullable=False))
    context = getattr(frame.sparkSession, "sparkContext", None)
    model = _Sent((schema, field)) if context is None else context.broadcast((schema, field))
    return chosen.mapInArrow(partial(_scored, model, kept, name, unknown), types.StructType(fields))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class _Sent:
    """What goes along with the work, where there is nothing to broadcast by (Spark Connect)."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _scored(model: Any, kept: list[str], name: str, unknown: bool, batches: Iterator[Any]) -> Iterator[Any]:
    """What a task does with its batches."""
    from pyspark import TaskContext

    limit_threads(TaskContext.get().cpus())
    schema, field = model.value
    cards = np.array(schema.cards)[:, None]
    for batch in batches:
        codes = schema.encode(joined([batch.select(schema.names)]))
        columns = {column: batch.column(column) for column in kept}
        columns[name] = from_numpy(expit(field.log_odds(codes, thread_count())))
        if unknown:
            record, feature = np.nonzero((codes >= cards).T)
            ends = np.searchsorted(record, np.arange(batch.num_rows + 1)).astype(np.int32)
            columns[UNKNOWN] = pa.ListArray.from_arrays(
                from_numpy(ends), pa.array(feature.astype(np.int32), pa.int32())
            )
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
