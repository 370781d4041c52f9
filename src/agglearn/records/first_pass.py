"""The first pass over records: from what the columns hold to the schema they are coded by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from agglearn.errors import InputError
from agglearn.records.encoding import Rates
from agglearn.records.grow import growing, grown_schema
from agglearn.records.learn import ColumnNote, check_told, learn_feature, learn_label
from agglearn.records.options import Coding, Split, TargetEncoding
from agglearn.records.roles import Columns
from agglearn.records.sources import Source
from agglearn.records.split import Parts
from agglearn.records.survey import ColumnSurvey
from agglearn.runtime.progress import meter
from agglearn.schema.features import Feature
from agglearn.schema.schema import Schema, require_columns


@dataclass
class Learnt:
    """A schema, and what was decided about each column."""

    schema: Schema
    notes: list[ColumnNote] = field(default_factory=list)


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
    rates = {name: Rates(name) for name in encoding.columns}
    surveys = {n: ColumnSurvey(n) for n in to_survey(names, columns) if n not in rates}
    label_names = [label.name for label in columns.labels]
    rows = 0
    with meter("reading columns", source.rows, show=show_progress) as advance:
        for batch, part in parts.batches(source, [*names, *label_names]):
            rows += batch.num_rows
            advance(batch.num_rows)
            training = batch if part is None else batch.filter(pa.array(part == 0))
            for name, survey in surveys.items():
                survey.add(training.column(name))
            if rates and part is not None:
                held_out = batch.filter(pa.array(part == parts.held_out))
                y = columns.labels[0].encode(held_out.column(label_names[0]))
                for name, rate in rates.items():
                    rate.add(held_out.column(name), y)
    if not rows:
        raise InputError("there are no records to aggregate")
    encoded = {name: _encoded(rate, encoding.modalities) for name, rate in rates.items()}
    return schema_of(names, columns, coding, surveys, encoded)


def grow_schema(
    source: Source, schema: Schema, coding: Coding, split: Split, *, show_progress: bool = False
) -> Learnt:
    """A given schema with the values of the training records that it does not know."""
    names = growing(schema)
    require_columns(names, source.columns)
    surveys = {name: ColumnSurvey(name) for name in names}
    with meter("reading columns", source.rows, show=show_progress) as advance:
        for batch, part in Parts(split, TargetEncoding()).batches(source, names):
            training = batch if part is None else batch.filter(pa.array(part == 0))
            for name, survey in surveys.items():
                survey.add(training.column(name))
            advance(batch.num_rows)
    return Learnt(*grown_schema(schema, surveys, coding))


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
    learnt = [known[n] if n in known else learn_feature(surveys[n], coding) for n in names]
    labels = tuple(learn_label(label, surveys.get(label.name)) for label in columns.labels)
    return Learnt(Schema(tuple(feature for feature, _ in learnt), labels), [note for _, note in learnt])


def _encoded(rate: Rates, modalities: int) -> tuple[Feature, ColumnNote]:
    feature, why = rate.encoding(modalities)
    return feature, ColumnNote(feature.name, feature.kind, feature.n_modalities, 0, why)
