"""Tables as delimited text, in files that appear whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from agglearn.runtime.files import new_file


def write_delimited(path: Path, tables: Iterable[pa.Table], delimiter: str = ",") -> None:
    """Write tables of one schema one after the other as text with a header, gzipped if ``*.gz``.

    Nothing is quoted; a value that would need it is refused by Arrow.
    """
    import gzip

    from pyarrow import csv

    # The header is written here because Arrow would put its names in quotes.
    options = csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="none")
    with new_file(path) as partial, ExitStack() as stack:
        out: IO[bytes] = stack.enter_context(open(partial, "wb"))
        if path.suffix == ".gz":
            # No name and no time inside, so that the same tables give the same bytes.
            packed = gzip.GzipFile("", "wb", compresslevel=1, fileobj=out, mtime=0)
            out = cast(IO[bytes], stack.enter_context(packed))
        for number, table in enumerate(tables):
            if number == 0:
                out.write((delimiter.join(table.column_names) + "\n").encode())
            buffer = pa.BufferOutputStream()
            csv.write_csv(table, buffer, options)
            out.write(buffer.getvalue())
