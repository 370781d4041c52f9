"""What can be said about reading and coding records: every default and bound, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agglearn.errors import InputError
from agglearn.runtime.options import as_names, at_least, check_bounds, check_seed

TRAIN = "train"
BATCH_ROWS = 1 << 18  # records at a time
BINNINGS = ("quantile", "width")
DEFAULT_MISSING = ("", "NA", "NaN", "nan", "null", "NULL")


@dataclass(frozen=True)
class ReadOptions:
    """How text files are written.

    Attributes
    ----------
    separator
        Between the columns; found out by default.
    encoding
        Any that Python knows.
    missing
        Texts that mean *no value*.
    """

    separator: str | None = None
    encoding: str = "utf8"
    missing: tuple[str, ...] = DEFAULT_MISSING


@dataclass(frozen=True)
class Coding:
    """How columns are to be coded where nobody says otherwise.

    Attributes
    ----------
    categorical, numeric
        Columns (names or patterns such as ``cat*``) whose kind is given.
    bins, binning
        Number of intervals of a numeric column (None: by its records, from 10 to 20), ``quantile`` or
        ``width``.
    edges
        Given edges of some numeric columns.
    max_modalities
        A categorical column keeps at most so many values (None: all); the rarer share one modality.
    min_modality_count
        Values rarer than this share one modality (None: 3 in a column of more than 100 values, since one that
        is seen once or twice cannot be learnt from; else all are kept).
    """

    categorical: Sequence[str] = ()
    numeric: Sequence[str] = ()
    bins: int | None = None
    binning: str = "quantile"
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    max_modalities: int | None = None
    min_modality_count: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "categorical", as_names(self.categorical))
        object.__setattr__(self, "numeric", as_names(self.numeric))
        object.__setattr__(self, "edges", dict(self.edges or {}))
        if self.binning not in BINNINGS:
            raise InputError(f"binning {self.binning!r} is not {' or '.join(BINNINGS)}")
        at_least(2, bins=self.bins, max_modalities=self.max_modalities)
        at_least(1, min_modality_count=self.min_modality_count)
        check_bounds(
            bins=self.bins,
            max_modalities=self.max_modalities,
            min_modality_count=self.min_modality_count,
        )


@dataclass(frozen=True)
class TargetEncoding:
    """Columns to be coded by (count, rate), and the share of records held out to learn that."""

    columns: tuple[str, ...] = ()
    share: float = 0.1
    modalities: int = 100

    def __post_init__(self) -> None:
        at_least(2, encoding_modalities=self.modalities)
        check_bounds(encoding_modalities=self.modalities)


@dataclass(frozen=True)
class Split:
    """Shares of the records that go elsewhere than to the training tables."""

    shares: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        check_split(self.shares)
        check_seed(self.seed)


def check_split(shares: Mapping[str, float]) -> None:
    """Refuse shares that leave nothing to train on, and names that cannot be part of a file name."""
    for name, share in shares.items():
        if not name.isidentifier() or name == TRAIN:
            raise InputError(f"split part {name!r} needs a plain name other than {TRAIN!r}")
        if not 0 < share < 1:
            raise InputError(f"split part {name}={share:g} must be between 0 and 1")
    if sum(shares.values()) >= 1:
        raise InputError("the parts of the split leave nothing to train on: their sum must be below 1")
