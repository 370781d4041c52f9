"""The files of the AdKDD'21 challenge: all tables of one order in one file, told apart by feature ids.

``aggregated_noisy_data_pairs.csv.gz`` has a row for each cell of each pair of features, and
``aggregated_noisy_data_singles.csv.gz`` one for each value of each feature. Gaussian noise of standard
deviation 17 was added to each number, after the cells of pairs with no more than ten records were left
out; every value of a single feature is there. Feature 3 is ``hash_3``, as in the challenge's records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.aggregation.groups import Groups
from agglearn.errors import InputError, TableError
from agglearn.receive.release import Received, Release
from agglearn.receive.values import MOST_VALUES, Unknown, Vocabulary, read_numbers
from agglearn.records.files import FileSource, expand
from agglearn.records.learn import ColumnNote
from agglearn.records.options import ReadOptions
from agglearn.runtime.options import at_least
from agglearn.runtime.progress import meter
from agglearn.schema.schema import Label, Schema, some
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load_schema
from agglearn.tables.noise import Noise
from agglearn.tables.table import Array, Scope

LABELS = (Label("click"), Label("sale"))
NOISE = Noise("gaussian", 17.0)
FLOOR = 11  # a cell was released if more than ten records fell into it
HASH_SIZE = 1 << 20

# As published, and as the challenge's notebook writes the same tables without noise.
_NUMBERS = (("count", "c"), ("nb_clicks", "click"), ("nb_sales", "sale"))


def receive_adkdd(files: Any, **options: Any) -> AggregatedData:
    """Read the tables of the AdKDD'21 challenge.

    Parameters
    ----------
    files
        The files of pairs and of singles, or the folder that holds them.
    **options
        Those of :func:`read_adkdd`.
    """
    return read_adkdd(files, **options).data


def read_adkdd(
    files: Any,
    *,
    schema: Schema | str | Path | None = None,
    noise: Noise | None = NOISE,
    floor: float | None = FLOOR,
    absent: str | None = None,
    rows: float | None = None,
    positives: Sequence[float] | None = None,
    hash_size: int | None = HASH_SIZE,
    max_modalities: int = MOST_VALUES,
    show_progress: bool = False,
) -> Received:
    """Read the tables of the AdKDD'21 challenge, and say what was found on the way.

    Parameters
    ----------
    files
        The files of pairs and of singles, or the folder that holds them. The values of the singles are
        the vocabulary; without singles, those of the pairs are.
    schema
        A schema to code by, or the path of one or of an ``.agg``.
    noise, floor, absent, rows, positives
        What is known of the numbers: see :class:`~agglearn.receive.release.Release`.
    hash_size
        Tables with more cells than this are hashed to so many buckets.
    max_modalities
        A feature keeps at most so many values; the rarer share one modality.
    """
    release = Release(noise, floor, absent, rows, positives)
    at_least(2, "small", hash_size=hash_size)
    found = [_CellFile.open(path) for path in _paths(files)]
    if isinstance(schema, str | Path):
        schema = load_schema(schema)
    notes: list[ColumnNote] = []
    with meter("reading", show=show_progress) as advance:
        if schema is None:
            schema, notes = _learn(found, max_modalities, advance)
        else:
            schema = Schema(schema.features, LABELS)
        groups: dict[Scope, Groups] = {}
        origin: dict[Scope, Path] = {}
        unknown = Unknown(schema)
        for file in found:
            for scope, values, numbers in file.tables(advance):
                if origin.setdefault(scope, file.path) != file.path:
                    raise TableError(
                        f"{file.path} and {origin[scope]} both have the table {' × '.join(scope)}: give "
                        "one of them"
                    )
                if scope not in groups:
                    _check_features(scope, schema, file.path)
                    groups[scope] = Groups(scope, schema, hash_size)
                codes = [
                    schema.feature(name).encode(column) for name, column in zip(scope, values, strict=True)
                ]
                groups[scope].add(codes, numbers)
                unknown.add(scope, codes, numbers)
    ordered = sorted(groups.values(), key=lambda g: (len(g.scope), [_feature_id(n) for n in g.scope]))
    return Received(release.assemble(schema, ordered), notes, unknown.by_feature())


def _paths(files: Any) -> list[Path]:
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    found: list[Path] = []
    for path in given:
        if Path(path).is_dir():
            # The challenge's folder also has records, which are no tables.
            inside = sorted(Path(path).glob("*aggregated_*.csv*"))
            if not inside:
                raise InputError(f"folder {path} holds no aggregated_noisy_data_*.csv.gz")
            found += inside
        else:
            found += expand([os.fspath(path)])
    if not found:
        raise InputError("no file is given to read tables from")
    return found


def _learn(files: Sequence[_CellFile], most: int, advance: Any) -> tuple[Schema, list[ColumnNote]]:
    """The vocabularies, from the files of the lowest order."""
    vocabularies: dict[str, Vocabulary] = {}
    order = min(file.order for file in files)
    for file in files:
        if file.order == order:
            for scope, values, numbers in file.tables(advance):
                for name, column in zip(scope, values, strict=True):
                    vocabularies.setdefault(name, Vocabulary(name)).add(column, numbers[0])
    learnt = [vocabularies[name].feature(most) for name in sorted(vocabularies, key=_feature_id)]
    return Schema(tuple(f for f, _ in learnt), LABELS), [note for _, note in learnt]


def _feature_id(name: str) -> int:
    return int(name.removeprefix("hash_"))


def _check_features(scope: Scope, schema: Schema, path: Path) -> None:
    odd = [name for name in scope if name not in schema.index]
    if odd:
        raise InputError(f"{path} has tables of {some(odd)}, which the singles or the schema do not know")


@dataclass(frozen=True)
class _CellFile:
    """A file with all tables of one order."""

    path: Path
    source: FileSource
    order: int
    numbers: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> _CellFile:
        source = FileSource([path], ReadOptions(separator=",", missing=()))
        present = source.columns
        order = 1
        while f"feature_{order + 1}_value" in present:
            order += 1
        needed = [f"feature_{k}_{part}" for k in range(1, order + 1) for part in ("value", "id")]
        absent = [name for name in needed if name not in present]
        names = [next((n for n in either if n in present), None) for either in _NUMBERS]
        absent += [either[0] for either, name in zip(_NUMBERS, names, strict=True) if name is None]
        if absent:
            raise InputError(
                f"{path} has no column {some(absent)}: it is not in the format of the AdKDD'21 tables"
            )
        return cls(path, source, order, tuple(n for n in names if n is not None))

    def tables(self, advance: Any) -> Iterator[tuple[Scope, list[Any], Array]]:
        """Rows of one table after another: its features, their values, and the numbers."""
        places = range(1, self.order + 1)
        ids = [f"feature_{k}_id" for k in places]
        values = [f"feature_{k}_value" for k in places]
        done = 0
        for batch in self.source.batches([*values, *ids, *self.numbers]):
            if batch.num_rows:
                numbers = np.stack([read_numbers(batch.column(n), n, self.path, done) for n in self.numbers])
                codes = np.stack([_ids(batch.column(n), n, self.path, done) for n in ids])
                columns = [_integers(batch.column(n)) for n in values]
                for scope, rows in _by_table(codes, self.path):
                    order = sorted(range(self.order), key=lambda k: scope[k])
                    names = tuple(f"hash_{scope[k]}" for k in order)
                    taken = pa.array(rows)
                    yield names, [columns[k].take(taken) for k in order], numbers[:, rows]
            done += batch.num_rows
            advance(batch.num_rows)
        if not done:
            raise InputError(f"{self.path} has no rows")


def _ids(column: Any, name: str, path: Path, rows_before: int) -> npt.NDArray[np.int64]:
    numbers = read_numbers(column, name, path, rows_before)
    if not np.issubdtype(numbers.dtype, np.integer) or numbers.min() < 0:
        raise InputError(f"{path}: column {name!r} has a number that is not the id of a feature")
    return numbers


def _integers(column: Any) -> Any:
    """Values as integers if they are, which are coded faster than text."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column


def _by_table(
    ids: npt.NDArray[np.int64], path: Path
) -> Iterator[tuple[tuple[int, ...], npt.NDArray[np.int64]]]:
    """Which rows belong to which table; ``ids`` has a row per feature of the table."""
    order = np.lexsort(ids[::-1])
    ordered = ids[:, order]
    new = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
    for rows in np.split(order, new):
        scope = tuple(int(i) for i in ids[:, rows[0]])
        if len(set(scope)) != len(scope):
            raise InputError(f"{path} has a table of feature {scope[0]} with itself")
        yield scope, rows
