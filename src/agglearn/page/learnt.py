"""What a model learnt, for its report: terms, effects with intervals, the strongest pairs cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout
from agglearn.model.explanation import Explanation, Term
from agglearn.model.model import Model
from agglearn.schema.features import Binned
from agglearn.tables.cells import DenseCells
from agglearn.tables.data import AggregatedData
from agglearn.tables.scopes import shape_of
from agglearn.trust.effects import effect_intervals
from agglearn.trust.intervals import Posterior

Floats = npt.NDArray[np.float64]

_TERMS = 40
_VALUES = 40  # of a feature in a picture: the most frequent
_PAIRS = 24
_TEXT = 200  # characters of a value
_SIDE = 26  # values of a feature in a heat map


def terms(found: Explanation) -> list[dict[str, Any]]:
    """The terms of largest spread."""
    return [
        {"term": t.name, "kind": t.kind, "spread": _short(t.spread), "share": _short(t.share)}
        for t in found.terms[:_TERMS]
    ]


def effects(model: Model, posterior: Posterior | None, level: float) -> list[dict[str, Any]]:
    """The values of every feature, features of largest spread first."""
    found = model.explanation()
    shares = found.population.shares()
    spread = {t.features[0]: t.spread for t in found.terms if t.kind == "feature"}
    told = []
    for name in sorted(model.schema.names, key=lambda name: -spread[name]):
        columns = found.feature_columns(name)
        if posterior is not None:
            ends = effect_intervals(posterior, shares, model.schema.index[name], level)
            columns |= dict(zip(("lower", "upper"), ends, strict=True))
        share = np.asarray(columns["share"], float)
        shown = np.sort(np.argsort(-share, kind="stable")[:_VALUES])
        told.append(
            {
                "feature": name,
                "spread": _short(spread[name]),
                "ordered": isinstance(model.schema.feature(name), Binned),
                "values": [_row(columns, i) for i in shown.tolist()],
                "left_out": int(share.size - len(shown)),
            }
        )
    return told


def _row(columns: dict[str, Any], i: int) -> dict[str, Any]:
    return {key: _clipped(c[i]) if key == "value" else _short(float(c[i])) for key, c in columns.items()}


def pairs(model: Model, tables: AggregatedData | None) -> list[dict[str, Any]]:
    """The strongest pairs that can be shown: what each cell adds, and its rate as predicted and observed."""
    found = model.explanation()
    strongest = [t for t in found.terms if t.kind == "pair" and found.shows(t.features)][:_PAIRS]
    return [_pair(model, found, term, tables) for term in strongest]


def _pair(model: Model, found: Explanation, term: Term, tables: AggregatedData | None) -> dict[str, Any]:
    t = found.table_of(term.features)
    first, second = model.layout.scopes[t]
    alone = found.population.over(Layout.plain(model.layout.cards, [(first,), (second,)]))
    shares = alone.shares()
    kept = [
        np.sort(np.argsort(-shares[alone.layout.part(k)], kind="stable")[:_SIDE]).tolist() for k in (0, 1)
    ]
    columns = found.cell_columns(term.features)
    shape = (model.layout.cards[first], model.layout.cards[second])
    grids = {k: np.asarray(columns[k], float).reshape(shape) for k in ("share", "interaction", "rate")}
    observed = _observed(model, term, tables)
    names = [model.schema.features[f].modalities for f in (first, second)]
    cells = []
    for i in kept[0]:
        for j in kept[1]:
            cell = {
                "a": i,
                "b": j,
                "interaction": _short(float(grids["interaction"][i, j])),
                "rate": _short(float(grids["rate"][i, j])),
            }
            if observed is not None:
                d, c = observed[0][i, j], observed[1][i, j]
                cell["records"] = _short(float(d))
                cell["observed"] = _short(float(c / d)) if d > 0 else None
            else:
                cell["records"] = _short(float(grids["share"][i, j]) * model.rows)
            cells.append(cell)
    return {
        "pair": term.name,
        "features": list(term.features),
        "spread": _short(term.spread),
        "first": {str(i): _clipped(names[0][i]) for i in kept[0]},
        "second": {str(j): _clipped(names[1][j]) for j in kept[1]},
        "left_out": [shape[k] - len(kept[k]) for k in (0, 1)],
        "cells": cells,
    }


def _observed(model: Model, term: Term, tables: AggregatedData | None) -> tuple[Floats, Floats] | None:
    if tables is None or term.features not in tables.tables:
        return None
    table = tables.tables[term.features]
    if not table.cells.apart:
        return None
    label = tables.label_index(model.label.name)
    table = table.over(DenseCells(shape_of(term.features, tables.schema)))
    return np.asarray(table.counts, float), np.asarray(table.sums[label], float)


def _clipped(text: str) -> str:
    """As much of a value's text as a page shows."""
    return text[:_TEXT]


def _short(value: float) -> float | None:
    """Five digits: a picture shows no more. What is no number is None."""
    return float(f"{value:.5g}") if np.isfinite(value) else None
