"""Other tables than those given, which cost less of a budget.

Half of the pairs (picked by the order of the columns, so that the choice itself tells nothing of the
records), single features, and bins half as fine. The same budget puts less noise on fewer tables, and on
larger cells it matters less.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import TableError
from agglearn.schema.features import Binned, Feature
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.scopes import cells_of
from agglearn.tables.table import Scope, Table


def choices_of(data: AggregatedData) -> dict[str, AggregatedData]:
    """The tables given, and others that would cost less."""
    pairs = [scope for scope in data.tables if len(scope) == 2]
    all_pairs = len(pairs) == len(data.tables) > 1
    choices = {"all pairs" if all_pairs else "as given": data}
    index = data.schema.index
    # Even columns with odd ones: about half of the pairs, and still all columns hang together.
    half = [scope for scope in pairs if (index[scope[0]] + index[scope[1]]) % 2]
    if all_pairs and len(half) < len(pairs):
        choices["half of the pairs"] = replace(data, tables={scope: data.tables[scope] for scope in half})
    singles = _singles(data)
    if singles is not None and set(singles.tables) != set(data.tables):
        choices["singles"] = singles
    coarse = coarser(data)
    if coarse is not None:
        choices["coarser bins"] = coarse
    return choices


def _singles(data: AggregatedData) -> AggregatedData | None:
    tables: dict[Scope, Table] = {}
    for name in data.schema.names:
        try:
            tables[(name,)] = data.table(name)
        except TableError:  # in no table, or in hashed ones only
            continue
    return replace(data, tables=tables) if tables else None


def coarser(data: AggregatedData) -> AggregatedData | None:
    """The same tables without every second cut of numeric columns; None where there is none to leave."""
    mappings = {f.name: _halved(f) for f in data.schema.features}
    if all(feature is None for feature in mappings.values()):
        return None
    features = tuple(f if (new := mappings[f.name]) is None else new[0] for f in data.schema.features)
    schema = Schema(features, data.schema.labels)
    tables = {}
    for scope, table in data.tables.items():
        if not table.cells.apart:
            return None
        counts, sums = table.counts, table.sums
        for axis, name in enumerate(scope):
            found = mappings[name]
            if found is not None:
                counts = _summed(counts, axis, found[1])
                sums = _summed(sums, 1 + axis, found[1])
        cells = cells_of(scope, schema)
        tables[scope] = Table(scope, counts, sums, table.unknown, cells)
    return replace(data, schema=schema, tables=tables)


def _halved(feature: Feature) -> tuple[Feature, npt.NDArray[np.int64]] | None:
    """A numeric feature with half the cuts, and the new code of each old one."""
    if not isinstance(feature, Binned) or len(feature.cuts) < 2:
        return None
    kept = feature.cuts[1::2]
    new = replace(feature, cuts=kept)
    codes = [sum(cut in kept for cut in feature.cuts[:code]) for code in range(len(feature.cuts) + 1)]
    codes += [new.missing_code] * feature.missing
    return new, np.array(codes)


def _summed(numbers: npt.NDArray[Any], axis: int, codes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Numbers of cells whose codes on one axis become the same, added up."""
    first = np.moveaxis(numbers, axis, 0)
    out = np.zeros((int(codes.max()) + 1, *first.shape[1:]), numbers.dtype)
    np.add.at(out, codes, first)
    return np.moveaxis(out, 0, axis)
