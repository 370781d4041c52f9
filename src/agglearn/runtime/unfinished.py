"""What a process has begun to write and not finished, for when it is asked to end at once."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

_begun: dict[Path, Callable[[], None]] = {}


@contextlib.contextmanager
def unfinished(path: Path, then: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Within, a file or folder goes away should the process be ended; ``then`` is done after that."""
    _begun[path] = then
    try:
        yield
    finally:
        _begun.pop(path, None)


def abandon() -> None:
    """Remove all that is not finished; nothing may be written afterwards."""
    for path, then in list(_begun.items()):
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            then()
