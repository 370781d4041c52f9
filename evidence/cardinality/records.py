"""Simulated records whose features have many values, as common and as rare as those of real logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

_CHUNK = 500_000  # records made at a time
_BASE = -2.0  # log-odds of a record that nothing is known of


@dataclass(frozen=True)
class LongLog:
    """Records of features whose values follow Zipf's law, with effects of values and of some pairs.

    Each record belongs to one of some groups, which half of its features lean on: a feature's value is then
    the one of that rank in an order of the group's own.

    Attributes
    ----------
    cards
        Values of each feature.
    power
        Of Zipf's law.
    groups
        How many groups.
    seed
        Of what values do; records have seeds of their own.
    """

    cards: tuple[int, ...]
    power: float = 1.2
    groups: int = 50
    seed: int = 0

    @property
    def names(self) -> list[str]:
        return [f"f{k:02d}" for k in range(len(self.cards))]

    @cached_property
    def _laws(self) -> list[Floats]:
        laws = []
        for card in self.cards:
            share = 1 / np.arange(1, card + 1) ** self.power
            laws.append(np.cumsum(share / share.sum()))
        return laws

    @cached_property
    def _effects(self) -> list[Floats]:
        """Of each value; with as many features, each tells less."""
        rng = np.random.default_rng((self.seed, 1))
        size = 1.5 / np.sqrt(len(self.cards))
        return [rng.normal(0, size, card) for card in self.cards]

    def _of_pair(self, a: Codes, b: Codes, pair: int) -> Floats:
        """An effect of two values together, by a hash of both."""
        mixed = (a.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ (b.astype(np.uint64) << np.uint64(20))
        mixed = (mixed + np.uint64(pair)) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray((mixed >> np.uint64(40)).astype(np.float64) / 2**23 - 1)

    def draw(self, rows: int, seed: int) -> tuple[Codes, npt.NDArray[np.uint8]]:
        """Codes, a row for each feature, and labels."""
        rng = np.random.default_rng((self.seed, 2, seed))
        group = rng.integers(0, self.groups, rows)
        codes = np.empty((len(self.cards), rows), np.int32)
        odds = np.full(rows, _BASE)
        for f, card in enumerate(self.cards):
            rank = np.minimum(np.searchsorted(self._laws[f], rng.random(rows)), card - 1)
            leaning = rng.random(rows) < 0.5
            codes[f] = np.where(leaning, (rank + group * (card // self.groups + 1)) % card, rank)
            odds += self._effects[f][codes[f]]
        for pair, (f, g) in enumerate(zip(range(len(self.cards)), range(1, len(self.cards)), strict=False)):
            odds += 0.3 * self._of_pair(codes[f], codes[g], pair)
        return codes, (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(np.uint8)

    def tables(self, rows: int, seed: int) -> Iterator[Any]:
        """Arrow tables of some records at a time; values are integers."""
        for k, start in enumerate(range(0, rows, _CHUNK)):
            codes, y = self.draw(min(_CHUNK, rows - start), 1_000 * seed + k)
            yield pa.table([*map(pa.array, codes), pa.array(y)], names=[*self.names, "click"])

    def write(self, path: Path, rows: int, seed: int) -> None:
        """Records as a Parquet or CSV file."""
        if path.suffix == ".csv":
            pa_csv.write_csv(pa.concat_tables(self.tables(rows, seed)), path)
            return
        tables = self.tables(rows, seed)
        first = next(tables)
        with pq.ParquetWriter(path, first.schema) as writer:
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)


def zipf_cards(features: int, most: int) -> tuple[int, ...]:
    """So many features, from 2 values to the most, evenly spaced by their logarithm."""
    return tuple(int(card) for card in np.rint(np.geomspace(2, most, features)))
