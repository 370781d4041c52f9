"""Records in memory, or from a reader that gives them once: frames, Arrow tables, dicts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from agglearn.errors import InputError, one_line
from agglearn.records.options import BATCH_ROWS
from agglearn.records.rows import are_records, is_record, table_of_records
from agglearn.schema.columns import check_supported, check_unique, plain_batch, plain_type


def to_arrow(data: Any) -> Any:
    """An eager frame of any library, a dict of columns or an Arrow table, as an Arrow table."""
    import narwhals as nw

    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if is_record(data):
        data = table_of_records([data])
    elif are_records(data):
        data = table_of_records(data)
    elif isinstance(data, dict):
        data = _table_of_dict(data)
    if not isinstance(data, pa.Table):
        if hasattr(data, "columns"):  # narwhals would refuse it in many lines
            check_unique([str(name) for name in data.columns], "the frame")
        try:
            frame = nw.from_native(data, eager_only=True)
        except TypeError:
            raise InputError(
                f"records of type {type(data).__name__} cannot be read: give a path, a pandas, polars "
                "or pyarrow frame, a dict of columns or a record-batch reader"
            ) from None
        check_unique([str(name) for name in frame.columns], "the frame")
        data = _arrow_of_frame(frame)
    check_unique(data.column_names, "the table")
    return data


def _table_of_dict(data: dict[str, Any]) -> Any:
    try:
        return pa.table(data)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(f"the columns of the dict do not make a table: {one_line(error)}") from None


def _arrow_of_frame(frame: Any) -> Any:
    arrays = {}
    for name in frame.columns:
        try:
            column = frame.get_column(name).to_arrow()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(
                f"column {name!r} mixes types ({one_line(error)}): cast it to one type first"
            ) from None
        arrays[str(name)] = column
    return pa.table(arrays)


@dataclass(frozen=True)
class FrameSource:
    """Records of an Arrow table in memory."""

    table: Any

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    @property
    def rows(self) -> int | None:
        return int(self.table.num_rows)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        for name in columns:
            check_supported(name, self.table.schema.field(name).type)
        for batch in self.table.select(list(columns)).to_batches(max_chunksize=BATCH_ROWS):
            yield plain_batch(batch)


class SpooledSource:
    """Records of a reader that gives them once only: kept on disk, so that they can be read again."""

    def __init__(self, reader: Any) -> None:
        self._file = tempfile.NamedTemporaryFile(suffix=".arrow")  # noqa: SIM115 - lives as long as the source
        self._rows = 0
        check_unique(reader.schema.names, "the reader")
        # Dictionaries may change from batch to batch, which a file cannot hold: spool plain values.
        fields = [
            pa.field(f.name, plain_type(f.type.value_type if pa.types.is_dictionary(f.type) else f.type))
            for f in reader.schema
        ]
        self._schema = pa.schema(fields)
        with pa.ipc.new_file(self._file.name, self._schema) as writer:
            for batch in reader:
                writer.write_batch(_cast(plain_batch(batch), self._schema))
                self._rows += batch.num_rows

    @property
    def columns(self) -> list[str]:
        return list(self._schema.names)

    @property
    def rows(self) -> int | None:
        return self._rows

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        for name in columns:
            check_supported(name, self._schema.field(name).type)
        with pa.ipc.open_file(self._file.name) as reader:
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i).select(list(columns))


def _cast(batch: Any, schema: Any) -> Any:
    return pa.RecordBatch.from_arrays(
        [c.cast(f.type) if c.type != f.type else c for c, f in zip(batch.columns, schema, strict=True)],
        schema=schema,
    )
