"""Schemas that grow: a value that is new today gets a code behind the others.

Two schemas are **of one lineage** where each feature of the one is that of the other, or both are
vocabularies grown from a common one: the values they share stand first in both, in the same order. Bins,
target encodings, and whether rare or missing values have a modality of their own never change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from agglearn.errors import SchemaError
from agglearn.runtime.speech import words
from agglearn.schema.features import Categorical, Feature
from agglearn.schema.schema import Schema


def grows(feature: Feature) -> TypeGuard[Categorical]:
    """Whether a feature has a vocabulary that new values can come to."""
    return isinstance(feature, Categorical)


def common_schema(first: Schema, second: Schema) -> Schema:
    """The schema that has the values of both, or why they are not of one lineage."""
    if first == second:
        return first
    advice = "aggregate the second with the first one's schema " + words(
        python="(schema=first.schema, and grow=True for values that are new)",
        shell="(--schema FIRST.agg, and --grow for values that are new)",
    )
    if first.labels != second.labels or first.names != second.names:
        what = "labels" if first.labels != second.labels else "features"
        raise SchemaError(
            f"two aggregations with different schemas cannot be merged, their {what} differ: {advice}"
        )
    return Schema(
        tuple(_common(a, b, advice) for a, b in zip(first.features, second.features, strict=True)),
        first.labels,
    )


def _common(a: Feature, b: Feature, advice: str) -> Feature:
    if a == b:
        return a
    if grows(a) and grows(b) and replace(a, values=b.values) == b:
        shared = len(set(a.values) & set(b.values))
        if shared and a.values[:shared] == b.values[:shared]:
            return replace(a, values=(*a.values, *b.values[shared:]))
    raise SchemaError(
        f"two aggregations with different schemas cannot be merged, {a.name!r} was not grown from one "
        f"vocabulary: {advice}"
    )


def grown(feature: Categorical, values: Iterable[str]) -> Categorical:
    """The feature with further values behind its own."""
    known = set(feature.values)
    return replace(feature, values=(*feature.values, *(v for v in values if v not in known)))


def new_values(old: Schema, new: Schema) -> dict[str, tuple[str, ...]]:
    """The modalities of each feature that the old schema does not have."""
    found = {
        f.name: tuple(m for m in f.modalities if m not in old.feature(f.name).code_of) for f in new.features
    }
    return {name: values for name, values in found.items() if values}


def positions(old: Feature, new: Feature) -> npt.NDArray[np.int64]:
    """For each code of a feature its code in the feature grown from it."""
    return np.array([new.code_of[text] for text in old.modalities], np.int64)


def same_codes(old: Schema, new: Schema, names: Iterable[str]) -> bool:
    """Whether every code of these features means the same in both, so that hashed cells stay."""
    pairs = ((old.feature(n), new.feature(n)) for n in names)
    return all(b.modalities[: a.n_modalities] == a.modalities for a, b in pairs)
