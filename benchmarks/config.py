"""Sizes of the benchmarks: full for the page, quick to see in two minutes that nothing broke."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """How much of everything is measured."""

    repeat: int
    aggregate_rows: int
    stream_rows: tuple[int, ...]


FULL = Config(repeat=3, aggregate_rows=2_000_000, stream_rows=(5_000_000, 10_000_000, 20_000_000))
QUICK = Config(repeat=1, aggregate_rows=200_000, stream_rows=(200_000, 400_000))
