"""Threads for kernels that let go of the GIL. Their number changes the time, never the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import Thread
from typing import Any

from agglearn.errors import InputError
from agglearn.runtime.options import check_bounds

_most: int | None = None


def limit_threads(most: int) -> None:
    """From now on, use at most so many threads where nobody says how many: this process has no more cores."""
    global _most
    _most = most


def thread_count(threads: int | None = None) -> int:
    """As many threads as asked for, or one for each core this process may use."""
    if threads is None:
        there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return there if _most is None else min(there, _most)
    if threads < 1:
        raise InputError(f"threads {threads} must be at least 1")
    check_bounds(threads=threads)
    return threads


def in_threads(threads: int, work: Callable[[int], Any]) -> list[Any]:
    """Run ``work(0)``, …, ``work(threads - 1)`` side by side."""
    if threads == 1:
        return [work(0)]
    others = [_pool(threads - 1).submit(work, number) for number in range(1, threads)]
    try:
        return [work(0), *(other.result() for other in others)]
    finally:
        wait(others)  # whatever ends this one early: nobody goes on with arrays that are no longer in use


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Do some work beside what is within, which can do without: that it failed is found by who needs it."""

    def quietly() -> None:
        with suppress(Exception):
            work()

    thread = Thread(target=quietly, name="agglearn-meanwhile")
    try:
        thread.start()
    except RuntimeError:  # the system gives no further thread
        yield
        return
    try:
        yield
    finally:
        thread.join()  # nothing goes on that a fork would cut short


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that are kept: making them anew costs more than a small piece of work."""
    return ThreadPoolExecutor(threads, thread_name_prefix="agglearn")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
