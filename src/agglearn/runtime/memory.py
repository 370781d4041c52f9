"""A limit on memory, asked before anything large is made.

The limit is half of what can still be had (of the machine, the container, or below ``ulimit -v``), or what
``AGGLEARN_MEMORY`` says (``8GiB``, ``500MB``).
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from agglearn.errors import InputError, TooLargeError

_PLENTY = 1 << 60
_LEAST = 1 << 26
_SIZE = r"\s*(\d{1,20}(?:\.\d{0,9})?(?:e\d{1,2})?)\s*([KMGT]?)(i?B)?\s*"


def limit() -> int:
    """Bytes that one request may take."""
    setting = os.environ.get("AGGLEARN_MEMORY")
    if setting:
        return parse_size(setting)
    return max(_free() // 2, _LEAST)


def _free() -> int:
    """Bytes that can still be had: of the machine, of the container, of the process."""
    return max(min(_of_machine(), _of_container(), _of_process()), 0)


def _of_container() -> int:
    """Bytes left below the limit of a control group."""
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        allowed = (group / "memory.max").read_text().strip()
        return int(allowed) - int((group / "memory.current").read_text())
    return _PLENTY


def _of_process() -> int:
    """Bytes left below the limit of the address space (``ulimit -v``)."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
        if allowed != resource.RLIM_INFINITY:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            return allowed - taken
    return _PLENTY


def _of_machine() -> int:
    """Bytes the machine can still give, counting what it only keeps as a cache."""
    with contextlib.suppress(OSError):
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        if found:
            return int(found[1]) << 10
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 8 << 30


def parse_size(text: str) -> int:
    """Bytes of a size such as ``8GiB``, ``500MB`` (a million each; ``M`` and ``MiB`` are 2^20) or ``1e9``."""
    match = re.fullmatch(_SIZE, text, re.IGNORECASE)
    if not match:
        raise InputError(f"AGGLEARN_MEMORY={text!r} is not a size: write one like 8GiB or 500MB")
    power = " KMGT".index(match[2].upper() or " ")
    base = 1000 if (match[3] or "").upper() == "B" else 1024
    return int(float(match[1]) * base**power)


def size(n_bytes: float) -> str:
    """A number of bytes as a person writes it."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "bytes" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} TiB"


def require(n_bytes: int, what: str, advice: str) -> None:
    """Refuse a request that would not fit, saying what it would need."""
    allowed = limit()
    if n_bytes > allowed:
        raise TooLargeError(
            f"{what} would need {size(n_bytes)} of memory, and {size(allowed)} may be used: {advice} "
            "(AGGLEARN_MEMORY raises the limit)"
        )


def require_addresses(n_bytes: int, what: str) -> None:
    """Refuse what sets so many addresses aside, most of them never used, where ``ulimit -v`` leaves fewer."""
    left = _of_process()
    if n_bytes > left:
        raise TooLargeError(
            f"{what} sets {size(n_bytes)} of addresses aside, and the limit of this process leaves "
            f"{size(max(left, 0))}: raise it with ulimit -v"
        )
