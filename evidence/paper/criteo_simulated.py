"""Files in Criteo's formats, of the published size, from a simulated ads log. Only the format is Criteo's.

Files go to the user's cache folder. One that is there is not written again, and each appears whole or not at
all. The AdKDD records lie in several part files instead of one, so that two processes can write them and an
interrupted run goes on where it was. The noisy tables count these very records: an exact count, a cell of a
pair left out unless more than ten records fall into it, then Gaussian noise on each of its numbers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from math import prod
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.aggregation.tally import Tally
from agglearn.datasets import CRITEO_ATTRIBUTION_FEATURES, AdsLog, write_criteo_attribution_like
from agglearn.datasets.criteo import (
    ADKDD_FEATURES,
    ADKDD_LABELS,
    ADKDD_MORE_FILE,
    ADKDD_PAIRS_FILE,
    ADKDD_RECORDS_FILE,
    ADKDD_SINGLES_FILE,
    ADKDD_TEST_FILES,
    ADKDD_TRAIN_FILES,
    ATTRIBUTION_FILE,
)
from agglearn.datasets.delimited import write_delimited
from agglearn.datasets.simulate import ADKDD_MIN_COUNT
from agglearn.datasets.sources import cache_folder
from agglearn.errors import InputError
from agglearn.runtime.memory import size
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema

SIGMA = 17.0
"""Standard deviation of the Gaussian noise on each number of the tables: the challenge's."""

_SEED = 0
_PROCESSES, _WORTH_PROCESSES = 2, 1_000_000  # so many records to write before processes are begun for it
_BATCH_ROWS = 1 << 17
_ATTRIBUTION_CLICK_RATE, _ADKDD_CLICK_RATE = 0.36, 0.1
_SALE_RATE = 0.1  # of the clicks
_VALID, _TEST, _MORE = 1_000_001, 1_000_002, 1_000_003  # numbers that no part of the records has
_DENSE_CELLS = 1 << 20  # a pair of more cells is counted by sorting
_DECIMALS = 3  # of the noisy numbers as they are written

# Bytes of a record, and of a published cell, in the packed files: a little more than was measured.
_ATTRIBUTION_BYTES, _ADKDD_BYTES, _CELL_BYTES = 56, 32, 26
_MOST_CELLS = 30_000_000  # that 80 million records bring above the floor
_LEFT_FREE = 1 << 30  # of the disk

Codes = npt.NDArray[np.uint16]
Scores = tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]


def home(key: str) -> Path:
    """The folder in the user's cache that keeps what is made for one set of sizes."""
    return cache_folder() / "simulated-criteo" / key


def require_disk(folder: Path, needed: int, what: str) -> None:
    """Refuse to write what would fill the disk."""
    there = folder
    while not there.exists():
        there = there.parent
    free = max(shutil.disk_usage(there).free - _LEFT_FREE, 0)
    if needed > free:
        raise InputError(
            f"{what} would take {size(needed)} in {folder}, where {size(free)} can be used: make room there, "
            "or set XDG_CACHE_HOME to a folder on another disk"
        )


# -- Criteo Attribution --------------------------------------------------------------------------


def attribution_log(modalities: int) -> AdsLog:
    """What the simulated Criteo Attribution is drawn from."""
    features = len(CRITEO_ATTRIBUTION_FEATURES) - 1  # all but time_since_last_click
    return AdsLog(features, modalities, click_rate=_ATTRIBUTION_CLICK_RATE, seed=_SEED)


def write_attribution(rows: int, modalities: int) -> Path:
    """The simulated file, written if it is not there."""
    path = home(f"attribution-{rows}-{modalities}") / ATTRIBUTION_FILE
    if not path.exists():
        require_disk(path.parent, rows * _ATTRIBUTION_BYTES, f"{rows:,} simulated records")
        write_criteo_attribution_like(path, rows, _SEED, max_modalities=modalities)
    return path


def attribution_truth(rows: int, modalities: int, part: Any) -> Scores:
    """Labels of some records, and the log-odds that they were drawn with.

    ``part(start, n)`` says which of the ``n`` records from number ``start`` on are meant.
    """
    log = attribution_log(modalities)
    found: list[Scores] = []
    start = 0
    for codes, y in log.batches(rows, _BATCH_ROWS, _SEED):
        mine = part(start, len(y))
        found.append((y[mine] == 1, _log_odds(log, codes[mine])))
        start += len(y)
    return np.concatenate([y for y, _ in found]), np.concatenate([z for _, z in found])


def _log_odds(log: AdsLog, codes: Codes) -> npt.NDArray[np.float64]:
    p = log.probability(codes)
    return np.asarray(np.log(p) - np.log1p(-p))


# -- Criteo AdKDD'21 -----------------------------------------------------------------------------


@dataclass(frozen=True)
class AdKddSizes:
    """How large the simulated AdKDD files are.

    Attributes
    ----------
    rows, part_rows
        Records that the tables count, and how many of them are in a file.
    more_rows, valid_rows, test_rows
        Records of the other files: those that target encodings are learnt on, the challenge's few records
        with labels, and its test records.
    modalities
        Of the largest features.
    """

    rows: int
    part_rows: int
    more_rows: int
    valid_rows: int
    test_rows: int
    modalities: int

    @property
    def folder(self) -> Path:
        """Where files of these sizes are."""
        numbers = (self.rows, self.part_rows, self.more_rows, self.valid_rows, self.test_rows)
        return home(f"adkdd-{'-'.join(map(str, numbers))}-{self.modalities}")

    @property
    def log(self) -> AdsLog:
        """What all of them are drawn from."""
        return AdsLog(len(ADKDD_FEATURES), self.modalities, click_rate=_ADKDD_CLICK_RATE, seed=_SEED)

    @property
    def parts(self) -> list[int]:
        """Records of each part file."""
        return [min(self.part_rows, self.rows - start) for start in range(0, self.rows, self.part_rows)]

    @property
    def part_files(self) -> list[Path]:
        name = ADKDD_RECORDS_FILE.removesuffix(".csv.gz")
        return [self.folder / f"{name}.part-{k:02d}.csv.gz" for k in range(len(self.parts))]


def write_adkdd_records(sizes: AdKddSizes) -> None:
    """Write the files of records that are not there yet."""
    folder = sizes.folder
    jobs = [(sizes, k, rows, sizes.part_files[k]) for k, rows in enumerate(sizes.parts)]
    jobs.append((sizes, _MORE, sizes.more_rows, folder / ADKDD_MORE_FILE))
    jobs = [job for job in jobs if not job[3].exists()]
    rows = sum(job[2] for job in jobs)
    require_disk(folder, rows * _ADKDD_BYTES, f"{rows:,} simulated records")
    if rows > _WORTH_PROCESSES:
        with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
            list(pool.map(_write_records, jobs))
    else:
        for job in jobs:
            _write_records(job)
    for number, rows, names in (
        (_VALID, sizes.valid_rows, ADKDD_TRAIN_FILES),
        (_TEST, sizes.test_rows, ADKDD_TEST_FILES),
    ):
        if not all((folder / name).exists() for name in names):
            table = pa.concat_tables(_record_tables(sizes.log, number, rows))
            for name, columns in zip(names, (ADKDD_FEATURES, ADKDD_LABELS), strict=True):
                write_delimited(folder / name, [table.select(list(columns))])


def adkdd_truth(sizes: AdKddSizes) -> Scores:
    """Labels of the test records, and the log-odds that they were drawn with."""
    found = [
        (labels[0] == 1, _log_odds(sizes.log, codes.T))
        for codes, labels in _draws(sizes.log, _TEST, sizes.test_rows)
    ]
    return np.concatenate([y for y, _ in found]), np.concatenate([z for _, z in found])


def _draws(log: AdsLog, number: int, rows: int) -> Iterator[tuple[Codes, npt.NDArray[np.uint8]]]:
    """Records of a part, a batch at a time: codes, a row per feature, and click and sale, a row each."""
    rng = np.random.default_rng([_SEED, 2, number])
    for codes, click in log.batches(rows, _BATCH_ROWS, number):
        sale = click * (rng.random(len(click)) < _SALE_RATE)
        yield np.ascontiguousarray(codes.T), np.stack([click, sale.astype(np.uint8)])


def _record_tables(log: AdsLog, number: int, rows: int) -> Iterator[Any]:
    for codes, labels in _draws(log, number, rows):
        yield pa.table([*map(pa.array, [*codes, *labels])], names=[*ADKDD_FEATURES, *ADKDD_LABELS])


def _write_records(job: tuple[AdKddSizes, int, int, Path]) -> None:
    sizes, number, rows, path = job
    write_delimited(path, _record_tables(sizes.log, number, rows))


# -- its noisy tables ----------------------------------------------------------------------------


def write_adkdd_tables(sizes: AdKddSizes) -> None:
    """Write the noisy pairs and singles of the simulated records, if they are not there yet."""
    singles, pairs = sizes.folder / ADKDD_SINGLES_FILE, sizes.folder / ADKDD_PAIRS_FILE
    if singles.exists() and pairs.exists():
        return
    shapes = [prod(sizes.log.cards[f] for f in pair) for pair in _pairs()]
    cells = sum(min(n, sizes.rows // ADKDD_MIN_COUNT) for n in shapes)
    require_disk(sizes.folder, min(cells, _MOST_CELLS) * _CELL_BYTES, "simulated tables of pairs")
    count = _Count.of(sizes)
    rng = np.random.default_rng([_SEED, 3])
    write_delimited(singles, (count.published((f,), rng) for f in range(len(ADKDD_FEATURES))))
    write_delimited(pairs, (count.published(pair, rng) for pair in _pairs()))


def _pairs() -> Iterable[tuple[int, ...]]:
    return combinations(range(len(ADKDD_FEATURES)), 2)


@dataclass(frozen=True, eq=False)
class _Count:
    """Exact counts of all records: small tables by counters, the others by sorting when they are asked for.

    ``wide`` has the columns of the features that large tables need, and ``joint`` is click + 2·sale.
    """

    cards: tuple[int, ...]
    tables: dict[tuple[int, ...], Any]
    wide: dict[int, Codes]
    joint: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, sizes: AdKddSizes) -> _Count:
        log, names = sizes.log, ADKDD_FEATURES
        large = [pair for pair in _pairs() if prod(log.cards[f] for f in pair) > _DENSE_CELLS]
        small = [*((f,) for f in range(log.n_features)), *(pair for pair in _pairs() if pair not in large)]
        features = tuple(
            Categorical(name=name, missing=False, values=tuple(map(str, range(card))))
            for name, card in zip(names, log.cards, strict=True)
        )
        schema = Schema(features, tuple(Label(name) for name in ADKDD_LABELS))
        tally = Tally(schema, [tuple(names[f] for f in scope) for scope in small])
        wide = {f: np.empty(sizes.rows, np.uint16) for f in sorted({f for pair in large for f in pair})}
        joint = np.empty(sizes.rows, np.uint8)
        done = 0
        for number, rows in enumerate(sizes.parts):
            for codes, labels in _draws(log, number, rows):
                tally.add(codes, labels)
                here = slice(done, done + codes.shape[1])
                for f, column in wide.items():
                    column[here] = codes[f]
                joint[here] = labels[0] + 2 * labels[1]
                done = here.stop
        counted = tally.tables()
        tables = {scope: counted[tuple(names[f] for f in scope)] for scope in small}
        return cls(log.cards, tables, wide, joint)

    def published(self, scope: tuple[int, ...], rng: np.random.Generator) -> Any:
        """The cells over these features that are published, in the challenge's columns, with their noise."""
        if scope in self.tables:
            table = self.tables[scope]
            numbers = np.stack([table.counts, *table.sums]).reshape(3, -1)
            cells = np.arange(numbers.shape[1])
        else:
            cells, numbers = self._sorted(scope)
        kept = numbers[0] > (ADKDD_MIN_COUNT if len(scope) > 1 else 0)
        cells, numbers = cells[kept], numbers[:, kept]
        noisy = np.round(numbers + rng.normal(0.0, SIGMA, numbers.shape), _DECIMALS)
        values = np.unravel_index(cells, tuple(self.cards[f] for f in scope))
        ids = [np.full(len(cells), f) for f in scope]
        places = range(1, len(scope) + 1)
        names = [f"feature_{k}_value" for k in places] + [f"feature_{k}_id" for k in places]
        return pa.table([*values, *ids, *noisy], names=[*names, "count", "nb_clicks", "nb_sales"])

    def _sorted(self, scope: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Cells of a pair that count a record, and their records, clicks and sales."""
        first, second = scope
        assert 4 * self.cards[first] * self.cards[second] <= 2**32
        keys = self.wide[first].astype(np.uint32)  # the fastest sort is that of 32-bit numbers
        keys *= np.uint32(self.cards[second])
        keys += self.wide[second]
        keys *= np.uint32(4)
        keys += self.joint
        keys.sort()
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        counts = np.diff(np.append(starts, len(keys)))
        keys = keys[starts]
        cells, joint = (keys >> np.uint32(2)).astype(np.int64), keys & np.uint32(3)
        bounds = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
        parts = [counts, np.where(joint & 1, counts, 0), np.where(joint & 2, counts, 0)]
        return cells[bounds], np.stack([np.add.reduceat(part, bounds) for part in parts])
