"""Safe files: a folder with a manifest and checksummed files, written whole or not at all.

A folder is prepared under a temporary name beside its target, synced, and put in the target's place in one
step. Where the system cannot exchange two folders at once, the old one steps aside for a moment: should the
writer be killed in that moment, whoever comes next puts it back. Every file's SHA-256 stands in the manifest,
and the manifest carries its own, so a truncated or edited file is noticed. Reading parses JSON, Arrow and
Parquet and runs no code.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from agglearn.errors import AgglearnError, InputError, StoreError
from agglearn.runtime.arrays import from_numpy, to_numpy
from agglearn.runtime.declared import listed, mapping, whole
from agglearn.runtime.exchange import exchange
from agglearn.runtime.memory import require
from agglearn.runtime.unfinished import unfinished

MANIFEST = "manifest.json"
DAMAGED = (
    AgglearnError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    pa.ArrowException,
)
"""What reading a damaged folder may raise."""

_MOST_DIGITS = 19
_FEW, _SYNCED = 16, 16  # files that are synced one by one, and at a time where they are more
_SMALL = 1 << 16  # rows of a file that is put together in memory
_OURS = "agglearn."  # how the names of our formats begin
_ASIDE = "old"  # part of the name of a folder that has stepped aside


@contextlib.contextmanager
def new_folder(target: Path, format_name: str) -> Iterator[Path]:
    """Give a temporary folder to fill, and put it in the place of ``target`` if all went well."""
    target = Path(os.path.realpath(target))  # a link is written through
    refuse_foreign(target, format_name)
    work = target.parent / f".{target.name}.{os.getpid()}.tmp"
    with _writing(target), unfinished(work, lambda: put_back(target)):
        put_back(target)
        _sweep_leftovers(target)
        work.mkdir(parents=True)
        try:
            yield work
            _sync_all(sorted(work.rglob("*")))
            _sync(work)
            _replace(work, target)
            _sync(target.parent)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turn what the system refuses into a line that names the target."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{target}: cannot write there ({error.strerror or error})") from None


def refuse_foreign(target: Path, format_name: str) -> None:
    """Refuse to overwrite anything that is not a folder of this format, or to write where one cannot."""
    with _writing(target):
        if not target.exists():
            above = next(p for p in Path(os.path.abspath(target)).parents if p.exists())
            if not above.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if not os.access(above, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
    mine = False
    with contextlib.suppress(AgglearnError):
        mine = target.is_dir() and read_json(target / MANIFEST).get("format") == format_name
    if not mine:
        raise StoreError(f"{target} exists and is not ours to overwrite: remove it or name another output")


def _leftovers(target: Path) -> list[Path]:
    """What killed writers of the same target left behind."""
    found = []
    for path in sorted(target.parent.glob(f".{glob.escape(target.name)}.*.tmp")):
        pid = re.search(r"\.(\d+)\.tmp$", path.name)
        if pid and not _alive(int(pid[1])):
            found.append(path)
    return found


def _sweep_leftovers(target: Path) -> None:
    """Remove what killed writers left behind, once there is nothing to put back."""
    for path in _leftovers(target):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Put back, then remove, what killed writers of anything in a folder left behind."""
    for path in sorted(folder.glob(".*.tmp")):
        named = re.fullmatch(rf"\.(.+?)(?:\.{_ASIDE})?\.\d+\.tmp", path.name)
        if named:
            put_back(folder / named[1])
            _sweep_leftovers(folder / named[1])


def put_back(target: Path) -> None:
    """Put back a folder that had stepped aside when its writer was killed."""
    target = Path(os.path.realpath(target))
    if target.exists() or not target.parent.is_dir():
        return
    for path in _leftovers(target):
        if path.name.startswith(f".{target.name}.{_ASIDE}."):
            with contextlib.suppress(OSError):  # someone else has put it back
                path.rename(target)
            return


def _alive(pid: int) -> bool:
    """Whether another process of this number runs; a dead one may have had our own."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _replace(work: Path, target: Path) -> None:
    if not target.exists():
        work.rename(target)
        return
    if exchange(work, target):
        shutil.rmtree(work, ignore_errors=True)
        return
    # A folder cannot be renamed over another: the old one steps aside, and comes back if that fails.
    old = target.parent / f".{target.name}.{_ASIDE}.{os.getpid()}.tmp"
    target.rename(old)
    try:
        work.rename(target)
    except BaseException:
        old.rename(target)
        raise
    _sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync_all(paths: list[Path]) -> None:
    """Sync many files side by side: the disk writes down what comes together at once."""
    if len(paths) < _FEW:
        for path in paths:
            _sync(path)
        return
    with ThreadPoolExecutor(_SYNCED, thread_name_prefix="agglearn-sync") as pool:
        list(pool.map(_sync, paths))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds tables, a model or a checkpoint."""
    with contextlib.suppress(AgglearnError):
        return str(read_json(folder / MANIFEST).get("format")).startswith(_OURS)
    return False


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Give a temporary file name to write, and put it in the place of ``target`` if all went well."""
    target = Path(os.path.realpath(target))
    work = target.parent / f".{target.name}.{os.getpid()}.tmp"
    with _writing(target), unfinished(work):
        for above in target.parents:
            if _is_ours(above):
                raise StoreError(f"{target} would be a file within {above}: name another output")
        if target.is_dir():
            raise StoreError(f"{target} is a folder: name a file")
        if (
            target.exists() and not target.is_file()
        ):  # what stands there would be gone, /dev/null for everyone
            raise StoreError(f"{target} is a device or a pipe: name a file")
        _sweep_leftovers(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield work
            _sync(work)
            os.replace(work, target)
            _sync(target.parent)
        finally:
            with contextlib.suppress(OSError):
                work.unlink()


def write_text(target: Path, text: str) -> None:
    """Write a text file atomically."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        odd = text[error.start : error.end]
        raise InputError(f"{target}: {odd!r} is no character that a file can hold") from None
    with new_file(target) as work:
        work.write_bytes(data)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object: of numbers that any program holds, and of text that can be written again."""
    try:
        data = _read(path)
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror})") from None
    try:
        document = json.loads(data.decode("utf-8"), parse_int=_whole_number)
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise StoreError(f"{path} is not JSON: it is damaged or not one of ours") from None
    if not isinstance(document, dict):
        raise StoreError(f"{path} is not a JSON object: it is damaged or not one of ours")
    return document


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError("a number of too many digits")
    return int(digits)


def _read(path: Path) -> bytes:
    """The bytes of a file, which must be one: to open a pipe is to wait, and a device may never end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a file")
        require(2 * found.st_size, str(path), "give the machine more memory")
        return file.read()


def within(folder: Path, name: Any) -> Path:
    """The path of a file that a manifest names: in its folder, and no link that leads out of it."""
    if not isinstance(name, str) or "\0" in name:
        raise StoreError(f"{folder} names {name!r} as one of its files: it is damaged")
    parts = Path(name).parts
    path = folder / name
    outside = not parts or os.path.isabs(name) or ".." in parts
    if outside or os.path.realpath(path) != os.path.join(os.path.realpath(folder), *parts):
        raise StoreError(f"{folder} names {name!r}, which is not a file of its own: it is damaged")
    return path


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _seal(document: Mapping[str, Any]) -> str:
    body = {k: v for k, v in document.items() if k != "sha256"}
    return _digest(json.dumps(body, sort_keys=True, ensure_ascii=False).encode())


def write_sealed(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON object with its own checksum in it."""
    document = json.loads(json.dumps(document))  # tuples become lists before they are summed
    document["sha256"] = _seal(document)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a JSON object that :func:`write_sealed` wrote, verified by its checksum."""
    document = read_json(path)
    if document.get("sha256") != _seal(document):
        raise StoreError(f"{path} was changed after it was written: make it again")
    return document


def write_manifest(folder: Path, document: dict[str, Any]) -> None:
    """Write the manifest of a folder, with its own checksum."""
    write_sealed(folder / MANIFEST, document)


def read_manifest(folder: Path, format_name: str, version: int, oldest: int | None = None) -> dict[str, Any]:
    """Read and verify the manifest of a folder of one format, of this version or back to the oldest."""
    folder = Path(folder)
    put_back(folder)
    if not folder.exists():
        raise StoreError(f"{folder} does not exist")
    if not (folder / MANIFEST).is_file():
        raise StoreError(f"{folder} is not a folder of {format_name}: it has no {MANIFEST}")
    document = read_json(folder / MANIFEST)
    if document.get("format") != format_name:
        raise StoreError(f"{folder}: expected {format_name}, found {document.get('format')!r}")
    if document.get("version") not in range(version if oldest is None else oldest, version + 1):
        reads = version if oldest is None else f"{oldest} to {version}"
        raise StoreError(
            f"{folder}: format version {document.get('version')!r}, and this agglearn reads {reads}: "
            "use the agglearn that wrote it, or write it again"
        )
    if document.get("sha256") != _seal(document):
        raise StoreError(f"{folder / MANIFEST} was changed after it was written: make it again")
    return document


def write_parquet(folder: Path, name: str, table: Any) -> str:
    """Write one Parquet file and return its checksum."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    if table.num_rows <= _SMALL:
        # A dictionary of numbers is then about as long as they are; their least and greatest tell nothing.
        texts = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", use_dictionary=texts or False, write_statistics=False)
        data = sink.getvalue()
        path.write_bytes(data)
        return _digest(data)
    with open(path, "wb") as file:  # Arrow itself opens no name that is not in UTF-8
        pq.write_table(table, file, compression="zstd")
    return _digest(path.read_bytes())


def open_parquet(folder: Path, name: str, sha256: str, most_rows: int) -> Any:
    """Open one Parquet file of so many rows at most, verified by its checksum; nothing is unpacked yet."""
    # Not read_table: that loads pyarrow's data sets, and pandas with them, for a second.
    file = pq.ParquetFile(pa.BufferReader(_verified(folder, name, sha256)))
    rows = file.metadata.num_rows
    if rows > most_rows:  # a few bytes can stand for any number of them
        raise StoreError(
            f"{folder / name} has {rows:,} rows, and the table has {most_rows:,} cells: it is damaged"
        )
    return file


def read_parquet(file: Any) -> Any:
    """All rows of an open Parquet file."""
    # By this thread alone: a small command then has no others that may outlive it.
    return file.read(use_threads=False)


def _verified(folder: Path, name: Any, sha256: Any) -> bytes:
    path = within(folder, name)
    try:
        data = _read(path)
    except OSError:
        raise StoreError(f"{path} is missing: the folder is not whole") from None
    if _digest(data) != sha256:
        raise StoreError(f"{path} is damaged or was changed: its checksum is not the manifest's")
    return data


def write_arrays(folder: Path, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Write arrays as Arrow files and return what the manifest says of them."""
    entries = {}
    for key, array in arrays.items():
        path = folder / f"{name}-{key}.arrow"
        column = pa.table([from_numpy(array)], names=[key])
        with open(path, "wb") as file, pa.ipc.new_file(file, column.schema) as writer:
            writer.write_table(column)
        entries[key] = {"file": path.name, "shape": array.shape, "sha256": _digest(path.read_bytes())}
    return entries


def read_arrays(folder: Path, entries: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays that :func:`write_arrays` wrote, verified by their checksums."""
    arrays = {}
    for key, entry in mapping(entries, "arrays").items():
        data = _verified(folder, entry["file"], entry["sha256"])
        shape = tuple(whole(n, "a shape") for n in listed(entry["shape"], "a shape"))
        require(8 * prod(shape), f"array {key} of {folder}", "give the machine more memory")
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            column = reader.read_all().column(0)
        arrays[key] = to_numpy(column).reshape(shape).copy()
    return arrays


def output_path(text: str, suffix: str) -> Path:
    """The path of an output folder, which must end in its suffix so that nothing else is hit."""
    path = Path(text)
    if path.suffix != suffix:
        raise InputError(f"output {text!r} must end in {suffix}")
    return path
