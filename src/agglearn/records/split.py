"""Which part of a split a record belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.records.options import TRAIN, Split, TargetEncoding, check_split
from agglearn.records.sources import Source
from agglearn.runtime.random import scrambled

_ENCODING = "(encoding)"  # the part that target encodings are learnt on


def parse_split(text: str) -> dict[str, float]:
    """Read ``valid=0.2,test=0.2``."""
    shares: dict[str, float] = {}
    for term in text.split(","):
        name, _, share = term.strip().partition("=")
        if name in shares:
            raise InputError(f"split part {name!r} stands twice")
        try:
            shares[name] = float(share)
        except ValueError:
            raise InputError(f"split {term!r} is not NAME=SHARE, such as valid=0.2") from None
    check_split(shares)
    return shares


def assign(start: int, n: int, seed: int, shares: Mapping[str, float]) -> npt.NDArray[np.uint8]:
    """The part of each of ``n`` records from number ``start`` on: 0 for the rest, k for the k-th share.

    The answer depends on the seed and the record's number alone, never on how records are batched.
    """
    return _assign(np.arange(start, start + n, dtype=np.uint64), seed, shares)


def _assign(numbers: npt.NDArray[np.uint64], seed: int, shares: Mapping[str, float]) -> npt.NDArray[np.uint8]:
    with np.errstate(over="ignore"):  # the splitmix64 generator, as a function of (seed, record)
        z = numbers + np.uint64(seed % 2**64) * np.uint64(0x632BE59BD9B4E019)
        z = scrambled((z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    uniform = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    bounds = np.cumsum(list(shares.values()))
    part = np.searchsorted(bounds, uniform, side="right") + 1
    return np.where(part > len(bounds), 0, part).astype(np.uint8)


@dataclass(frozen=True)
class Parts:
    """Where records go: into the parts of a split, or into one that target encodings are learnt on.

    Attributes
    ----------
    split
        The parts that tables are made of.
    encoding
        The target encodings; where there are any, a part is held out for them and is in no table.
    """

    split: Split
    encoding: TargetEncoding

    def __post_init__(self) -> None:
        if self.encoding.columns and not 0 < self.encoding.share < 1 - sum(self.split.shares.values()):
            raise InputError(
                f"the share of records held out for target encoding ({self.encoding.share:g}) must be above "
                "0 and leave records to train on"
            )

    @cached_property
    def shares(self) -> dict[str, float]:
        """Shares of the records that go elsewhere than to the training tables."""
        held_out = {_ENCODING: self.encoding.share} if self.encoding.columns else {}
        return {**self.split.shares, **held_out}

    @property
    def names(self) -> list[str]:
        """The parts that tables are made of, in the order of their numbers."""
        return [TRAIN, *self.split.shares]

    @property
    def held_out(self) -> int:
        """The number of the part that target encodings are learnt on."""
        return len(self.names)

    def batches(
        self, source: Source, columns: Sequence[str]
    ) -> Iterator[tuple[Any, npt.NDArray[np.uint8] | None]]:
        """Batches of a source, each with the part that its records belong to; None if there is but one."""
        start = 0
        for batch in source.batches(list(dict.fromkeys(columns))):
            yield batch, assign(start, batch.num_rows, self.split.seed, self.shares) if self.shares else None
            start += batch.num_rows

    def of(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8] | None:
        """The parts that records of these numbers belong to; None if there is but one."""
        return _assign(numbers, self.split.seed, self.shares) if self.shares else None

    def describe(self, part: str) -> dict[str, Any] | None:
        """What the files of a part say of the split; None if there is but one."""
        return {"part": part, "seed": self.split.seed, "shares": self.shares} if self.shares else None
