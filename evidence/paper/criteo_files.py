"""Where the two Criteo data sets are: the published files in the data home, or else simulated ones.

See ``docs/criteo.md`` for the published files, and :mod:`.criteo_simulated` for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agglearn.datasets import (
    CRITEO_ATTRIBUTION_FEATURES,
    adkdd_tables,
    data_home,
    load_adkdd_test,
    load_adkdd_train,
    open_criteo_attribution,
)
from agglearn.datasets.criteo import (
    ADKDD_MORE_FILE,
    ADKDD_PAIRS_FILE,
    ADKDD_RECORDS_FILE,
    ADKDD_SINGLES_FILE,
    ADKDD_TEST_FILES,
    ADKDD_TRAIN_FILE,
    ADKDD_TRAIN_FILES,
    ATTRIBUTION_FILE,
    adkdd_records,
)
from agglearn.datasets.sources import find_file
from agglearn.errors import InputError
from agglearn.records.sources import Source, open_source
from evidence.paper.criteo_simulated import (
    AdKddSizes,
    write_adkdd_records,
    write_adkdd_tables,
    write_attribution,
)

ATTRIBUTION_ROWS = 16_468_027
ADKDD_ROWS = 88_000_000
"""Records of the published files, as near as a share of them needs."""


@dataclass(frozen=True)
class AttributionSource:
    """Criteo Attribution as records that can be streamed again and again."""

    path: Path
    simulated: bool
    rows: int | None

    @property
    def columns(self) -> list[str]:
        return [*CRITEO_ATTRIBUTION_FEATURES, "click"]

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        for batch in open_criteo_attribution(self.path):
            yield batch.select(list(columns))


def published_attribution() -> Path | None:
    """The published file, if it is in the data home."""
    return find_file(_plain(ATTRIBUTION_FILE))


def attribution(rows: int, modalities: int) -> AttributionSource:
    """The published file, or else a simulated one of so many rows, written if it is not there."""
    published = published_attribution()
    if published is not None:
        return AttributionSource(published, False, ATTRIBUTION_ROWS)
    return AttributionSource(write_attribution(rows, modalities), True, rows)


@dataclass(frozen=True)
class AdKdd:
    """The AdKDD'21 files; ``folder`` has those of the challenge, None meaning the data home."""

    folder: Path | None
    simulated: bool
    records: list[Path]
    more: Path
    rows: int

    def source(self) -> Source:
        """The records that the tables count, to be streamed."""
        return open_source(self.records)

    def held_out(self) -> Source:
        """Others, which target encodings are learnt on."""
        return open_source(self.more)

    def tables(self) -> tuple[Path, Path]:
        """The noisy tables: pairs, then singles."""
        return adkdd_tables(self.folder)

    def valid(self) -> Any:
        """The challenge's few records with labels, which penalties are chosen on."""
        return load_adkdd_train(self.folder)

    def test(self) -> Any:
        """The challenge's test records."""
        return load_adkdd_test(self.folder)


def published_adkdd() -> AdKdd | None:
    """The published files, if they are in the data home: all of them, or it is an error that says which."""
    train = ADKDD_TRAIN_FILES if find_file(_plain(ADKDD_TRAIN_FILES[0])) else (ADKDD_TRAIN_FILE,)
    tables = (ADKDD_PAIRS_FILE, ADKDD_SINGLES_FILE)
    names = (ADKDD_RECORDS_FILE, ADKDD_MORE_FILE, *tables, *train, *ADKDD_TEST_FILES)
    missing = [name for name in names if not find_file(_plain(name))]
    if len(missing) == len(names):
        return None
    if missing:
        raise InputError(f"AdKDD'21: {', '.join(missing)} must be in {data_home()} beside the other files")
    records, more = adkdd_records()
    return AdKdd(None, False, [records], more, ADKDD_ROWS)


def adkdd(sizes: AdKddSizes, *, tables: bool = False) -> AdKdd:
    """The published files, or else simulated ones, those missing being written; the tables if asked for."""
    published = published_adkdd()
    if published is not None:
        return published
    write_adkdd_records(sizes)
    if tables:
        write_adkdd_tables(sizes)
    folder = sizes.folder
    return AdKdd(folder, True, sizes.part_files, folder / ADKDD_MORE_FILE, sizes.rows)


def _plain(packed_name: str) -> str:
    return packed_name.removesuffix(".gz")
