"""Seconds of the parts of an iteration, measured from outside: what the engine calls is wrapped.

The wrappers cost a few microseconds a call, and nothing is changed in the package.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agglearn.field import field
from agglearn.field.engines import local
from agglearn.train import loop as train

PARTS = ("weights", "sweep", "labels", "tally", "step")

_CALLS: tuple[tuple[str, Any, str], ...] = (
    ("weights", local, "prepare"),
    ("weights", local, "prepare_buckets"),
    ("weights", local, "prepare_listed"),
    ("sweep", local, "sweep"),
    ("labels", field, "score_codes"),
    ("labels", local, "redraw_labels"),
    ("tally", local, "tally"),
    ("step", train, "step"),
)


class Parts:
    """Collects when each part was under way, on any thread."""

    def __init__(self) -> None:
        self._spans: dict[str, list[tuple[float, float]]] = {part: [] for part in PARTS}

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, noting its spans."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._spans[part].append((began, time.perf_counter()))

        return wrapper

    def lap(self) -> dict[str, float]:
        """Wall seconds during which each part was under way since the last lap."""
        seconds = {part: _covered(spans) for part, spans in self._spans.items()}
        for spans in self._spans.values():
            spans.clear()
        return seconds


@contextmanager
def watching() -> Iterator[Parts]:
    """Wrap the functions for as long as the context lasts."""
    parts = Parts()
    originals = [(module, name, getattr(module, name)) for _, module, name in _CALLS]
    for (part, module, name), (_, _, function) in zip(_CALLS, originals, strict=True):
        setattr(module, name, parts.timed(part, function))
    try:
        yield parts
    finally:
        for module, name, function in originals:
            setattr(module, name, function)


def _covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of spans: workers of one part run side by side."""
    total, end = 0.0, float("-inf")
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, end))
        end = max(end, ended)
    return total
