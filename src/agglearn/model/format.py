"""A model on disk.

``NAME.model/`` holds a manifest (schema, label, settings, how the fit went), Arrow files with μ, θ and the
chains, and ``history.json``. All but the history, which tells times, is the same for the same tables,
settings and seed. Version 1, which kept a row for each chain, and version 2, whose tables were all dense or
hashed, are read as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import StoreError, TooLargeError
from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.model.model import Model
from agglearn.model.record import FitRecord
from agglearn.runtime.declared import finite, finite_array, listed, text, truth, whole
from agglearn.runtime.files import (
    DAMAGED,
    new_folder,
    read_arrays,
    read_json,
    read_manifest,
    read_sealed,
    write_arrays,
    write_manifest,
    write_sealed,
)
from agglearn.runtime.memory import require
from agglearn.schema.schema import Schema
from agglearn.tables.cells import SparseCells

FORMAT = "agglearn.model"
VERSION = 3  # with cells that are listed; without, a model is written as version 2
_FIRST_VERSION = 1
_HISTORY = "history.json"


def save_model(model: Model, target: str | Path) -> None:
    """Write a model as a folder, atomically."""
    arrays: dict[str, npt.NDArray[Any]] = {"mu": model.field.mu, "theta": model.field.theta}
    if model.chains is not None:
        arrays["chains"] = model.chains
    if model.prior is not None:
        arrays["prior"] = model.prior
    lists = [own.listed if isinstance(own, SparseCells) else None for own in model.layout.cells]
    sparse = [cells for cells in lists if cells is not None]
    if sparse:
        arrays["listed"] = np.concatenate(sparse)
    history = [entry.to_json() for entry in model.record.history]
    with new_folder(Path(target), FORMAT) as folder:
        write_sealed(folder / _HISTORY, {"iterations": history, "seconds": model.record.seconds})
        write_manifest(
            folder,
            {
                "format": FORMAT,
                "version": VERSION if sparse else VERSION - 1,
                "schema": model.schema.to_json(),
                "tables": [list(s) for s in model.scopes],
                "hash_sizes": model.layout.buckets,
                **({"listed": [None if c is None else len(c) for c in lists]} if sparse else {}),
                "intercept": float(model.field.intercept).hex(),
                "apart": model.field.apart,
                "rows": model.rows,
                "positives": model.positives,
                "fit": model.record.to_json(),
                "arrays": write_arrays(folder, "field", arrays),
            },
        )


def load_model(source: str | Path) -> Model:
    """Read a model from its folder; runs no code from it."""
    folder = Path(source)
    document = read_manifest(folder, FORMAT, VERSION, _FIRST_VERSION)
    try:
        return _model(folder, document)
    except (StoreError, TooLargeError):
        raise
    except DAMAGED as error:
        raise StoreError(f"{folder} is damaged ({type(error).__name__}: {error}): fit it again") from None


def _model(folder: Path, document: Mapping[str, Any]) -> Model:
    schema = Schema.from_json(document["schema"], str(folder))
    scopes = tuple(tuple(listed(s, "a table")) for s in listed(document["tables"], "tables"))
    buckets = [whole(n, "a hash size") for n in listed(document["hash_sizes"], "hash_sizes", len(scopes))]
    indices = [[schema.index[text(f, "a feature")] for f in scope] for scope in scopes]
    if not scopes or any(i != sorted(set(i)) or not i for i in indices):
        raise ValueError("a table's features are not those of the schema, in its order")
    layout = Layout.hashed(schema.cards, indices, buckets)
    lengths = _lengths(document, layout)
    n_cells = sum(own if n is None else n + 1 for own, n in zip(layout.sizes, lengths, strict=True))
    require(16 * n_cells, f"{folder} with {n_cells:,} weights", "fit fewer cells")
    arrays = read_arrays(folder, document["arrays"])
    if "listed" in document:
        total = sum(n for n in lengths if n is not None)
        ranks = finite_array(arrays["listed"], "the listed cells", (total,), "iu")
        layout = _with_lists(layout, lengths, ranks)
    record = _record(folder, document, layout)
    finite_array(record.penalties, "penalties", (layout.n_tables,))
    whole(record.mains, "mains", 0, layout.n_tables)
    for name in ("mu", "theta", *(("prior",) if "prior" in arrays else ())):
        finite_array(arrays[name], name, (layout.n_cells,))
    return Model(
        schema=schema,
        label=schema.labels[0],
        scopes=scopes,
        field=Field(
            layout,
            arrays["mu"],
            arrays["theta"],
            _intercept(document["intercept"]),
            truth(document.get("apart", False), "apart"),
        ),
        chains=_chains(arrays.get("chains"), layout, document["version"]),
        rows=finite(document["rows"], "rows", 0),
        positives=finite(document["positives"], "positives"),
        record=record,
        prior=arrays.get("prior"),
    )


def _intercept(written: Any) -> float:
    return finite(float.fromhex(text(written, "intercept")), "intercept")


def _lengths(document: Mapping[str, Any], layout: Layout) -> list[int | None]:
    """How many cells each sparse table lists, None for the others."""
    lengths = listed(document.get("listed", [None] * layout.n_tables), "listed", layout.n_tables)
    if any(n is not None and size for n, size in zip(lengths, layout.buckets, strict=True)):
        raise ValueError("a table both lists its cells and is hashed")
    return [None if n is None else whole(n, "a list's length", 0) for n in lengths]


def _with_lists(layout: Layout, sizes: Sequence[int | None], ranks: npt.NDArray[Any]) -> Layout:
    """The layout with the cells that each sparse table lists."""
    cells, at = list(layout.cells), 0
    for t, size in enumerate(sizes):
        if size is None:
            continue
        own, shape = ranks[at : at + size].astype(np.int64), layout.cells[t].shape
        ordered = len(own) == size and (np.diff(own) > 0).all()
        if not (ordered and own.min(initial=0) >= 0 and own.max(initial=0) < prod(shape)):
            raise ValueError("the listed cells do not fit the tables")
        cells[t], at = SparseCells(shape, own), at + size
    return replace(layout, cells=tuple(cells))


def _chains(chains: npt.NDArray[Any] | None, layout: Layout, version: int) -> Codes | None:
    if chains is None:
        return None
    if version == _FIRST_VERSION:
        chains = np.ascontiguousarray(chains.T)
    fit = chains.ndim == 2 and len(chains) == layout.n_features and chains.dtype in (np.uint16, np.uint32)
    if not (fit and (chains < np.array(layout.cards)[:, None]).all()):
        raise ValueError("chains do not fit the features")
    return chains


def _record(folder: Path, document: Mapping[str, Any], layout: Layout) -> FitRecord:
    if document["version"] != _FIRST_VERSION:
        kept = read_sealed(folder / _HISTORY)
        return FitRecord.from_json(document["fit"], _entries(kept), kept["seconds"])
    summary, entries = document["summary"], _entries(read_json(folder / _HISTORY))
    sigma = summary.get("noise")
    fit = {
        **summary,
        "settings": document["settings"],
        "penalties": [summary["lambda_theta"]] * layout.n_tables,
        "mains": 0,
        "noise": sigma and {"counts": sigma, "sums": sigma},
        "choice": summary.get("choice"),
    }
    return FitRecord.from_json(fit, entries, sum(entry["seconds"] for entry in entries))


def _entries(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = document["iterations"]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{_HISTORY} does not list iterations")
    return entries
