"""How an aggregation is told: what became of each column, and what was counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agglearn.records.learn import LEFT_OUT, ColumnNote
from agglearn.report.document import Block, Column, Document, Grid, Note, Statement, Value, number
from agglearn.runtime.display import counted
from agglearn.schema.unknown import unknown_notes
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope


def aggregation_document(
    parts: Mapping[str, AggregatedData],
    notes: Sequence[ColumnNote],
    unknown: Mapping[str, int],
    beside: Sequence[Scope] = (),
    *,
    paths: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> Document:
    """What an aggregation gave; ``paths`` are where its parts were written, ``seconds`` what it took."""
    told = {
        part: {
            **({} if paths is None else {"path": paths[part]}),
            "rows": data.rows,
            "positives": dict(zip(data.schema.label_names, data.positives, strict=True)),
        }
        for part, data in parts.items()
    }
    first = next(iter(parts.values()))
    rows = sum(data.rows for data in parts.values())
    return Document(
        blocks=(
            *_columns(notes),
            *_beside(beside),
            *(_part((paths or {}).get(p, p), data) for p, data in parts.items()),
        ),
        warnings=(
            *(Note(f"{n.name} is left out: {n.why}", cause=LEFT_OUT) for n in notes if n.kind == LEFT_OUT),
            *unknown_notes(unknown, rows, "has no cell in its tables"),
        ),
        data={
            "tables": len(first.tables),
            "cells": first.n_cells,
            "rows": rows,
            "parts": told,
            "columns": [note.to_json() for note in notes],
            "beside": [list(scope) for scope in beside],
            "unknown": dict(unknown),
            **({} if seconds is None else {"seconds": seconds}),
        },
    )


def _columns(notes: Sequence[ColumnNote]) -> Iterator[Block]:
    if not notes:
        return
    columns = [Column("column"), Column("kind"), number("modalities"), Column("why")]
    rows: list[list[Value]] = [[n.name, n.kind, n.modalities, n.why] for n in notes]
    if any(note.missing for note in notes):
        columns.insert(3, number("missing"))
        for row, note in zip(rows, notes, strict=True):
            row.insert(3, note.missing or None)
    yield Grid(tuple(columns), tuple(map(tuple, rows)))


def _beside(scopes: Sequence[Scope]) -> Iterator[Statement]:
    if scopes:
        named = ", ".join(" × ".join(scope) for scope in scopes)
        yield Statement(f"beside all pairs {counted(len(scopes), 'triple')} that pairs cannot tell: {named}")


def _part(name: str, data: AggregatedData) -> Statement:
    shares = ", ".join(
        f"{positives / data.rows:.2%} {label}"
        for positives, label in zip(data.positives, data.schema.label_names, strict=True)
    )
    size = f"{len(data.tables):,} tables, {data.n_cells:,} cells"
    return Statement(f"{name}: {data.rows:,.0f} records ({shares}) in {size}")
