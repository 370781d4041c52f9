"""Where a record stands: its file, and its line there, for whoever has to look at it.

A batch carries in its metadata what file it is of and which record of it comes first. Only when something is
wrong is the file gone through once more, to count its lines: a value may hold line breaks.
"""

from __future__ import annotations

import codecs
import csv
import json
from typing import Any

import pyarrow as pa

_KEY = b"agglearn.place"


def marked(batch: Any, file: str, first: int, separator: str = "", encoding: str = "") -> Any:
    """The batch, marked with where its records stand; a text file by its separator and encoding as well."""
    place = {"file": file, "first": first, "separator": separator, "encoding": encoding}
    return batch.replace_schema_metadata({_KEY: json.dumps(place).encode()})


def place_of(batch: Any, row: int) -> str:
    """What to call a record of a batch: ``record 3 of clicks.csv (line 4)``."""
    held = (batch.schema.metadata or {}).get(_KEY)
    if held is None:
        return f"record {row + 1}"
    place = json.loads(held)
    record = place["first"] + row
    said = f"record {record + 1} of {place['file']}"
    if not place["separator"]:
        return said
    line = _line(place["file"], record, place["separator"], place["encoding"])
    return said if line is None else f"{said} (line {line})"


def _line(file: str, record: int, separator: str, encoding: str) -> int | None:
    """The line on which a record of a text file begins."""
    try:
        with pa.input_stream(file, compression="detect") as stream:
            rows = csv.reader(codecs.getreader(encoding)(stream), delimiter=separator)
            seen, begun = -2, 1  # the header is not a record, and the first record has number 0
            for row in rows:
                if row and seen == record - 1:
                    return begun
                seen += bool(row)
                begun = rows.line_num + 1
    except (OSError, ValueError, csv.Error, pa.ArrowException):
        return None
    return None


def ragged_line(file: str, separator: str, encoding: str) -> str | None:
    """The first line of a text file that has not as many columns as its header, in words."""
    try:
        with pa.input_stream(file, compression="detect") as stream:
            rows = csv.reader(codecs.getreader(encoding)(stream), delimiter=separator)
            columns, begun = 0, 1
            for row in rows:
                if row and columns and len(row) != columns:
                    return f"line {begun} has {len(row)} columns, and the header has {columns}"
                columns = columns or len(row)
                begun = rows.line_num + 1
    except (OSError, ValueError, csv.Error, pa.ArrowException):
        return None
    return None
