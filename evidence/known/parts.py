"""Tables of four fifths of the training records, those records, and the fifth to judge by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from agglearn.tables.data import AggregatedData
from evidence.splits import HeldOut
from evidence.zoo import sets

NAMES = ("adult", "bank", "credit", "fars")


@dataclass(frozen=True, eq=False)
class Known:
    """What a user has, and what to judge by."""

    data: AggregatedData
    records: Any
    judged: HeldOut
    label: str

    def some(self, share: float, seed: int = 0) -> Any:
        """A share of the records at random, without their labels."""
        kept = self.records.drop_columns([self.label])
        if share == 1.0:
            return kept
        order = np.random.default_rng(seed).permutation(kept.num_rows)
        return kept.take(np.sort(order[: round(share * kept.num_rows)]))


@lru_cache(maxsize=1)
def known(name: str, rows: int | None) -> Known:
    """A data set in parts, at most so many records of it."""
    split = sets.split(name, 0, sets.Sizes(rows=rows))
    records = split.whole.filter(pa.array(~split.is_valid))
    data = split.aggregate(records, schema=split.schema)
    return Known(data, records, split.valid_records, split.label)
