"""Everything that can be said about an aggregation: every default and bound, in one place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agglearn.errors import InputError
from agglearn.records.options import Coding, ReadOptions, Split, TargetEncoding
from agglearn.runtime.options import AUTO, as_names, at_least, check_bounds
from agglearn.runtime.speech import option
from agglearn.tables.periods import Period

if TYPE_CHECKING:
    from agglearn.schema.schema import Schema
    from agglearn.tables.data import AggregatedData


@dataclass(frozen=True, kw_only=True)
class AggregateOptions(Coding):
    """How records become tables; how columns are coded stands in :class:`~agglearn.records.options.Coding`.

    Attributes
    ----------
    positive
        The positive value of each label that is not 0/1 or true/false.
    features, exclude
        Feature columns (all but the labels by default), and columns or patterns to leave out.
    tables
        ``pairs``, ``singles``, ``triples``, ``a*b*c``, joined by commas; or tuples. ``auto`` is the tables of
        the ``.agg`` that the schema is taken from; where the schema is learnt, all pairs and the triples that
        pairs cannot tell (:mod:`.triples`); all pairs elsewhere.
    schema
        A schema to code by, tables that have one, or the path of either, instead of learning it.
    grow
        Whether values of categories that the schema given does not know get codes behind its own; as many as
        ``max_modalities`` and ``min_modality_count`` allow.
    period
        When the records are from: a day (``2026-03-01``), a span of days with a slash, or a number.
    categorical, numeric, bins, binning, edges, max_modalities, min_modality_count
        How columns are coded where the schema is learnt.
    hash_size
        Tables with more cells than this are hashed to so many buckets.
    target_encode, encoding_share, encoding_modalities
        Columns coded by count and rate bins, learnt on a held-out share of the records, which then is
        in no table.
    split, seed
        Shares of the records to aggregate apart, for instance ``{"valid": 0.2}``.
    read
        Separator, encoding and missing values of text files.
    show_progress
        Whether to show on the terminal how far it is.
    """

    positive: str | Sequence[str | None] | None = None
    features: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    tables: str | Iterable[Sequence[str]] = AUTO
    schema: Schema | AggregatedData | str | os.PathLike[str] | None = None
    grow: bool = False
    period: str | None = None
    hash_size: int | None = None
    target_encode: Sequence[str] = TargetEncoding.columns
    encoding_share: float = TargetEncoding.share
    encoding_modalities: int = TargetEncoding.modalities
    split: Mapping[str, float] = field(default_factory=dict)
    seed: int = Split.seed
    read: ReadOptions = field(default_factory=ReadOptions)
    show_progress: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features is not None:
            object.__setattr__(self, "features", as_names(self.features))
        object.__setattr__(self, "exclude", as_names(self.exclude))
        object.__setattr__(self, "target_encode", as_names(self.target_encode))
        object.__setattr__(self, "split", dict(self.split or {}))
        object.__setattr__(self, "read", self.read or ReadOptions())
        at_least(2, "small", hash_size=self.hash_size)
        check_bounds(hash_size=self.hash_size)
        if self.grow and self.schema is None:
            raise InputError(f"{option('grow')} needs {option('schema')}: there is nothing to grow from")
        if self.period is not None:
            Period.parse(self.period)
        _ = self.parts, self.target_encoding  # which have bounds of their own

    @property
    def parts(self) -> Split:
        """The parts that records are divided into."""
        return Split(self.split, self.seed)

    @property
    def target_encoding(self) -> TargetEncoding:
        """The columns that are target-encoded, and how."""
        return TargetEncoding(tuple(self.target_encode), self.encoding_share, self.encoding_modalities)
