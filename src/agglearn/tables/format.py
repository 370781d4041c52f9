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

from agglearn.errors import StoreError, TooLargeError
from agglearn.runtime.arrays import from_numpy, from_texts, to_numpy
from agglearn.runtime.declared import finite, finite_array, listed, mapping, text, truth, whole
from agglearn.runtime.files import (
    DAMAGED,
    MANIFEST,
    new_folder,
    open_parquet,
    read_json,
    read_manifest,
    read_parquet,
    write_manifest,
    write_parquet,
    write_text,
)
from agglearn.runtime.memory import require
from agglearn.schema.features import Feature
from agglearn.schema.schema import Schema
from agglearn.tables.cells import CellNumbers, Cells, is_dense, ranks, seen_cells, stored_cells
from agglearn.tables.data import AggregatedData
from agglearn.tables.ledger import Part
from agglearn.tables.noise import Noise
from agglearn.tables.promise import Promise
from agglearn.tables.scopes import shape_of
from agglearn.tables.table import LARGEST, Scope, Table

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
                "privacy": data.promise and data.promise.to_json(),
                "denoised": data.denoised,
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
        entries = [_declared(entry, schema) for entry in listed(document["tables"], "tables")]
        files = [open_parquet(folder, entry["file"], entry["sha256"], kind.size) for entry, kind in entries]
        sizes = [_size(kind, file.metadata.num_rows) for (_, kind), file in zip(entries, files, strict=True)]
        _require_memory(folder, sizes, schema)
        tables = [
            _read_table(file, entry, kind, schema) for (entry, kind), file in zip(entries, files, strict=True)
        ]
        if len({t.features for t in tables}) < len(tables):
            raise ValueError("it has a table twice")
        positives = listed(document["positives"], "positives", len(schema.labels))
        floor, split = document["floor"], document["split"]
        return AggregatedData(
            schema=schema,
            tables={t.features: t for t in tables},
            rows=finite(document["rows"], "rows"),
            positives=tuple(finite(n, "positives") for n in positives),
            absent=text(document["absent"], "absent"),
            floor=None if floor is None else finite(floor, "floor", 0),
            split=None if split is None else mapping(split, "split"),
            parts=tuple(Part.from_json(part) for part in listed(document.get("parts", ()), "parts")),
            promise=Promise.from_json(document["privacy"]) if document.get("privacy") else None,
            denoised=truth(document.get("denoised", False), "denoised"),
        )
    except (StoreError, TooLargeError):
        raise
    except DAMAGED as error:
        raise StoreError(f"{folder} is damaged ({type(error).__name__}: {error}): make it again") from None


def _named(data: AggregatedData, name: str) -> tuple[Part, ...]:
    """The parts; an aggregation that has no name is called as its folder is first."""
    parts = data.parts or (Part(),)
    name = os.fsencode(name).decode("utf-8", "replace")  # a name on disk need not be in UTF-8
    return tuple(replace(part, name=part.name or name) for part in parts)


def _declared(entry: Any, schema: Schema) -> tuple[dict[str, Any], Cells]:
    """What the manifest says of a table, looked at, and the cells that it has."""
    entry = mapping(entry, "a table")
    features = tuple(schema.feature(text(f, "a feature")).name for f in listed(entry["features"], "features"))
    if list(features) != [f for f in schema.names if f in features]:
        raise ValueError("a table's features are not those of the schema, in its order")
    columns = mapping(entry["columns"], "columns")
    numbers = [
        text(c, "a column") for c in (columns["count"], *listed(columns["sums"], "sums", len(schema.labels)))
    ]
    axes = [text(c, "a column") for c in listed(columns["axes"], "axes")]
    if len({*axes, *numbers}) < len(axes) + len(numbers):
        raise ValueError("a table names a column twice")
    for n in listed(entry["unknown"], "unknown", len(numbers)):
        finite(n, "unknown")
    truth(entry["integer"], "integer")
    truth(entry["all_measured"], "all_measured")
    if entry["buckets"] is not None:
        whole(entry["buckets"], "buckets", least=1)
    kind = stored_cells(shape_of(features, schema), entry["buckets"])
    if axes != (list(features) if kind.apart else axes[:1]):
        raise ValueError("a table's axes are not its features")
    return {**entry, "features": features}, kind


def _size(kind: Cells, rows: int) -> int:
    """How many cells a table has: as many as were declared, or few more than it has rows."""
    return kind.size if not kind.apart or is_dense(kind.shape, rows) else rows + 1


def _require_memory(folder: Path, sizes: list[int], schema: Schema) -> None:
    needed = sum(sizes) * (9 + 8 * len(schema.labels))
    advice = "aggregate with fewer modalities or hashed tables"
    require(needed, f"{folder} with {sum(sizes):,} cells", advice)


def load_schema(source: str | os.PathLike[str]) -> Schema:
    """Read a schema file, or take the schema of an ``.agg`` folder."""
    path = Path(source)
    if path.is_dir():
        return Schema.from_json(read_manifest(path, FORMAT, VERSION)["schema"], str(path))
    return Schema.from_json(read_json(path), str(path))


def load_scopes(source: str | os.PathLike[str]) -> list[Scope]:
    """Which tables an ``.agg`` folder holds; none where it is a schema file."""
    path = Path(source)
    if not path.is_dir():
        return []
    document = read_manifest(path, FORMAT, VERSION)
    schema = Schema.from_json(document["schema"], str(path))
    try:
        return [_declared(e, schema)[0]["features"] for e in listed(document["tables"], "tables")]
    except DAMAGED as error:
        raise StoreError(f"{path} is damaged ({type(error).__name__}: {error}): make it again") from None


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
        arrays.append(from_numpy(cells))
    else:
        for name, codes in zip(table.features, table.cells.all_codes(cells), strict=True):
            modalities = from_texts(schema.feature(name).modalities)
            arrays.append(pa.DictionaryArray.from_arrays(from_numpy(codes.astype(np.int32)), modalities))
    arrays.append(from_numpy(table.counts.reshape(-1)[cells]))
    arrays += [from_numpy(s.reshape(-1)[cells]) for s in table.sums]
    if table.variances is not None:
        columns["variance"] = _free_name("variance", schema)
        arrays.append(from_numpy(table.variances.reshape(-1)[cells]))
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
        "noise_of": table.noise.of if table.noise else None,
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


def _read_table(file: Any, entry: Mapping[str, Any], kind: Cells, schema: Schema) -> Table:
    features = entry["features"]
    rows = read_parquet(file)
    columns = entry["columns"]
    if not kind.apart:
        cells = finite_array(to_numpy(rows[columns["axes"][0]]), "buckets", (rows.num_rows,), "iu")
    else:
        codes = np.stack([_codes(rows[name], schema.feature(name)) for name in features])
        found, cells = _in_order(ranks(kind.shape, codes))
        if len(found) != len(cells):
            raise ValueError("two rows are of one cell")
        kind = seen_cells(kind.shape, found)
        cells = found[cells] if kind.dense else cells
    given = np.zeros(kind.size, bool)
    if len(cells) and not (cells.min() >= 0 and cells.max() < kind.size):
        raise ValueError("a row is of no cell")
    given[cells] = True
    if given.sum() != len(cells):
        raise ValueError("two rows are of one cell")
    dtype, kinds = (np.int64, "iu") if entry["integer"] else (np.float64, "iuf")
    numbers: npt.NDArray[Any] = np.zeros((1 + len(columns["sums"]), kind.size), dtype)
    for row, name in zip(numbers, [columns["count"], *columns["sums"]], strict=True):
        written = to_numpy(rows[name])
        row[cells] = finite_array(written, f"column {name!r}", cells.shape, kinds, LARGEST)
    variances = None
    for name in _variance_column(columns):
        variances = np.zeros(kind.size)
        variances[cells] = finite_array(to_numpy(rows[name]), "variances", cells.shape)
    measured = None
    if not entry["all_measured"]:
        measured = given
    return Table(
        features=features,
        counts=numbers[0].reshape(kind.shape),
        sums=numbers[1:].reshape(len(columns["sums"]), *kind.shape),
        unknown=np.array(entry["unknown"], dtype),
        cells=kind,
        noise=_read_noise(entry),
        measured=None if measured is None else measured.reshape(kind.shape),
        variances=None if variances is None else variances.reshape(kind.shape),
    )


def _read_noise(entry: Mapping[str, Any]) -> Noise | None:
    """The noise of a table; files of the first version do not say what it was added to."""
    if not entry["noise"]:
        return None
    return replace(Noise.parse(entry["noise"]), of=entry.get("noise_of") or "numbers")


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
    found: npt.NDArray[np.int64] = codes[to_numpy(array.indices)]
    return found
