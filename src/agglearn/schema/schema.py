"""The schema: which features and labels there are, and how each is coded.

Two aggregations can be merged, compared or validated against each other only if they share a schema,
so it is frozen, written into every file, and can be given instead of learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.errors import InputError, SchemaError
from agglearn.runtime.declared import listed, mapping, text
from agglearn.runtime.display import clip, counted, html_table
from agglearn.runtime.speech import option
from agglearn.schema.columns import Column, as_text, distinct, repeated
from agglearn.schema.features import KINDS, Feature, as_written
from agglearn.schema.places import place_of
from agglearn.schema.rules import Codes, code_type
from agglearn.schema.values import key, same_value

_SHOWN = 4
_LISTED = 10  # features that a schema shows of itself


@dataclass(frozen=True)
class Label:
    """A column to predict: 0/1 or true/false as it is, or anything with its positive value named.

    ``negative`` is the other value, where the positive one is named and there is just one other.
    """

    name: str
    positive: str | None = None
    negative: str | None = None

    @property
    def classes(self) -> npt.NDArray[Any]:
        """The negative and the positive class: raw values where both are known, else 0 and 1."""
        if self.positive is None or self.negative is None:
            return np.array([0, 1])
        return np.array([self.negative, self.positive], dtype=object)

    def decode(self, y: npt.NDArray[np.uint8]) -> Any:
        """Raw values of coded labels, as an Arrow array."""
        if self.positive is None:
            return pa.array(y.astype(np.int64))
        other = f"not {self.positive}" if self.negative is None else self.negative
        return pa.array([other, self.positive]).take(pa.array(y.astype(np.int64)))

    def encode(
        self, column: Column, place: Callable[[int], str] = lambda row: f"record {row + 1}"
    ) -> npt.NDArray[np.uint8]:
        """1 where the record is positive, 0 where it is negative; ``place`` says where a record stands."""
        values, index = distinct(column)
        texts = as_text(values).to_pylist()
        present = np.flatnonzero(np.bincount(index + 1, minlength=len(texts) + 1)) - 1
        if any(i < 0 or texts[i] is None for i in present):
            missing = int(np.flatnonzero([i < 0 or texts[i] is None for i in index])[0])
            raise InputError(
                f"label {self.name!r} is missing in {place(missing)}: every record needs a label; leave out "
                "those that have none"
            )
        codes = np.zeros(len(texts), np.uint8)
        for i in present:  # a dictionary may list values that no record has
            code = self._code(texts[i])
            if code is None:
                where = place(int(np.flatnonzero(index == i)[0]))
                raise InputError(
                    f"label {self.name!r} has the value {texts[i]!r} in {where}, neither 0/1 nor true/false: "
                    f"name the positive one with {option('positive')}"
                )
            codes[i] = code
        return codes[index]

    def _code(self, text: str) -> int | None:
        if self.positive is not None:
            return int(same_value(text, self.positive))
        common = key(text)
        if common in ("0", "1"):
            return int(common)
        return None


@dataclass(frozen=True, repr=False)
class Schema:
    """Features in their order, and labels.

    Examples
    --------
    >>> from agglearn import Categorical, Label, Schema
    >>> colour = Categorical(name="colour", values=("blue", "red"), missing=False)
    >>> Schema(features=(colour,), labels=(Label("click"),)).cards
    (2,)
    """

    features: tuple[Feature, ...]
    labels: tuple[Label, ...]

    def __post_init__(self) -> None:
        names = [f.name for f in self.features] + [label.name for label in self.labels]
        twice = repeated(names)
        if twice is not None:
            raise SchemaError(f"column {twice!r} stands twice in the schema")
        if not self.features:
            raise SchemaError("no feature is left: the schema needs one column besides the label")

    def __repr__(self) -> str:
        """What it is, and the first few features."""
        shown = [(clip(f.name), f.kind, f.n_modalities) for f in self.features[:_LISTED]]
        width = max(len(name) for name, _, _ in shown)
        lines = [f"  {name:<{width}}  {kind:<11} {n:>6,} modalities" for name, kind, n in shown]
        if len(self.features) > _LISTED:
            lines.append(f"  … and {len(self.features) - _LISTED:,} more")
        return "\n".join([f"<{self.title}>", *lines])

    def _repr_html_(self) -> str:
        rows = [[f.name, f.kind, f"{f.n_modalities:,}"] for f in self.features[:_LISTED]]
        return html_table(
            self.title, ["feature", "kind", "modalities"], rows, max(0, len(self.features) - _LISTED)
        )

    @property
    def title(self) -> str:
        """What it is, on one line."""
        labels = ("label " if len(self.labels) == 1 else "labels ") + some(self.label_names)
        return f"Schema of {counted(len(self.features), 'feature')}, {clip(labels, 60)}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(f.name for f in self.features)

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    @cached_property
    def cards(self) -> tuple[int, ...]:
        """Number of modalities of each feature."""
        return tuple(f.n_modalities for f in self.features)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each feature."""
        return {name: i for i, name in enumerate(self.names)}

    def feature(self, name: str) -> Feature:
        """The feature of that name."""
        if name not in self.index:
            raise SchemaError(f"no feature is called {name!r}: there are {some(self.names)}")
        return self.features[self.index[name]]

    def select(self, names: Sequence[str]) -> Schema:
        """The schema with these features only, in their old order."""
        wanted = {self.feature(n).name for n in names}
        return Schema(tuple(f for f in self.features if f.name in wanted), self.labels)

    def encode(self, batch: Any) -> Codes:
        """Codes of a batch of raw records, a row per feature; unknown is the feature's M."""
        require_columns(self.names, batch.schema.names)
        codes = np.empty((len(self.features), batch.num_rows), code_type(max(self.cards)))
        for row, feature in zip(codes, self.features, strict=True):
            row[:] = feature.encode(batch.column(feature.name))
        return codes

    def encode_labels(self, batch: Any) -> npt.NDArray[np.uint8]:
        """Labels of a batch of raw records, a row per label."""
        require_columns(self.label_names, batch.schema.names, what="label")
        labels = np.empty((len(self.labels), batch.num_rows), np.uint8)
        for row, label in zip(labels, self.labels, strict=True):
            row[:] = label.encode(batch.column(label.name), partial(place_of, batch))
        return labels

    def decode(self, codes: Codes, rng: np.random.Generator) -> Any:
        """Raw records (an Arrow table) of codes that have a row per feature."""
        arrays = [f.decode(row, rng) for f, row in zip(self.features, codes, strict=True)]
        return pa.table(arrays, names=list(self.names))

    def to_json(self) -> dict[str, Any]:
        """The schema as plain JSON values."""
        return {
            "features": [f.to_json() for f in self.features],
            "labels": [vars(label) for label in self.labels],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], where: str = "schema") -> Schema:
        """The schema that :meth:`to_json` wrote; ``where`` names the file in errors."""
        try:
            features = tuple(_feature_from_json(f) for f in listed(document["features"], "features"))
            labels = tuple(_label_from_json(x) for x in listed(document["labels"], "labels"))
            if not labels:
                raise ValueError("it has no label")
        except KeyError as error:
            raise SchemaError(f"{where}: not a schema (it lacks {error.args[0]!r})") from None
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise SchemaError(f"{where}: not a schema ({error})") from None
        return cls(features, labels)


def some(names: Sequence[str]) -> str:
    """A few of the names, for a message."""
    shown = ", ".join(repr(n) for n in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def require_columns(wanted: Sequence[str], present: Sequence[str], what: str = "column") -> None:
    """Refuse records that lack a column."""
    absent = [name for name in wanted if name not in present]
    if absent:
        hint = ""
        if len(present) == 1 and any(mark in present[0] for mark in ",;\t|"):
            hint = f"; is the separator wrong? say it with {option('separator')}"
        raise InputError(
            f"{what} {some(absent)} is not in the records, whose columns are {some(present)}{hint}"
        )


def _label_from_json(document: Mapping[str, Any]) -> Label:
    document = mapping(document, "a label")
    values = [document.get("positive"), document.get("negative")]
    written = [None if v is None else as_written(v, "a value") for v in values]
    return Label(text(document["name"], "a name"), *written)


def _feature_from_json(document: Mapping[str, Any]) -> Feature:
    document = mapping(document, "a feature")
    name, kind = document["name"], document["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"feature {name!r} is of unknown kind {kind!r}")
    return KINDS[kind].from_json(document)
