"""Folders on any file system that Spark knows, by way of its own: hdfs://, s3a://, file:// and the rest.

What is put there arrives under a name of its own and is then given the right one, so that a folder of that
name is whole wherever renaming is one step; elsewhere its checksums tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agglearn.errors import StoreError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://?")
_UNFINISHED = ".unfinished-"


def is_uri(address: str) -> bool:
    """Whether an address names its file system."""
    return _SCHEME.match(address) is not None


class Storage:
    """A folder of Spark's file systems.

    Parameters
    ----------
    session
        The Spark session, whose settings say how file systems are reached.
    uri
        The folder.
    """

    def __init__(self, session: Any, uri: str) -> None:
        self.session, self.uri = session, uri.rstrip("/")
        context = session.sparkContext
        self._path_class = context._jvm.org.apache.hadoop.fs.Path
        with self._told():
            self._system = self._path().getFileSystem(context._jsc.hadoopConfiguration())

    def child(self, name: str) -> Storage:
        """A folder in it."""
        return Storage(self.session, f"{self.uri}/{name}")

    def exists(self, name: str = "") -> bool:
        """Whether it is there, or what has this name in it."""
        with self._told():
            return bool(self._system.exists(self._path(name)))

    def names(self) -> list[str]:
        """What is in it; nothing where it is not there."""
        with self._told():
            if not self._system.exists(self._path()):
                return []
            found = [status.getPath().getName() for status in self._system.listStatus(self._path())]
        return sorted(str(name) for name in found if not name.startswith(_UNFINISHED))

    def make(self) -> None:
        """Make it, if it is not there."""
        with self._told():
            self._system.mkdirs(self._path())

    def remove(self, name: str = "") -> None:
        """Remove it, or what has this name in it, if it is there."""
        with self._told():
            self._system.delete(self._path(name), True)

    def put(self, folder: Path) -> None:
        """Copy a folder of this machine, in the place of one of the same name."""
        unfinished = f"{_UNFINISHED}{folder.name}"
        with self._told():
            self._system.delete(self._path(unfinished), True)
            self._system.copyFromLocalFile(
                False, True, self._path_class(folder.as_uri()), self._path(unfinished)
            )
            self._system.delete(self._path(folder.name), True)
            if not self._system.rename(self._path(unfinished), self._path(folder.name)):
                raise StoreError(f"{self.uri}/{folder.name}: cannot write there")

    def fetch(self, name: str, to: Path) -> None:
        """Copy what has this name to a folder of this machine."""
        with self._told():
            self._system.copyToLocalFile(
                False, self._path(name), self._path_class((to / name).as_uri()), True
            )

    def _path(self, name: str = "") -> Any:
        return self._path_class(f"{self.uri}/{name}" if name else self.uri)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what Java raises into a line that names the folder."""
        try:
            yield
        except Exception as error:
            if not type(error).__module__.startswith("py4j"):
                raise
            said = str(getattr(error, "java_exception", error)).splitlines()[0]
            raise StoreError(f"{self.uri}: Spark cannot use this folder ({said[:200]})") from None
