"""Folders of tables and models, damaged in a byte, a file or a word; their checksums made to fit, or not."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    float("nan"),
    float("inf"),
    -(10**18),
    10**18,
    3 * 10**8,
    10**400,
    1e308,
    "",
    "x",
    "../../etc/passwd",
    "/etc/passwd",
    "/dev/zero",
    "\ud800",
    "\0",
    "é" * 300,
    [],
    [[]],
    {},
    {"a": {"b": [1, {}]}},
    ["a", "a"],
    [None],
    list(range(50)),
)
_NUMBERS = ("int64", "float64", "uint16", "float32", "bool", "int8")


def damage_folder(folder: Path, rng: random.Random) -> None:
    """Damage a folder in one way."""
    way = rng.choice([_flip, _cut, _remove, _replace, _manifest, _manifest, _manifest, _numbers, _array])
    forged = rng.random() < 0.7
    way(folder, rng)
    if forged:
        forge(folder)


def damage_document(path: Path, rng: random.Random) -> None:
    """Damage a file of JSON that has no checksum: in its bytes, or in what it says."""
    if rng.random() < 0.3:
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(bytes(data[: rng.choice([len(data), rng.randrange(len(data))])]))
    else:
        _put_odd(path, rng)


def forge(folder: Path) -> None:
    """Make every checksum fit again, where the manifest can still be read."""
    manifest = folder / "manifest.json"
    if not manifest.is_file():  # to open a pipe is to wait
        return
    try:
        document = json.loads(manifest.read_text("utf-8"))
        for entry in _entries(document):
            path = folder / entry["file"]
            if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        _seal(manifest, document)
        history = folder / "history.json"
        if history.is_file():
            _seal(history, json.loads(history.read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return


def _seal(path: Path, document: dict[str, Any]) -> None:
    body = {k: v for k, v in document.items() if k != "sha256"}
    text = json.dumps(body, sort_keys=True, ensure_ascii=False)
    document["sha256"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    path.write_bytes(json.dumps(document, ensure_ascii=True).encode())


def _entries(value: Any) -> list[dict[str, Any]]:
    """All that names a file, wherever it stands."""
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    found = [entry for part in inside for entry in _entries(part)]
    return [*found, value] if isinstance(value, dict) and isinstance(value.get("file"), str) else found


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def _flip(folder: Path, rng: random.Random) -> None:
    path = rng.choice(_files(folder))
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 8, 200])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(bytes(data))


def _cut(folder: Path, rng: random.Random) -> None:
    path = rng.choice(_files(folder))
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def _remove(folder: Path, rng: random.Random) -> None:
    rng.choice(_files(folder)).unlink()


def _replace(folder: Path, rng: random.Random) -> None:
    path = rng.choice(_files(folder))
    path.unlink()
    kind = rng.choice(["link", "folder", "pipe", "device", "other", "loop"])
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.write_bytes(rng.randbytes(100))


def _manifest(folder: Path, rng: random.Random) -> None:
    """Put something odd into one place of the manifest, or of the history."""
    path = folder / rng.choice(["manifest.json", "manifest.json", "history.json"])
    if not path.exists():
        path = folder / "manifest.json"
    _put_odd(path, rng)


def _put_odd(path: Path, rng: random.Random) -> None:
    document = json.loads(path.read_text("utf-8"))
    for _ in range(rng.choice([1, 1, 1, 3])):
        places = list(_places(document))
        holder, key = rng.choice(places)
        if rng.random() < 0.15:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD))  # which a later turn may reach into
    path.write_bytes(json.dumps(document, ensure_ascii=True).encode())


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    found = [(value, key) for key in keys if key != "sha256"]
    for key in keys:
        if isinstance(value[key], dict | list):
            found += _places(value[key])
    return found


def _numbers(folder: Path, rng: random.Random) -> None:
    """Odd numbers, kinds or rows in a table."""
    tables = sorted(folder.glob("tables/*.parquet"))
    if not tables:
        return _array(folder, rng)
    path = rng.choice(tables)
    table = pq.read_table(path)
    column = rng.randrange(table.num_columns)
    n = table.num_rows
    changes: list[Callable[[], Any]] = [
        lambda: pa.array([float("nan")] * n),
        lambda: pa.array([-(2**62)] * n),
        lambda: pa.array([None] * n, pa.int64()),
        lambda: pa.array(["x"] * n),
        lambda: pa.array([1e300] * n),
        lambda: pa.array([[1]] * n),
        lambda: pa.array([True] * n),
    ]
    change = rng.randrange(len(changes) + 3)
    if change < len(changes):
        table = table.set_column(column, table.column_names[column], changes[change]())
    elif change == len(changes):
        table = pa.concat_tables([table, table])
    elif change == len(changes) + 1:
        table = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
    else:
        constant = pa.repeat(pa.scalar(0, pa.int64()), 30_000_000)
        table = pa.table(dict.fromkeys(table.column_names, constant))
    pq.write_table(table, path)
    return None


def _array(folder: Path, rng: random.Random) -> None:
    """Other numbers, kinds or lengths in an array of a model."""
    arrays = sorted(folder.glob("*.arrow"))
    if not arrays:
        return
    path = rng.choice(arrays)
    with pa.ipc.open_file(path) as reader:
        column = reader.read_all().column(0)
    size = rng.choice([len(column), len(column), 0, 7, 10 * len(column)])
    values = np.full(size, rng.choice([0, 1, np.nan, np.inf, -1, 65_535, 1e300]))
    with np.errstate(all="ignore"):
        changed = values.astype(rng.choice(_NUMBERS))
    table = pa.table({"a": pa.array(changed)})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
