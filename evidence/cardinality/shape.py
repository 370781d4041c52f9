"""The largest shape of the paper, an ads log of 19 features with up to 1,000 values, once as `aggregate`
makes it and once with a cell for every combination. To hold: the sweep of the first at most 1.2 times the
second's, its memory at most half, its NLLH on fresh records no lower by more than chance. Half of the memory
cannot be had here: five tables are sparse, with 0.46 of their 3.05 million cells listed, and the other 7.8
million are in tables of which more than a third was seen. And a log of which more than a third of the cells
are seen, where both are the same.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from agglearn.datasets import AdsLog
from agglearn.field.problem import make_problem
from agglearn.tables.cells import DenseCells
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load, save
from agglearn.tables.scopes import shape_of
from agglearn.train.loop import fit
from agglearn.train.settings import FitSettings, TrainingSettings
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.speed.parts import watching
from evidence.splits import ads_fresh, ads_tables
from evidence.timing import THREADS, in_process, machine

TITLE = "Beside dense tables"
_FRESH = 200_000  # records that NLLH is taken on


@dataclass(frozen=True)
class Sizes:
    """Of each log its most values, records and chains; iterations of a fit."""

    logs: tuple[tuple[str, int, int, int], ...]
    iterations: int


FULL = Sizes((("ads", 1_000, 4_000_000, 200_000), ("seen", 60, 2_000_000, 200_000)), 40)
QUICK = Sizes((("ads", 200, 50_000, 5_000), ("seen", 20, 50_000, 5_000)), 4)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each log and kind of tables."""
    return [
        Cell(
            f"{name}-{kind}",
            {"modalities": most, "rows": rows, "chains": chains, "iterations": config.iterations},
            partial(measure, most, rows, chains, config.iterations, kind),
            again=True,
        )
        for name, most, rows, chains in config.logs
        for kind in ("as-made", "dense")
    ]


def measure(most: int, rows: int, chains: int, iterations: int, kind: str) -> Value:
    """A fit in a process of its own, judged on fresh records."""
    log = AdsLog(max_modalities=most, seed=1)
    data = ads_tables(log, rows)
    if kind == "dense":
        data = dense(data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ads.agg"
        save(data, path)
        code = (
            "from evidence.cardinality.shape import measure_fit\n"
            f"result = measure_fit({str(path)!r}, {most}, {chains}, {iterations}, {kind == 'dense'})"
        )
        return {"machine": machine(), **in_process(code)}


def dense(data: AggregatedData) -> AggregatedData:
    """The same tables with a cell for every combination."""
    tables = {s: t.over(DenseCells(shape_of(s, data.schema))) for s, t in data.tables.items()}
    return replace(data, tables=tables)


def measure_fit(path: str, most: int, chains: int, iterations: int, all_cells: bool) -> dict[str, Any]:
    """Seconds of an iteration and of its parts, and the NLLH it ends with."""
    data = load(path)
    fresh = ads_fresh(AdsLog(max_modalities=most, seed=1), data, _FRESH)
    problem = make_problem(dense(data) if all_cells else data)
    settings = FitSettings(
        chains=chains, iterations=iterations, tolerance=0.0, training=TrainingSettings(growth=1)
    )
    fit(problem, replace(settings, chains=100, iterations=1), threads=THREADS)  # compile
    with watching() as parts:
        began = time.perf_counter()
        fitted = fit(problem, settings, threads=THREADS)
        elapsed = time.perf_counter() - began
        seconds = parts.lap()
    return {
        "cells": problem.layout.n_cells,
        "sparse": int(problem.layout.tied.size),
        "seconds": elapsed,
        "parts": {part: spent / iterations for part, spent in seconds.items()},
        "nllh": fresh.nllh(fitted.field),
    }


def section(results: Results, images: Path) -> list[str]:
    """A row for each."""
    rows = [
        [
            name.replace("-", ", "),
            f"{found['cells']:,}",
            f"{found['parts']['sweep']:.3f}",
            f"{found['seconds']:.1f}",
            f"{found['peak_bytes'] / 2**30:.2f}",
            f"{found['nllh']:.4f}",
        ]
        for name, found in results.items()
    ]
    return table(["", "cells", "sweep, s", "fit, s", "GiB", "NLLH"], rows)
