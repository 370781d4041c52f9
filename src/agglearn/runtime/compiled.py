"""Kernels compiled by numba and kept for the next start, wherever there is room to keep them.

Numba keeps them beside the code or in the user's cache folder. In a container often neither can be written:
then they go to a temporary folder that is the user's alone, and if there is none, they are compiled anew.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numba

from agglearn.runtime.process import is_ours

_BLAS = "scipy.linalg.cython_blas"
_LOOKED_FOR_BY = "numba.np.arraymath"


class NoCacheWarning(UserWarning):
    """Compiled kernels cannot be kept where they usually are."""


def njit(**options: Any) -> Callable[[Any], Any]:
    """Compile a function, and keep what was compiled: as ``numba.njit(cache=True, …)``."""

    def compile_it(function: Any) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # there is no place that numba knows of and may write to
            if _temporary_cache() is None:
                return numba.njit(**options)(function)
            return numba.njit(cache=True, **options)(function)

    return compile_it


@cache
def _temporary_cache() -> Path | None:
    """A folder to keep kernels in, known to numba from now on; None if there is none to be had."""
    folder = Path(tempfile.gettempdir()) / f"agglearn-{os.getuid() if hasattr(os, 'getuid') else 'kernels'}"
    if not _own(folder):
        warnings.warn(
            "no folder for compiled kernels can be written, so each start compiles them anew: name one in "
            "NUMBA_CACHE_DIR",
            NoCacheWarning,
            stacklevel=2,
        )
        return None
    vars(numba.config)["CACHE_DIR"] = str(folder)
    warnings.warn(
        f"compiled kernels are kept in {folder}, since neither the installation nor a home can be written: "
        "name a lasting folder in NUMBA_CACHE_DIR",
        NoCacheWarning,
        stacklevel=2,
    )
    return folder


def _own(folder: Path) -> bool:
    """Whether the folder is there, is writable, and no one else can write to it: what is in it is run."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return False
    ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return stat.S_ISDIR(found.st_mode) and ours and not found.st_mode & 0o022


def _without_blas() -> None:
    """Keep numba from looking for BLAS, which no kernel of ours asks for (np.cov would).

    To look for it is to load scipy.linalg: a third of the time that the first kernel takes to load.
    """
    if _BLAS in sys.modules or _LOOKED_FOR_BY in sys.modules:
        return
    sys.modules[_BLAS] = None  # type: ignore[assignment]  # what is None cannot be imported
    try:
        with contextlib.suppress(ImportError):
            import_module(_LOOKED_FOR_BY)
    finally:
        del sys.modules[_BLAS]


if is_ours():
    _without_blas()
