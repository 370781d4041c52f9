"""Two folders change places at once, where the system has a call for it."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_AT_FDCWD = -100
_SWAP = 2  # RENAME_EXCHANGE of Linux, and RENAME_SWAP of macOS
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


def exchange(a: Path, b: Path) -> bool:
    """Let two paths change places in one step; False where the system, or this file system, cannot."""
    first, second = os.fsencode(a), os.fsencode(b)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            failed = library.renamex_np(first, second, ctypes.c_uint(_SWAP))
        else:
            failed = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, ctypes.c_uint(_SWAP))
    except (AttributeError, OSError, TypeError):  # another system, or an old C library
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(b))
