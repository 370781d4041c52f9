"""Records and tables as no one should write them, in files of every kind."""

from __future__ import annotations

import gzip
import io
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

_TEXTS = (
    "", " ", "NA", "NULL", "nan", "0", "0.0", "-0", "007", "1e400", "9" * 400, "1_000", "true", "TRUE",
    "é", "\u202e",
    "\0", "a\nb", 'q"uote', "a,b", "\ufeff", "x" * 5000, "(missing)", "(other)", "=1+1", "\x1b[31m",
    "2024-01-31",
    "2024-01-31 12:00:00", "inf", "-inf", "∞",
)  # fmt: skip
_NAMES = (
    "x1",
    "x2",
    "x1 ",
    "",
    "count",
    "n",
    "y",
    "a*b",
    "tab\tle",
    "é",
    "feature_1",
    "value_1",
    "grouping_id",
    "table",
)


def write_input(folder: Path, rng: random.Random) -> str:
    """Write one odd input, and give its name."""
    way = rng.choice([_bytes, _mangled_csv, _odd_csv, _odd_csv, _odd_csv, _odd_columns, _odd_columns])
    return way(folder, rng)


def _bytes(folder: Path, rng: random.Random) -> str:
    name = rng.choice(["in.csv", "in.parquet", "in.arrow", "in.csv.gz", "in.tsv", "in.csv.zst"])
    heads = [b"", b"PAR1", b"ARROW1\0\0", b"\x1f\x8b\x08", b"\xff\xfe", b"x1,y\n", b"\xef\xbb\xbfx1,x2,y\n"]
    (folder / name).write_bytes(rng.choice(heads) + rng.randbytes(rng.choice([0, 10, 1000])))
    return name


def _lines(rng: random.Random, odd: float) -> list[list[str]]:
    n = rng.choice([0, 1, 2, 30, 30, 200])
    plain = [["u", "v", "w"], ["1", "2", "3", "4"], ["0", "1"]]
    rows = []
    for _ in range(n):
        rows.append([rng.choice(_TEXTS) if rng.random() < odd else rng.choice(values) for values in plain])
    return rows


def _mangled_csv(folder: Path, rng: random.Random) -> str:
    """Good text with some bytes of it lost or changed."""
    text = "x1,x2,y\n" + "".join(",".join(row) + "\n" for row in _lines(rng, 0.0))
    data = bytearray(text.encode())
    for _ in range(rng.choice([1, 2, 10])):
        if data:
            at = rng.randrange(len(data))
            data[at : at + rng.choice([0, 1, 1, 5])] = rng.choice(
                [b"", b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"9"]
            )
    name = rng.choice(["in.csv", "in.csv.gz"])
    whole = gzip.compress(bytes(data)) if name.endswith("gz") else bytes(data)
    (folder / name).write_bytes(whole[: rng.choice([len(whole), len(whole), max(1, len(whole) // 2)])])
    return name


def _odd_csv(folder: Path, rng: random.Random) -> str:
    """Well-formed text of odd names and values."""
    header = ["x1", "x2", "y"]
    if rng.random() < 0.5:
        header[rng.randrange(3)] = rng.choice(_NAMES)
    rows = _lines(rng, rng.choice([0.02, 0.3]))
    out = io.StringIO()
    quoted = [[f'"{v.replace(chr(34), chr(34) * 2)}"' for v in row] for row in [header, *rows]]
    separator = rng.choice([",", ",", ";", "\t"])
    out.write("\n".join(separator.join(row) for row in quoted) + "\n")
    encoding = rng.choice(["utf-8"] * 6 + ["utf-16", "latin-1"])
    (folder / "in.csv").write_bytes(out.getvalue().encode(encoding, "replace"))
    return "in.csv"


def _odd_columns(folder: Path, rng: random.Random) -> str:
    """Columns of any type that Arrow has."""
    n = rng.choice([0, 1, 40])
    numbers = [rng.randrange(5) for _ in range(n)]
    makers: list[Callable[[], Any]] = [
        lambda: pa.array(numbers, pa.int8()),
        lambda: pa.array(numbers, pa.uint64()),
        lambda: pa.array([2**64 - 1 - v for v in numbers], pa.uint64()),
        lambda: pa.array([float(v) for v in numbers]),
        lambda: pa.array([[float("nan"), float("inf"), 1e308, -0.0, 5e-324][v] for v in numbers]),
        lambda: pa.array([None] * n, pa.float32()),
        lambda: pa.nulls(n),
        lambda: pa.array([str(v) for v in numbers], pa.string_view()),
        lambda: pa.array([str(v) for v in numbers], pa.large_string()),
        lambda: pa.array([str(v) for v in numbers]).dictionary_encode(),
        lambda: pa.array([str(v).encode() for v in numbers]),
        lambda: pa.array([[v] for v in numbers]),
        lambda: pa.array([{"a": v} for v in numbers], pa.struct([("a", pa.int64())])),
        lambda: pa.array([uuid.UUID(int=v).bytes for v in numbers], pa.uuid()),
        lambda: pa.array(['{"a": 1}' for _ in numbers], pa.json_(pa.string())),
        lambda: pa.array(numbers, pa.int64()).cast(pa.timestamp("ns")),
        lambda: pa.array(numbers, pa.int32()).cast(pa.date32()),
        lambda: pa.array(numbers, pa.int64()).cast(pa.duration("s")),
        lambda: pa.array(numbers, pa.int32()).cast(pa.time32("s")),
        lambda: pa.array(numbers).cast(pa.decimal128(30, 3)),
        lambda: pa.array([v > 1 for v in numbers]),
        lambda: pa.array([rng.choice(_TEXTS) for _ in numbers]),
    ]
    columns = {"x1": rng.choice(makers)(), rng.choice(["x2", "x3"]): rng.choice(makers)()}
    columns["y"] = rng.choice(makers)() if rng.random() < 0.3 else pa.array([v % 2 for v in numbers])
    table = pa.table(columns)
    name = rng.choice(["in.parquet", "in.arrow", "in.csv"])
    try:
        _write(table, folder / name)
    except (pa.ArrowException, TypeError):  # what a format cannot hold
        _write(pa.table({"x1": numbers, "y": [v % 2 for v in numbers]}), folder / name)
    return name


def _write(table: Any, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        pacsv.write_csv(table, path)
