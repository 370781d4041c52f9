"""Tables on disk: ``NAME.agg/`` with a manifest and a Parquet file for each table.

:mod:`agglearn.runtime.files` says how a folder is written and verified.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.errors import AgglearnError, StoreError
from agglearn.runtime.files import (
    MANIFEST,
    new_folder,
    read_json,
    read_manifest,
    read_parquet,
    write_manifest,
    write_parquet,
    write_text,
)
from agglearn.schema.features import Feature
from agglearn.schema.schema import Schema
from agglearn.tables.cells import CellNumbers, Cells, HashedCells, ranks, seen_cells
from agglearn.tables.data import AggregatedData
from agglearn.tables.ledger import Part
from agglearn.tables.noise import Noise
from agglearn.tables.scopes import shape_of
from agglearn.tables.table import Scope, Table

FORMAT = "agglearn.tables"
VERSION = 1


def save(data: AggregatedData, target: str | Path) -> None:
    """Write aggregated data as a folder, atomically."""
    with new_folder(Path(target), FORMAT) as folder:
        entries = [
            _write_table(folder, position, table, data.schema)
            for position, table in enumerate(data.tables.values())
        ]
        write_manifest(
            folder,
            {
                "format": FORMAT,
                "version": VERSION,
                "rows": data.rows,
                "positives": data.positives,
                "absent": data.absent,
                "floor": data.floor,
                "split": data.split,
                "parts": [part.to_json() for part in _named(data, Path(target).stem)],
                "schema": data.schema.to_json(),
                "tables": entries,
            },
        )


def load(source: str | Path) -> AggregatedData:
    """Read aggregated data from its folder."""
    folder = Path(source)
    document = read_manifest(folder, FORMAT, VERSION)
    try:
        schema = Schema.from_json(document["schema"], str(folder / MANIFEST))
        tables = [_read_table(folder, entry, schema) for entry in document["tables"]]
        if not all(isinstance(n, int | float) for n in (document["rows"], *document["positives"])):
            raise ValueError("its totals are not numbers")
        return AggregatedData(
            schema=schema,
            tables={t.features: t for t in tables},
            rows=document["rows"],
            positives=tuple(document["positives"]),
            absent=document["absent"],
            floor=document["floor"],
            split=document["split"],
            parts=tuple(Part.from_json(part) for part in document.get("parts", ())),
        )
    except StoreError:
        raise
    except (AgglearnError, LookupError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise StoreError(f"{folder} is damaged ({type(error).__name__}: {error}): make it again") from None


def _named(data: AggregatedData, name: str) -> tuple[Part, ...]:
    """The parts; an aggregation that has no name is called as its folder is first."""
    parts = data.parts or (Part(),)
    return tuple(replace(part, name=part.name or name) for part in parts)


def load_schema(source: str | os.PathLike[str]) -> Schema:
    """Read a schema file, or take the schema of an ``.agg`` folder."""
    path = Path(source)
    if path.is_dir():
        return Schema.from_json(read_manifest(path, FORMAT, VERSION)["schema"], str(path))
    return Schema.from_json(read_json(path), str(path))


def save_schema(schema: Schema, target: str | Path) -> None:
    """Write a schema as a JSON file, to be read again or edited by hand."""
    write_text(Path(target), json.dumps(schema.to_json(), indent=1, ensure_ascii=False) + "\n")


def table_columns(scope: Scope, cells: Cells, schema: Schema) -> dict[str, Any]:
    """Names of a table's columns; features and labels keep theirs, the others make way."""
    axes = list(scope) if cells.apart else ["bucket"]
    count = _free_name("count", schema)
    taken = _taken(schema)
    if not cells.apart:
        while axes[0] in {*taken, count}:
            axes[0] += "_"
    return {"axes": axes, "count": count, "sums": list(schema.label_names)}


def _taken(schema: Schema) -> set[str]:
    # Most databases take "Count" and "count" for the same name.
    return {name.casefold() for name in (*schema.names, *schema.label_names)}


def _free_name(name: str, schema: Schema) -> str:
    while name in _taken(schema):
        name += "_"
    return name


def _variance_column(columns: Mapping[str, Any]) -> list[str]:
    return [columns["variance"]] if "variance" in columns else []


def _write_table(folder: Path, position: int, table: Table, schema: Schema) -> dict[str, Any]:
    columns = table_columns(table.features, table.cells, schema)
    keep = _kept(table)
    cells = np.flatnonzero(keep.reshape(-1))
    if table.cells.tied:
        cells = cells[cells < table.n_cells - 1]  # the rest is what no row is about
    arrays = []
    if not table.cells.apart:
        arrays.append(pa.array(cells))
    else:
        for name, codes in zip(table.features, table.cells.all_codes(cells), strict=True):
            modalities = pa.array(schema.feature(name).modalities, pa.string())
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), modalities))
    arrays.append(pa.array(table.counts.reshape(-1)[cells]))
    arrays += [pa.array(s.reshape(-1)[cells]) for s in table.sums]
    if table.variances is not None:
        columns["variance"] = _free_name("variance", schema)
        arrays.append(pa.array(table.variances.reshape(-1)[cells]))
    slug = "-".join(re.sub(r"[^A-Za-z0-9]+", "_", f)[:24].strip("_") for f in table.features)
    name = f"tables/{position:04d}-{slug[:80]}.parquet"
    names = [*columns["axes"], columns["count"], *columns["sums"], *_variance_column(columns)]
    return {
        "file": name,
        "sha256": write_parquet(folder, name, pa.table(arrays, names=names)),
        "features": table.features,
        "columns": columns,
        "buckets": table.cells.buckets or None,
        "integer": bool(np.issubdtype(table.counts.dtype, np.integer)),
        "unknown": table.unknown.tolist(),
        "noise": f"{table.noise.law}:{table.noise.scale!r}" if table.noise else None,
        "all_measured": table.measured is None,
    }


def _kept(table: Table) -> npt.NDArray[np.bool_]:
    """Cells that must be written: those measured, less the zeros of an exact table."""
    if table.measured is not None:
        return table.measured
    if table.noise is not None:
        return np.ones(table.counts.shape, bool)
    kept: npt.NDArray[np.bool_] = (table.counts != 0) | (table.sums != 0).any(axis=0)
    return kept


def _read_table(folder: Path, entry: Mapping[str, Any], schema: Schema) -> Table:
    features = tuple(entry["features"])
    rows = read_parquet(folder, entry["file"], entry["sha256"])
    columns = entry["columns"]
    cards = shape_of(features, schema)
    if entry["buckets"] is not None:
        kind: Cells = HashedCells(entry["buckets"])
        cells = rows[columns["axes"][0]].to_numpy()
    else:
        codes = np.stack([_codes(rows[name], schema.feature(name)) for name in features])
        listed, to = _in_order(ranks(cards, codes))
        kind = seen_cells(cards, listed)
        cells = listed[to] if kind.dense else to
    dtype = np.int64 if entry["integer"] else np.float64
    numbers = np.zeros((1 + len(columns["sums"]), kind.size), dtype)
    for row, name in zip(numbers, [columns["count"], *columns["sums"]], strict=True):
        row[cells] = rows[name].to_numpy()
    variances = None
    for name in _variance_column(columns):
        variances = np.zeros(kind.size)
        variances[cells] = rows[name].to_numpy()
    measured = None
    if not entry["all_measured"]:
        measured = np.zeros(numbers.shape[1], bool)
        measured[cells] = True
    return Table(
        features=features,
        counts=numbers[0].reshape(kind.shape),
        sums=numbers[1:].reshape(len(columns["sums"]), *kind.shape),
        unknown=np.array(entry["unknown"], dtype),
        cells=kind,
        noise=Noise.parse(entry["noise"]) if entry["noise"] else None,
        measured=None if measured is None else measured.reshape(kind.shape),
        variances=None if variances is None else variances.reshape(kind.shape),
    )


def _in_order(found: CellNumbers) -> tuple[CellNumbers, CellNumbers]:
    """Ranks in increasing order, and where each stands: as it is, in files that we wrote ourselves."""
    if (found[1:] > found[:-1]).all():
        return found, np.arange(found.size)
    listed, to = np.unique(found, return_inverse=True)
    return listed, to.reshape(-1)


def _codes(column: Any, feature: Feature) -> npt.NDArray[np.int64]:
    """Codes of a column of modalities."""
    array = column.combine_chunks()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes = np.array([feature.code_of[m] for m in array.dictionary.to_pylist()], np.int64)
    found: npt.NDArray[np.int64] = codes[array.indices.to_numpy()]
    return found
