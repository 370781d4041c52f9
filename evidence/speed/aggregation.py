"""Records to tables: beside DuckDB and Polars in memory, from Parquet and on to disk, and at scale.

Each rival is timed in a series of its own after a warm-up, so a run never begins with memory that another
has just given back. In turns with the others each first run is slower, and ours, the shortest, loses most.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq

import agglearn
from agglearn.datasets import AdsLog
from evidence.speed.sizes import Sizes
from evidence.speed.targets import Result, at_least, at_most
from evidence.timing import THREADS, each_warm, in_process, in_turns, seconds

TITLE = "Aggregation"
SECTION = "aggregation"
_LIMIT = 2 << 30


def run(config: Sizes) -> list[Result]:
    """Measure all of it."""
    log = AdsLog(seed=1)
    with tempfile.TemporaryDirectory() as folder:
        return [
            *_in_memory(log, config),
            *_from_parquet(log, config, Path(folder)),
            *_to_disk(log, config, Path(folder)),
            *_at_scale(log, config, Path(folder)),
        ]


def _pairs(log: AdsLog) -> list[tuple[str, str]]:
    return list(combinations(log.names, 2))


def _duckdb_rivals(connection: Any, source: str, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """One GROUP BY a pair, and all pairs as grouping sets."""

    def one_by_one() -> None:
        for a, b in pairs:
            query = f"SELECT {a}, {b}, count(*), sum(click) FROM {source} GROUP BY {a}, {b}"
            connection.sql(query).to_arrow_table()

    def grouping_sets() -> None:
        names = ", ".join(dict.fromkeys(n for pair in pairs for n in pair))
        sets = ", ".join(f"({a}, {b})" for a, b in pairs)
        query = f"SELECT {names}, count(*), sum(click) FROM {source} GROUP BY GROUPING SETS ({sets})"
        connection.sql(query).to_arrow_table()

    return {"GROUP BY a pair": one_by_one, "GROUPING SETS": grouping_sets}


def _fastest(rivals: dict[str, Any]) -> tuple[str, Any]:
    """The rival's quicker way, found by trying each once."""
    times = {name: seconds(work, repeat=1) for name, work in rivals.items()}
    best = min(times, key=times.__getitem__)
    return best, rivals[best]


def _polars(frame: Any, pairs: list[tuple[str, str]]) -> Any:
    def all_pairs() -> None:
        lazy = frame.lazy()
        pl.collect_all([lazy.group_by([a, b]).agg(pl.len(), pl.col("click").sum()) for a, b in pairs])

    return all_pairs


def _in_memory(log: AdsLog, config: Sizes) -> list[Result]:
    codes, y = log.sample(config.aggregate_rows, seed=0)
    table = log.to_table(codes, y)
    schema = agglearn.aggregate(
        table.slice(0, 100_000), "click", categorical=["*"], min_modality_count=1
    ).schema
    connection = duckdb.connect(config={"threads": THREADS})
    connection.register("arrow_log", table)
    connection.execute("CREATE TABLE log AS SELECT * FROM arrow_log")
    way, rival = _fastest(_duckdb_rivals(connection, "log", _pairs(log)))
    ours, duck, polars = each_warm(
        [
            lambda: agglearn.aggregate(table, "click", schema=schema),
            rival,
            _polars(pl.from_arrow(table), _pairs(log)),
        ],
        config.repeat,
    )
    size = f"{len(_pairs(log))} pair tables of {config.aggregate_rows:,} × {len(log.names)} codes"
    return [
        at_least(
            SECTION, "codes in memory, DuckDB's time / ours", duck / ours, 5,
            setting=size, ours_s=ours, rival_s=duck, way=way,
        ),
        at_least(
            SECTION, "codes in memory, Polars's time / ours", polars / ours, 5,
            setting=size, ours_s=ours, rival_s=polars,
        ),
    ]  # fmt: skip


def _write(log: AdsLog, rows: int, path: Path) -> None:
    writer = None
    for codes, y in log.batches(rows, 500_000, seed=0):
        table = log.to_table(codes, y, strings=True)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _from_parquet(log: AdsLog, config: Sizes, folder: Path) -> list[Result]:
    path = folder / "log.parquet"
    _write(log, config.aggregate_rows, path)
    connection = duckdb.connect(config={"threads": THREADS})
    ways = _duckdb_rivals(connection, f"'{path}'", _pairs(log))

    def load_first() -> None:
        connection.execute(f"CREATE OR REPLACE TABLE loaded AS SELECT * FROM '{path}'")
        _duckdb_rivals(connection, "loaded", _pairs(log))["GROUP BY a pair"]()

    way, rival = _fastest({**ways, "load, then GROUP BY": load_first})
    ours, duck = each_warm([lambda: agglearn.aggregate(path, "click"), rival], config.repeat)
    size = f"{config.aggregate_rows:,} records, end to end"
    return [
        at_least(
            SECTION, "text from Parquet, DuckDB's time / ours", duck / ours, 2,
            setting=size, ours_s=ours, rival_s=duck, way=way,
        )
    ]  # fmt: skip


def _to_disk(log: AdsLog, config: Sizes, folder: Path) -> list[Result]:
    """Whole processes, from a file of integers to a file a table: ours, and DuckDB's GROUP BY a pair."""
    path, out = folder / "codes.parquet", folder / "tables"
    codes, y = log.sample(config.aggregate_rows, seed=0)
    pq.write_table(log.to_table(codes, y), path, compression="zstd")
    out.mkdir()
    rival = _RIVAL.format(threads=THREADS, path=path, out=out, pairs=_pairs(log))
    command = [str(Path(sys.executable).with_name("agglearn")), "aggregate", str(path), "--label", "click"]
    command += ["--tables", "pairs"]  # as the rival counts
    ours, duck = in_turns(
        [
            partial(_process, [*command, "-o", str(folder / "log.agg"), "--json"]),
            partial(_process, [sys.executable, "-c", rival]),
        ],
        config.repeat,
    )
    size = f"{config.aggregate_rows:,} × {len(log.names)} integers, start-up and writing included"
    return [
        at_least(
            SECTION, "from Parquet to tables on disk, DuckDB's time / ours", duck / ours, 3,
            setting=size, ours_s=ours, rival_s=duck,
        )
    ]  # fmt: skip


_RIVAL = """
import duckdb
connection = duckdb.connect(config={{"threads": {threads}}})
connection.execute("CREATE TABLE log AS SELECT * FROM '{path}'")
for a, b in {pairs}:
    query = f"SELECT {{a}}, {{b}}, count(*) AS count, sum(click) AS click FROM log GROUP BY {{a}}, {{b}}"
    connection.execute(f"COPY ({{query}}) TO '{out}/{{a}}-{{b}}.parquet' (FORMAT parquet, COMPRESSION zstd)")
"""


def _process(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)


def _at_scale(log: AdsLog, config: Sizes, folder: Path) -> list[Result]:
    measured = {}
    for rows in config.stream_rows:
        path = folder / f"log-{rows}.parquet"
        _write(log, rows, path)
        code = f"import agglearn\nbegan = time.perf_counter()\nagglearn.aggregate({str(path)!r}, 'click')"
        measured[rows] = in_process(code)
        path.unlink()
    few, many = min(measured), max(measured)
    detail = {f"{rows:,} records": m for rows, m in measured.items()}
    growth = (measured[many]["seconds"] / measured[few]["seconds"]) / (many / few)
    size = f"{many:,} records from Parquet"
    peak = measured[many]["peak_bytes"] / 2**30
    return [
        at_most(SECTION, "peak memory of a stream", peak, _LIMIT / 2**30, "GiB", setting=size, **detail),
        at_most(SECTION, f"time a record / that of {few:,} records", growth, 1.2, setting=size),
    ]
