"""Record files that are written a batch at a time, and appear only when they are whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from agglearn.errors import InputError, one_line
from agglearn.runtime.files import new_file


@contextmanager
def record_writer(target: Path) -> Iterator[Callable[[Any], None]]:
    """Give a function that appends a batch (an Arrow table or a dict of columns) to a file."""
    makers = {".parquet": pq.ParquetWriter, ".csv": pacsv.CSVWriter}
    if target.suffix not in makers:
        raise InputError(f"output {str(target)!r} must end in .parquet or .csv")
    with new_file(target) as path, open(path, "wb") as file:
        writer: Any = None

        def write(batch: Any) -> None:
            nonlocal writer
            table = batch if isinstance(batch, pa.Table) else pa.table(batch)
            try:
                if writer is None:
                    writer = makers[target.suffix](file, table.schema)
                writer.write_table(table.cast(writer.schema) if target.suffix == ".parquet" else table)
            except pa.ArrowException as error:  # files of different types, or one that CSV cannot hold
                raise InputError(f"a column cannot be written to {target}: {one_line(error)}") from None

        try:
            yield write
            if writer is None:
                raise InputError("there are no records, so nothing was written")
        finally:
            if writer is not None:
                writer.close()
