"""The formats that a model can be written in, and how each is written: whole, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agglearn.errors import InputError
from agglearn.export.document import scorer_document, scorer_source
from agglearn.export.onnx import onnx_model
from agglearn.export.sql import scoring_query
from agglearn.model.model import Fitted, Model, model_of
from agglearn.runtime.files import new_file

_PYTHON_MAIN = 'if __name__ == "__main__":'


@dataclass(frozen=True)
class ExportOptions:
    """What some formats let a user turn.

    Attributes
    ----------
    dialect, table, view
        For ``sql``: the database, where its records are, and a view to create instead of a plain query.
    inputs
        For ``onnx``: ``raw`` columns or ``codes``.
    """

    dialect: str = "duckdb"
    table: str = "records"
    view: str | None = None
    inputs: str = "raw"


def _json(model: Model, options: ExportOptions) -> bytes:
    return (json.dumps(scorer_document(model), allow_nan=False) + "\n").encode("ascii")


def _python(model: Model, options: ExportOptions) -> bytes:
    """The scorer with its model inside."""
    source = scorer_source("scorer.py")
    body, _, _ = source.partition(f"\n\n{_PYTHON_MAIN}")
    start = body.index("from __future__")
    document = json.dumps(scorer_document(model), allow_nan=False)
    title = " ".join(model.label.name.split()).replace("\\", "").replace('"', "'")
    heading = (
        f'"""P({title} = 1) by a model that agglearn fitted. The standard library is all this file needs.\n\n'
        "From Python: probability(record), with a mapping from the name of a feature to its raw value, None\n"
        "where it is missing. On the command line: python THIS_FILE < records.csv > scores.csv adds a\n"
        'column with the probability.\n"""\n\n'
    )
    ending = (
        f"\n\nSCORER = Scorer(json.loads({document!r}))\n"
        "probability, log_odds = SCORER.probability, SCORER.log_odds\n\n\n"
        f"{_PYTHON_MAIN}\n    main(SCORER.document, sys.stdin, sys.stdout)\n"
    )
    return (heading + body[start:].rstrip() + ending).encode()


def _javascript(model: Model, options: ExportOptions) -> bytes:
    """The scorer with its model inside."""
    source, _, _ = scorer_source("scorer.js").partition("\nif (typeof module")
    # A string in JavaScript may not hold these two as they are; ASCII leaves them out.
    document = json.dumps(json.dumps(scorer_document(model), allow_nan=False))
    ending = (
        f"\nconst scorer = agglearnScorer(JSON.parse({document}));\n"
        '\nif (typeof module !== "undefined") module.exports = scorer;\n'
    )
    return (source + ending).encode()


def _sql(model: Model, options: ExportOptions) -> bytes:
    return scoring_query(model, options.dialect, options.table, options.view).encode()


def _onnx(model: Model, options: ExportOptions) -> bytes:
    data: bytes = onnx_model(model, options.inputs).SerializeToString(deterministic=True)
    return data


FORMATS: dict[str, Callable[[Model, ExportOptions], bytes]] = {
    "onnx": _onnx,
    "sql": _sql,
    "json": _json,
    "python": _python,
    "javascript": _javascript,
}


def export_model(
    model: Model | Fitted,
    target: str | os.PathLike[str],
    format: str,
    options: ExportOptions | None = None,
) -> int:
    """Write a model for use elsewhere.

    Parameters
    ----------
    model
        The model.
    target
        The file to write.
    format
        ``onnx``, ``sql``, ``json``, ``python`` or ``javascript``: see the page *Export* of the documentation.
    options
        What some formats let you turn.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    InputError
        The format cannot carry the model; the message says what is in the way.

    Examples
    --------
    >>> import agglearn, tempfile
    >>> records = {"colour": ["red", "blue"] * 50, "size": ["S", "S", "L", "L"] * 25,
    ...            "click": [1, 0, 1, 1] * 25}
    >>> model = agglearn.fit(agglearn.aggregate(records, "click"))
    >>> with tempfile.NamedTemporaryFile(suffix=".json") as file:
    ...     agglearn.export_model(model, file.name, "json") > 100
    True
    """
    if format not in FORMATS:
        raise InputError(f"format {format!r} is not one of {', '.join(FORMATS)}")
    data = FORMATS[format](model_of(model), options or ExportOptions())
    with new_file(Path(target)) as path:
        path.write_bytes(data)
    return len(data)
