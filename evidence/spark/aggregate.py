"""Records of the ads log to all pair tables, schema and all: by one machine with two threads, by Spark from
the files (`spark:PATH`, read by the tasks), and by Spark from a DataFrame of the same files (read by Java and
handed over), on the same two cores, each warm and in turns. To hold: from the files at most 1.5 × the local
time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import agglearn
from agglearn.datasets import AdsLog
from agglearn.spark.session import open_session
from agglearn.tables.data import AggregatedData
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import in_turns, machine

TITLE = "Aggregation"
_CORES, _MEMORY = 2, 2048
_CHUNK = 500_000
_TARGET = 1.5
_WAYS = {"local": "one machine", "files": "Spark, from the files", "frame": "Spark, from a DataFrame"}


@dataclass(frozen=True)
class Sizes:
    """Records, the largest feature's modalities, and how many times each way is timed."""

    rows: int
    modalities: int
    repeat: int


FULL, QUICK = Sizes(20_000_000, 1000, 3), Sizes(60_000, 50, 1)


def cells(config: Sizes) -> list[Cell]:
    """One cell: ratios are of one run."""
    return [Cell("aggregate", asdict(config), partial(measure, config), again=True)]


def measure(config: Sizes) -> Value:
    """Seconds of each way, which give the same tables."""
    session = open_session(f"local-cluster[{_CORES},1,{_MEMORY}]", {"spark.driver.maxResultSize": "0"})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        _write(AdsLog(max_modalities=config.modalities, seed=1), config.rows, path)
        ways: dict[str, Callable[[], Any]] = {
            "local": lambda: str(path),
            "files": lambda: f"spark:{path}",
            "frame": lambda: session.read.parquet(str(path)),
        }
        found: dict[str, AggregatedData] = {}

        def work(way: str) -> None:
            found[way] = agglearn.aggregate(ways[way](), "click")

        seconds = in_turns([partial(work, way) for way in ways], config.repeat)
    assert found["files"].equals(found["local"])
    assert found["frame"].equals(found["local"])
    return {
        "machine": machine(),
        "load": os.getloadavg()[0],
        "tables": len(found["local"].tables),
        "cells": sum(t.n_cells for t in found["local"].tables.values()),
        "seconds": dict(zip(ways, seconds, strict=True)),
    }


def _write(log: AdsLog, rows: int, path: Path) -> None:
    writer = None
    for start in range(0, rows, _CHUNK):
        chunk = log.to_table(*log.sample(min(_CHUNK, rows - start), seed=start))
        writer = writer or pq.ParquetWriter(path, chunk.schema)
        writer.write_table(chunk)
    assert writer is not None
    writer.close()


def section(results: Results, images: Path) -> list[str]:
    """A row for each way, beside the local one."""
    if "aggregate" not in results:
        return []
    found, settings = results["aggregate"], results.settings("aggregate")
    seconds = found["seconds"]
    ratio = {way: seconds[way] / seconds["local"] for way in seconds}
    rows = [[told, f"{seconds[way]:.1f}", f"{ratio[way]:.2f}"] for way, told in _WAYS.items()]
    met = "met" if ratio["files"] <= _TARGET else "not met"
    return [
        f"{settings['rows']:,} records, {found['tables']} tables, {found['cells']:,} cells; the load of the "
        f"machine at the end was {found['load']:.1f}. At most {_TARGET:g} × local from the files: {met}.",
        "",
        *table(["", "seconds", "/ local"], rows),
    ]
