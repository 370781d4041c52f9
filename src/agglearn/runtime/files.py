"""Safe files: a folder with a manifest and checksummed files, written whole or not at all.

A folder is prepared under a temporary name beside its target, synced, and renamed: a writer that is killed
leaves the old one or the new one, which may have to be put back from where it stepped aside. Every file's
SHA-256 stands in the manifest, and the manifest carries its own, so a truncated or edited file is
noticed. Reading parses JSON, Arrow and Parquet and runs no code.
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from agglearn.errors import AgglearnError, InputError, StoreError

MANIFEST = "manifest.json"


@contextlib.contextmanager
def new_folder(target: Path, format_name: str) -> Iterator[Path]:
    """Give a temporary folder to fill, and put it in the place of ``target`` if all went well."""
    target = Path(os.path.realpath(target))  # a link is written through
    refuse_foreign(target, format_name)
    work = target.parent / f".{target.name}.{os.getpid()}.tmp"
    with _writing(target):
        put_back(target)
        _sweep_leftovers(target)
        work.mkdir(parents=True)
        try:
            yield work
            for path in sorted(work.rglob("*")):
                _sync(path)
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


def _sweep_leftovers(target: Path) -> None:
    """Remove what a killed writer of the same target left behind."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        pid = re.search(r"\.(\d+)\.tmp$", path.name)
        if pid and not _alive(int(pid[1])):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


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
    # A folder cannot be renamed over another: the old one steps aside first.
    old = target.parent / f".{target.name}.old.{os.getpid()}.tmp"
    target.rename(old)
    work.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def put_back(target: Path) -> None:
    """Put a folder back that stepped aside for a new one, if its writer was killed at that very moment."""
    target = Path(os.path.realpath(target))
    if target.exists():
        return
    for old in target.parent.glob(f".{glob.escape(target.name)}.old.*.tmp"):
        pid = re.search(r"\.(\d+)\.tmp$", old.name)
        if pid and not _alive(int(pid[1])):
            with contextlib.suppress(OSError):  # another reader may have been quicker
                old.rename(target)
            return


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Give a temporary file name to write, and put it in the place of ``target`` if all went well."""
    target = Path(os.path.realpath(target))
    work = target.parent / f".{target.name}.{os.getpid()}.tmp"
    with _writing(target):
        if target.is_dir():
            raise StoreError(f"{target} is a folder: name a file")
        _sweep_leftovers(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield work
            _sync(work)
            os.replace(work, target)
        finally:
            with contextlib.suppress(OSError):
                work.unlink()


def write_text(target: Path, text: str) -> None:
    """Write a text file atomically."""
    with new_file(target) as work:
        work.write_text(text, encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise StoreError(f"{path} is not JSON: it is damaged or not one of ours") from None
    if not isinstance(document, dict):
        raise StoreError(f"{path} is not a JSON object: it is damaged or not one of ours")
    return document


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
    pq.write_table(table, path, compression="zstd")
    return _digest(path.read_bytes())


def read_parquet(folder: Path, name: str, sha256: str) -> Any:
    """Read one Parquet file, verified by its checksum."""
    return pq.read_table(pa.BufferReader(_verified(folder / name, sha256)))


def _verified(path: Path, sha256: str) -> bytes:
    try:
        data = path.read_bytes()
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
        column = pa.table({key: pa.array(np.ascontiguousarray(array).reshape(-1))})
        with pa.ipc.new_file(str(path), column.schema) as writer:
            writer.write_table(column)
        entries[key] = {"file": path.name, "shape": array.shape, "sha256": _digest(path.read_bytes())}
    return entries


def read_arrays(folder: Path, entries: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays that :func:`write_arrays` wrote, verified by their checksums."""
    arrays = {}
    for key, entry in entries.items():
        data = _verified(folder / entry["file"], entry["sha256"])
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            column = reader.read_all().column(0).combine_chunks()
        arrays[key] = column.to_numpy(zero_copy_only=False).reshape(entry["shape"]).copy()
    return arrays


def output_path(text: str, suffix: str) -> Path:
    """The path of an output folder, which must end in its suffix so that nothing else is hit."""
    path = Path(text)
    if path.suffix != suffix:
        raise InputError(f"output {text!r} must end in {suffix}")
    return path
