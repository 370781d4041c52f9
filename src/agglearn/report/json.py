"""A document for a program: its data as plain JSON values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from agglearn.report.document import Document


def to_json(document: Document) -> str:
    """The document's data as one JSON object in one line."""
    data = plain(document.data)
    line = json.dumps(data, ensure_ascii=False, allow_nan=False)
    try:
        line.encode()
    except UnicodeEncodeError:  # the name of a file that is not in UTF-8
        return json.dumps(data, allow_nan=False)
    return line


def plain(value: Any) -> Any:
    """Values that JSON has: a number that is not finite becomes null, numpy's numbers become Python's."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # an array or a number of numpy
        return plain(value.tolist())
    return str(value)
