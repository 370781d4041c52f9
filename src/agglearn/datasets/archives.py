"""Files read out of archives in memory; nothing is unpacked to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from agglearn.datasets.origins import Origin

MAX_BYTES = 128 * 2**20
"""No file here is as large: more is a wrong answer, or a zip bomb."""


def pick_from_zip(origin: Origin, archive: Path | IO[bytes], depth: int) -> dict[str, bytes]:
    """The files of ``origin`` in a zip or wheel, and in the zips within it down to ``depth``."""
    import zipfile

    with zipfile.ZipFile(archive) as opened:
        members = (
            (info.filename, lambda info=info: opened.read(info))
            for info in opened.infolist()
            if info.file_size <= MAX_BYTES
        )
        return _pick(origin, members, depth)


def pick_from_tar(origin: Origin, archive: Path, depth: int) -> dict[str, bytes]:
    """The files of ``origin`` in a tar, and in the zips within it down to ``depth``."""
    import tarfile

    with tarfile.open(archive) as opened:

        def read(member: tarfile.TarInfo) -> bytes:
            file = opened.extractfile(member)
            return b"" if file is None else file.read()

        members = (
            (member.name, lambda member=member: read(member))
            for member in opened
            if member.isfile() and member.size <= MAX_BYTES
        )
        return _pick(origin, members, depth)


def _pick(origin: Origin, members: Iterator[tuple[str, Callable[[], bytes]]], depth: int) -> dict[str, bytes]:
    """The files of ``origin`` among named members, by name and checksum."""
    import io

    wanted = {file.name: file for file in origin.files}
    found: dict[str, bytes] = {}
    for path, read in members:
        name = path.rsplit("/", 1)[-1]
        if name in wanted:
            content = read()
            if wanted[name].matches(content):
                found[name] = content
        elif name.endswith(".zip") and depth > 1:
            found |= pick_from_zip(origin, io.BytesIO(read()), depth - 1)
    return found
