"""How tables are told in a line: how many they are, and of how much."""

from __future__ import annotations

from agglearn.report.document import Document
from agglearn.tables.data import AggregatedData


def tables_document(data: AggregatedData, path: str) -> Document:
    """The tables that were written to a path."""
    size = f"{len(data.tables):,} tables, {data.n_cells:,} cells"
    return Document(
        title=f"{path}: {data.rows:,.0f} records in {size}",
        data={
            "path": path,
            "tables": len(data.tables),
            "cells": data.n_cells,
            "rows": data.rows,
            "positives": dict(zip(data.schema.label_names, data.positives, strict=True)),
            **({"parts": [part.to_json() for part in data.parts]} if len(data.parts) > 1 else {}),
        },
    )
