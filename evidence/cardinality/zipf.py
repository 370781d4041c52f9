"""8,000 records of 39 features with 2 to 5,000 values that follow Zipf's law, from a CSV file to a model by
the two commands a user gives, start-up included. To hold: under a minute.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agglearn.tables.format import load
from evidence.cardinality.records import LongLog, zipf_cards
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import machine

TITLE = "Few records of many long features"
_COMMAND = str(Path(sys.executable).with_name("agglearn"))


@dataclass(frozen=True)
class Sizes:
    """Records, features, and the most values."""

    rows: int
    features: int
    most: int


FULL, QUICK = Sizes(8_000, 39, 5_000), Sizes(2_000, 10, 500)


def cells(config: Sizes) -> list[Cell]:
    """One run."""
    settings = {"rows": config.rows, "features": config.features, "most": config.most}
    return [Cell("csv-to-model", settings, partial(measure, config), again=True)]


def measure(config: Sizes) -> Value:
    """Seconds of both commands, the second time they are run: the first compiles, once for a machine."""
    log = LongLog(zipf_cards(config.features, config.most), power=1.05)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        log.write(here / "train.csv", config.rows, 1)
        log.write(here / "test.csv", config.rows, 2)
        for turn in ("warm", "timed"):
            tables, model = str(here / f"{turn}.agg"), str(here / f"{turn}.model")
            seconds = [
                _run(
                    "aggregate",
                    str(here / "train.csv"),
                    "--label",
                    "click",
                    "--categorical",
                    "*",
                    "-o",
                    tables,
                ),
                _run("fit", tables, "-o", model),
            ]
        data = load(here / "timed.agg")
        return {
            "machine": machine(),
            "aggregate": seconds[0],
            "fit": seconds[1],
            "tables": len(data.tables),
            "cells": data.n_cells,
            "sparse": sum(bool(t.cells.tied) for t in data.tables.values()),
        }


def _run(*words: str) -> float:
    began = time.perf_counter()
    subprocess.run([_COMMAND, *words], check=True, capture_output=True)
    return time.perf_counter() - began


def section(results: Results, images: Path) -> list[str]:
    """Seconds of each command."""
    rows = [
        [
            f"{found['tables']:,} ({found['sparse']:,} sparse)",
            f"{found['cells']:,}",
            f"{found['aggregate']:.1f}",
            f"{found['fit']:.1f}",
            f"{found['aggregate'] + found['fit']:.1f}",
        ]
        for found in results.values()
    ]
    return table(["tables", "cells", "aggregate, s", "fit, s", "together, s"], rows)
