"""A given schema that grows by the values it meets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from agglearn.records.learn import ColumnNote, usual_least
from agglearn.records.options import Coding
from agglearn.records.survey import ColumnSurvey
from agglearn.schema.features import Categorical
from agglearn.schema.growth import grown, grows
from agglearn.schema.schema import Schema

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


def growing(schema: Schema) -> list[str]:
    """The columns whose vocabulary can grow."""
    return [f.name for f in schema.features if grows(f)]


def grown_schema(
    schema: Schema, surveys: Mapping[str, ColumnSurvey], coding: Coding
) -> tuple[Schema, list[ColumnNote]]:
    """The schema with the values that surveys of its columns found, and what came to each."""
    features, notes = [], []
    for feature in schema.features:
        if grows(feature):
            new = _new_values(feature, surveys[feature.name], coding)
            feature = grown(feature, new)
            if new:
                why = f"{len(new):,} values are new: {', '.join(new[:4])}{', …' if len(new) > 4 else ''}"
                missing = surveys[feature.name].missing
                notes.append(ColumnNote(feature.name, feature.kind, feature.n_modalities, missing, why))
        features.append(feature)
    return replace(schema, features=tuple(features)), notes


def _new_values(feature: Categorical, survey: ColumnSurvey, coding: Coding) -> list[str]:
    """Values that the vocabulary lacks, the commonest first, as many as there is room for."""
    texts, counts = survey.texts()
    by_count = np.argsort(-counts, kind="stable")
    codes = feature.rule.encode(pa.array(texts, pa.string()))
    least = coding.min_modality_count or usual_least(counts)
    unknown = (codes == feature.rule.default) & (counts >= least)
    new = [texts[i] for i in by_count if unknown[i]]
    if feature.value_type == "integer":  # a text among them stays unknown
        new = [text for text in new if _INTEGER.fullmatch(text)]
    if coding.max_modalities is None:
        return new
    return new[: max(coding.max_modalities - len(feature.values), 0)]
