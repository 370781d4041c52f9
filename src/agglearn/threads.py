"""Threads for kernels that let go of the GIL. Their number changes the time, never the result."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agglearn.errors import InputError


def thread_count(threads: int | None = None) -> int:
    """As many threads as asked for, or one for each core this process may use."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise InputError(f"threads {threads} must be at least 1")
    return threads


def in_threads(threads: int, work: Callable[[int], Any]) -> list[Any]:
    """Run ``work(0)``, …, ``work(threads - 1)`` side by side."""
    if threads == 1:
        return [work(0)]
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(work, number) for number in range(1, threads)]
        return [work(0), *(other.result() for other in others)]
