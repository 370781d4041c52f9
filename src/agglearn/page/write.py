"""The report as one file that needs nothing else: no network, no folder beside it."""

from __future__ import annotations

import json
import os
import re
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from agglearn.errors import InputError
from agglearn.export.document import scorer_source
from agglearn.model.model import Fitted, Model, model_of
from agglearn.page.contents import Progress, report_contents
from agglearn.records.sources import open_source
from agglearn.runtime.files import new_file
from agglearn.runtime.memory import require_addresses
from agglearn.tables.data import AggregatedData

MOST_BYTES = 3_000_000
_ADDRESSES = 72 << 30  # of the engine that writes the pictures' script: it took 66 GB, and aborts without


def write_report(
    model: Model | Fitted,
    target: str | os.PathLike[str],
    *,
    tables: AggregatedData | None = None,
    valid: Any = None,
    compare: bool = False,
    name: str | None = None,
    level: float = 0.9,
    folder: str | Path | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress = lambda doing: None,
) -> int:
    """Write a report of a model: one page of HTML that can be opened, sent and printed.

    Parameters
    ----------
    model
        The model.
    target
        The file to write.
    tables
        The tables it was fitted to: with them the page tells the rates in tables beside those predicted, and
        where the model cannot be trusted.
    valid
        Tables of other records, or records with their label (a frame, a path, …): how good the model is.
    compare
        Whether simpler models, fitted to ``tables``, are judged by ``valid`` beside it.
    name
        What the page calls the model; by default what it predicts.
    level
        Of intervals.
    folder
        Where the model was read from, to keep there what intervals are made of, or take it from there.
    threads, seed
        Threads to use, and the seed of everything drawn.
    progress
        Called with what is being done.

    Returns
    -------
    int
        Bytes written.
    """
    fitted = model_of(model)
    require_addresses(_ADDRESSES, "the library for the pictures of a report")
    if compare and (tables is None or valid is None):
        raise InputError(
            "simpler models are fitted to the tables and judged by other records: give tables and valid"
        )
    if valid is not None and not isinstance(valid, AggregatedData) and not hasattr(valid, "batches"):
        valid = open_source(valid)
    contents = report_contents(
        fitted,
        name or fitted.label.name,
        tables,
        valid,
        compare=compare,
        level=level,
        folder=folder,
        threads=threads,
        seed=seed,
        progress=progress,
    )
    progress("writing")
    data = _fitting(contents)
    with new_file(Path(target)) as path:
        path.write_bytes(data)
    return len(data)


def _fitting(contents: dict[str, Any]) -> bytes:
    """The page in bytes; where it would be too large, without what it can best do without."""
    for lighter in (_as_it_is, _without_interval, _without_calculator, _with_fewer_pairs):
        contents = lighter(contents)
        data = page(contents).encode("utf-8", "replace")
        if len(data) <= MOST_BYTES:
            break
    return data


def _as_it_is(contents: dict[str, Any]) -> dict[str, Any]:
    return contents


def _without_interval(contents: dict[str, Any]) -> dict[str, Any]:
    return {**contents, "whatif": {**contents["whatif"], "draws": None}}


def _without_calculator(contents: dict[str, Any]) -> dict[str, Any]:
    return {**contents, "whatif": {"reason": "the model is too large for a page of this kind"}}


def _with_fewer_pairs(contents: dict[str, Any]) -> dict[str, Any]:
    return {**contents, "pairs": contents["pairs"][:4]}


def page(contents: dict[str, Any]) -> str:
    """The page that says these contents."""
    parts = {
        "title": escape(contents["name"]),
        "css": _asset("page.css"),
        "vega": _vega(),
        "scorer": scorer_source("scorer.js"),
        "script": _asset("page.js"),
        "contents": _embedded(contents),
    }
    # In one go: what is put in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return resources.files("agglearn.page").joinpath("assets", name).read_text(encoding="utf-8")


def _embedded(contents: dict[str, Any]) -> str:
    """JSON that no text in it can end or turn into markup."""
    text = json.dumps(contents, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script."""
    try:
        import vl_convert
    except ImportError:
        raise InputError(
            "the report needs a library for its pictures: pip install 'agglearn[report]'"
        ) from None
    make: Any = vl_convert.javascript_bundle  # its stub asks for arguments that it does not need
    bundle: str = make()
    # Its own names stay its own.
    return "(() => {" + bundle.replace("</script", "<\\/script") + "\n})();"
