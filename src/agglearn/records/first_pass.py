"""The first pass over records: from what the columns hold to the schema they are coded by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.errors import InputError
from agglearn.records.encoding import Rates
from agglearn.records.grow import growing, grown_schema
from agglearn.records.learn import (
    LEFT_OUT,
    ColumnNote,
    check_told,
    learn_feature,
    learn_label,
    why_left_out,
    why_single,
)
from agglearn.records.options import Coding, Split, TargetEncoding
from agglearn.records.passes import folded
from agglearn.records.roles import Columns
from agglearn.records.sources import Source
from agglearn.records.split import Parts
from agglearn.records.survey import ColumnSurvey
from agglearn.runtime.fold import Key, Piece, Total
from agglearn.runtime.threads import in_threads, thread_count
from agglearn.schema.features import Feature
from agglearn.schema.schema import Label, Schema, require_columns

_MANY = 10_000  # records of a batch whose columns are worth a thread each


@dataclass
class Learnt:
    """A schema, and what was decided about each column."""

    schema: Schema
    notes: list[ColumnNote] = field(default_factory=list)


class FirstLook:
    """What the first pass finds out: surveys of some columns, and rates of others on records held out.

    Attributes
    ----------
    rows
        Records seen, of any part.
    surveys, rates
        By column.
    """

    def __init__(
        self,
        surveyed: Sequence[str],
        encoded: Sequence[str] = (),
        label: Label | None = None,
        held_out: int = 0,
    ) -> None:
        self.rows = 0
        self.surveys = {name: ColumnSurvey(name) for name in surveyed if name not in encoded}
        self.rates = {name: Rates(name) for name in encoded}
        self._label, self._held_out = label, held_out

    def add(self, batch: Any, part: npt.NDArray[np.uint8] | None) -> None:
        """Look at a batch: surveys see its training records, rates those held out."""
        self.rows += batch.num_rows
        training = batch if part is None else batch.filter(pa.array(part == 0))
        surveys = list(self.surveys.items())
        threads = max(1, min(thread_count(), len(surveys))) if batch.num_rows >= _MANY else 1

        def look(worker: int) -> None:
            for name, survey in surveys[worker::threads]:
                survey.add(training.column(name))

        in_threads(threads, look)
        if self._label is not None and self.rates and part is not None:
            held_out = batch.filter(pa.array(part == self._held_out))
            y = self._label.encode(held_out.column(self._label.name))
            for name, rate in self.rates.items():
                rate.add(held_out.column(name), y)

    def pieces(self) -> Iterator[tuple[Key, Piece]]:
        """A piece for each column, and one for the rows."""
        yield ("rows",), Total(self.rows)
        for name, survey in self.surveys.items():
            survey.compact()
            yield ("survey", name), survey
        for name, rate in self.rates.items():
            yield ("rates", name), rate

    def take(self, pieces: Iterable[tuple[Key, Any]]) -> None:
        """Hold what others found."""
        for (what, *of), piece in pieces:
            if what == "rows":
                self.rows = int(piece.value)
            else:
                (self.surveys if what == "survey" else self.rates)[str(of[0])] = piece


def learn_schema(
    source: Source,
    columns: Columns,
    coding: Coding,
    *,
    split: Split | None = None,
    encoding: TargetEncoding | None = None,
    show_progress: bool = False,
) -> Learnt:
    """Survey the training records of a source and decide how each column is coded."""
    encoding = encoding or TargetEncoding()
    parts = Parts(split or Split(), encoding)
    names = columns.feature_names(source.columns)
    check_told(coding, names)
    require_columns(encoding.columns, names, "column to target-encode")
    look = folded(
        source,
        parts,
        [*names, *(label.name for label in columns.labels)],
        partial(FirstLook, to_survey(names, columns), encoding.columns, columns.labels[0], parts.held_out),
        "reading columns",
        show_progress,
    )
    if not look.rows:
        raise InputError("there are no records to aggregate")
    encoded = {name: _encoded(rate, encoding.modalities) for name, rate in look.rates.items()}
    return schema_of(names, columns, coding, look.surveys, encoded)


def grow_schema(
    source: Source, schema: Schema, coding: Coding, split: Split, *, show_progress: bool = False
) -> Learnt:
    """A given schema with the values of the training records that it does not know."""
    names = growing(schema)
    require_columns(names, source.columns)
    parts = Parts(split, TargetEncoding())
    look = folded(source, parts, names, partial(FirstLook, names), "reading columns", show_progress)
    return Learnt(*grown_schema(schema, look.surveys, coding))


def to_survey(names: Sequence[str], columns: Columns) -> list[str]:
    """Columns to look at: these features, and the labels whose positive value is named."""
    return [*names, *(label.name for label in columns.labels if label.positive is not None)]


def schema_of(
    names: Sequence[str],
    columns: Columns,
    coding: Coding,
    surveys: Mapping[str, ColumnSurvey],
    encoded: Mapping[str, tuple[Feature, ColumnNote]] | None = None,
) -> Learnt:
    """The schema by what surveys of the columns found; some features may be known already."""
    known = encoded or {}
    features: list[Feature] = []
    notes: list[ColumnNote] = []
    for name in names:
        why = None
        if columns.features is None and name not in known:
            why = why_left_out(surveys[name], coding)
        if why is not None:
            notes.append(ColumnNote(name, LEFT_OUT, 0, surveys[name].missing, why))
            continue
        feature, note = known[name] if name in known else learn_feature(surveys[name], coding)
        features.append(feature)
        if name not in known and not feature.ordered:
            note = replace(note, single=why_single(surveys[name]))
        notes.append(note)
    if not features:
        raise InputError(f"no feature is left: column {notes[0].name!r} has {notes[0].why}")
    labels = tuple(learn_label(label, surveys.get(label.name)) for label in columns.labels)
    return Learnt(Schema(tuple(features), labels), notes)


def _encoded(rate: Rates, modalities: int) -> tuple[Feature, ColumnNote]:
    feature, why = rate.encoding(modalities)
    return feature, ColumnNote(feature.name, feature.kind, feature.n_modalities, 0, why)
