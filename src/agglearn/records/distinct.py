"""How many distinct texts there were, of more than are kept.

The hashes of distinct texts lie evenly between 0 and 1. If the k-th smallest of them is h, there were about
(k − 1) / h, with a relative error of 1/√k: 1.6 % here. Only the k smallest are held, and two such sets make
one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.runtime.random import scrambled

_HELD = 4096


@dataclass
class DistinctTexts:
    """The smallest hashes of the texts seen."""

    _least: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    def add(self, texts: Any) -> None:
        """See an Arrow array of texts, some of them perhaps again."""
        hashes = np.fromiter(map(crc32, texts.cast(pa.binary()).to_pylist()), np.uint64, len(texts))
        self._hold(scrambled(hashes))

    def merge(self, other: DistinctTexts) -> None:
        """See what another saw."""
        self._hold(other._least)

    def _hold(self, hashes: npt.NDArray[np.uint64]) -> None:
        self._least = np.unique(np.concatenate([self._least, hashes]))[:_HELD]

    def __len__(self) -> int:
        if len(self._least) < _HELD:
            return len(self._least)
        return round((_HELD - 1) / (float(self._least[-1]) / 2.0**64))
