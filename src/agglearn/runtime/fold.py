"""Work over batches of records that can be divided: among processes, among machines.

A fold is made anew wherever there are batches to add to it. What it then holds comes in pieces, each under a
key, and pieces of one key add up; so a sum can be made where the records are, in any grouping, and only whole
pieces travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Key: TypeAlias = tuple[str | int, ...]


class Piece(Protocol):
    """What a fold holds under one key."""

    def merge(self, other: Any) -> None:
        """Add what the same kind of piece holds of later records."""


@dataclass
class Total:
    """A number, or an array of them."""

    value: Any

    def merge(self, other: Total) -> None:
        """Add another."""
        self.value = self.value + other.value


class Fold(Protocol):
    """What batches of records are added to."""

    def add(self, batch: Any, part: Any) -> None:
        """Add a batch; ``part`` is the part of a split that each record belongs to, None if there is one."""

    def pieces(self) -> Iterator[tuple[Key, Piece]]:
        """What was added, taken apart."""

    def take(self, pieces: Iterable[tuple[Key, Any]]) -> None:
        """Hold these pieces, each of another key: nothing was added before."""
