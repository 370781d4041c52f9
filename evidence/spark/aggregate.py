"""Records of the ads log to all pair tables, schema and all: by one machine with two threads, by Spark from
the files (`spark:PATH`, or a DataFrame that is nothing but files: read by the tasks), and by Spark from
another DataFrame (here of the same records behind a filter that all pass: read by Java and handed over, once
for each of the two passes), on the same two cores, each warm and in turns. *Handing over* is such a frame
read twice by tasks that do nothing with it. To hold: from the files at most 1.5 × the local time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import agglearn
from agglearn.datasets import AdsLog
from agglearn.tables.data import AggregatedData
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.spark.cluster import CORES, open_cluster
from evidence.timing import in_turns, machine

TITLE = "Aggregation"
_MEMORY = 2048
_CHUNK = 500_000
_TARGET = 1.5
_WAYS = {
    "local": "one machine",
    "files": "Spark, from the files",
    "frame": "Spark, from a DataFrame that is more than files",
    "handing over": "of it, handing over",
}


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
    session = open_cluster(__name__, _MEMORY, "4g")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        _write(AdsLog(max_modalities=config.modalities, seed=1), config.rows, path)
        ways: dict[str, Callable[[], Any]] = {
            "local": lambda: str(path),
            "files": lambda: f"spark:{path}",
            "frame": lambda: session.read.parquet(str(path)).filter("click >= 0"),
        }
        found: dict[str, AggregatedData] = {}

        def work(way: str) -> None:
            found[way] = agglearn.aggregate(ways[way](), "click")

        def hand_over() -> None:
            for _ in range(2):
                frame = ways["frame"]().coalesce(CORES)
                frame.mapInArrow(_nothing, "nothing int").count()

        seconds = in_turns([*(partial(work, way) for way in ways), hand_over], config.repeat)
    assert found["files"].equals(found["local"])
    assert found["frame"].equals(found["local"])
    return {
        "machine": machine(),
        "load": os.getloadavg()[0],
        "tables": len(found["local"].tables),
        "cells": sum(t.n_cells for t in found["local"].tables.values()),
        "seconds": dict(zip([*ways, "handing over"], seconds, strict=True)),
    }


def _nothing(batches: Iterator[Any]) -> Iterator[Any]:
    """What a task does that looks at nothing."""
    for _ in batches:
        pass
    return iter(())


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
        "",
        *projection(results),
    ]


def projection(results: Results) -> list[str]:
    """Minutes that 10⁹ records of 100 features take on more and more machines, from the rates measured."""
    found, settings = results["aggregate"], results.settings("aggregate")
    records, tables, cells, cores = 1e9, 100 * 99 / 2, 1e8, 16
    rate = {way: CORES * found["seconds"][way] / (settings["rows"] * found["tables"]) for way in _WAYS}
    rows = []
    for machines in (20, 50, 200):
        minutes = [rate[way] * records * tables / (machines * cores) / 60 for way in ("files", "frame")]
        rows.append([f"{machines} machines", *(f"{value:,.1f}" for value in minutes)])
    return [
        "### What many records would take",
        "",
        f"10⁹ records of 100 features in all {tables:,.0f} pairs, {cells:.0e} cells, on machines of {cores} "
        f"cores: {rate['files'] * 1e9:.2f} ns a record, table and core from the files, "
        f"{rate['frame'] * 1e9:.2f} from a DataFrame, times records × tables / cores. Every task holds all "
        f"tables, {8 * cells / 1e9:.1f} GB, so that there is to be one a machine "
        f"(`spark.task.cpus={cores}`); they are summed once, in a tree.",
        "",
        *table(["", "from files, min", "from a DataFrame, min"], rows),
    ]
