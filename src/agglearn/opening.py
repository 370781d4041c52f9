"""Folders of ours, whatever they hold: tables and models are opened and written alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from agglearn.errors import StoreError
from agglearn.model.format import FORMAT as MODEL
from agglearn.model.format import load_model, save_model
from agglearn.model.model import Model
from agglearn.runtime.files import MANIFEST, put_back, read_json
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import FORMAT as TABLES
from agglearn.tables.format import load as load_tables
from agglearn.tables.format import save as save_tables

_LOADERS: dict[str, Callable[[Path], AggregatedData | Model]] = {TABLES: load_tables, MODEL: load_model}


def load(source: str | os.PathLike[str]) -> AggregatedData | Model:
    """Read tables from an ``.agg`` folder, or a model from a ``.model`` folder.

    Reading runs no code, and a folder that was damaged or changed is refused.
    """
    folder = Path(source)
    put_back(folder)
    if not folder.exists():
        raise StoreError(f"{folder} does not exist")
    if not (folder / MANIFEST).is_file():
        raise StoreError(f"{folder} holds neither tables nor a model: it has no {MANIFEST}")
    found = read_json(folder / MANIFEST).get("format")
    if not isinstance(found, str) or found not in _LOADERS:
        raise StoreError(f"{folder} holds neither tables nor a model: its format is {found!r}")
    return _LOADERS[found](folder)


def save(what: AggregatedData | Model, target: str | os.PathLike[str]) -> None:
    """Write tables or a model as a folder, atomically."""
    if isinstance(what, Model):
        save_model(what, Path(target))
    else:
        save_tables(what, Path(target))
