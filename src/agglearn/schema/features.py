"""Kinds of feature: what the modalities of a column are, and what stands behind a code.

A feature is one of three kinds, each frozen once it is learnt or given:

- :class:`Categorical`: a vocabulary, and perhaps one modality for all rarer values;
- :class:`Binned`: a numeric column cut into intervals;
- :class:`Encoded`: a column of high cardinality whose values share codes by (count, rate) bins.

How a raw value becomes a code is the feature's :attr:`rule`, one of the two shapes of
:mod:`agglearn.schema.rules`. Codes run from 0 to M-1; the code M stands for *unknown*: a value the feature
has no modality for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from agglearn.errors import SchemaError
from agglearn.runtime.declared import finite, listed, text, truth, whole
from agglearn.runtime.display import WIDTH, clip
from agglearn.runtime.speech import option
from agglearn.schema.columns import Column
from agglearn.schema.rules import Codes, Cut, Cuts, LookUp, Rule
from agglearn.schema.values import float_text, is_whole, number_text

__all__ = [
    "KINDS",
    "MAX_MODALITIES",
    "MISSING",
    "OTHER",
    "VALUE_TYPES",
    "Binned",
    "Categorical",
    "Codes",
    "Cut",
    "Encoded",
    "Feature",
]

MAX_MODALITIES = 1_000_000
OTHER = "(other)"
MISSING = "(missing)"

VALUE_TYPES = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "float": pa.float64(),
    "date": pa.date32(),
    "time": pa.string(),  # Arrow reads no time of day from text
    "timestamp": pa.timestamp("us"),
    "string": pa.string(),
}


def _texts(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of different texts."""
    what = f"feature {document['name']!r}: {key}"
    texts = tuple(as_written(value, what) for value in listed(document[key], what))
    if len(set(texts)) != len(texts):
        raise ValueError(f"feature {document['name']!r} lists one of its {key} twice")
    return texts


def as_written(value: Any, what: str) -> str:
    """A value that whoever wrote the file by hand may have left a number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return float_text(finite(value, what))
    return text(value, what)


def _missing(document: Mapping[str, Any]) -> bool:
    return truth(document.get("missing", False), "missing")


def _special(name: str, taken: set[str]) -> str:
    """A name for a special modality that no value of the data has."""
    while name in taken:
        name += "'"
    return name


@dataclass(frozen=True, repr=False)
class _Feature:
    name: str
    missing: bool

    kind: ClassVar[str]

    @property
    def ordered(self) -> int:
        """How many of its codes, the first ones, are bins of a number, in order."""
        return 0

    def __post_init__(self) -> None:
        if self.n_modalities > MAX_MODALITIES:
            raise SchemaError(
                f"feature {self.name!r} has {self.n_modalities:,} modalities and the most is "
                f"{MAX_MODALITIES:,}: fold the rare ones with {option('max_modalities')}, or target-encode it"
            )

    def __repr__(self) -> str:
        """Python that makes the feature again, or its beginning where that is long."""
        kind = type(self).__name__
        whole = f"{kind}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(self))})"
        if len(whole) <= WIDTH:
            return whole
        first = ", ".join(repr(clip(text)) for text in self.modalities[:2])
        return f"<{kind} {clip(self.name)!r}: {self.n_modalities:,} modalities, {first}, …>"

    @cached_property
    def modalities(self) -> tuple[str, ...]:
        """What each code means, as text; no two are equal."""
        own = self._own_modalities()
        return (*own, _special(MISSING, set(own))) if self.missing else own

    @property
    def n_modalities(self) -> int:
        return len(self.modalities)

    @cached_property
    def code_of(self) -> dict[str, int]:
        """The code of each modality's text."""
        return {text: code for code, text in enumerate(self.modalities)}

    @property
    def missing_code(self) -> int:
        """The code of a missing value: its own modality, or unknown."""
        return self.n_modalities - 1 if self.missing else self.n_modalities

    @property
    def rule(self) -> Rule:
        """What becomes of a raw value."""
        raise NotImplementedError

    def encode(self, column: Column) -> Codes:
        """Codes of a raw column."""
        return self.rule.encode(column)

    def to_json(self) -> dict[str, Any]:
        """The feature as plain JSON values."""
        return {"name": self.name, "kind": self.kind, "missing": self.missing} | self._own_json()

    def _own_modalities(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _own_json(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Categorical(_Feature):
    """A column of categories.

    Attributes
    ----------
    values
        The vocabulary, as canonical text. A number in it is that number, however a record writes it.
    value_type
        What the values were before they became text: string, integer, boolean, float, date, time
        or timestamp.
    other
        Whether every value outside the vocabulary shares one modality. Without it such a value is
        unknown.
    missing
        Whether a missing value has a modality of its own. Without it a missing value is unknown.
    """

    values: tuple[str, ...]
    value_type: str = "string"
    other: bool = False

    kind: ClassVar[str] = "categorical"

    def _own_modalities(self) -> tuple[str, ...]:
        return (*self.values, _special(OTHER, set(self.values))) if self.other else self.values

    @cached_property
    def rule(self) -> LookUp:
        """The vocabulary; any other value is the one modality they share, or unknown."""
        codes = {text: code for code, text in enumerate(self.values)}
        default = len(self.values) if self.other else self.n_modalities
        return LookUp(codes, default, self.missing_code, self.value_type)

    def _own_json(self) -> dict[str, Any]:
        return {"values": list(self.values), "value_type": self.value_type, "other": self.other}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Categorical:
        """The feature that :meth:`to_json` wrote."""
        name, values = text(document["name"], "a name"), _texts(document, "values")
        value_type = document.get("value_type", "string")
        if not isinstance(value_type, str) or value_type not in VALUE_TYPES:
            raise ValueError(f"feature {name!r} has values of unknown type {value_type!r}")
        if value_type == "integer" and not all(v == number_text(v) and is_whole(v) for v in values):
            raise ValueError(f"feature {name!r} has a value that is not written as an integer")
        other, missing = truth(document.get("other", False), "other"), _missing(document)
        if not values and not other and not missing:
            raise ValueError(f"feature {name!r} has no modality")
        return cls(name, missing, values, value_type, other)

    def decode(self, codes: Codes, rng: np.random.Generator) -> Any:
        """Raw values of codes, as an Arrow array of the original type where that can hold them."""
        texts: list[str | None] = [*self._own_modalities()]
        texts += [None] * (self.n_modalities + 1 - len(texts))
        array = pa.array(texts, pa.string()).take(pa.array(codes))
        try:
            return array if self.other else array.cast(VALUE_TYPES[self.value_type])
        except pa.ArrowInvalid:  # a timestamp with a zone, a value added by hand
            return array


@dataclass(frozen=True, repr=False)
class Binned(_Feature):
    """A numeric column cut into intervals; the outer two are open-ended.

    Attributes
    ----------
    cuts
        Boundaries, increasing. A single value that has a bin of its own stands between a cut before
        it and a cut after it.
    low, high
        The range of the values, used to draw a raw value from an outer bin.
    integer
        Whether the raw values are whole numbers.
    missing
        Whether a missing value has a modality of its own. Without it a missing value is unknown.
    """

    cuts: tuple[Cut, ...]
    low: float
    high: float
    integer: bool = False

    kind: ClassVar[str] = "numeric"

    def __post_init__(self) -> None:
        keys = [(c.value, c.after) for c in self.cuts]
        numbers = [self.low, self.high, *(c.value for c in self.cuts)]
        if sorted(set(keys)) != keys or not np.all(np.isfinite(numbers)):
            raise SchemaError(f"feature {self.name!r}: bin edges must be finite and increasing")
        super().__post_init__()

    @property
    def ordered(self) -> int:
        """How many of its codes, the first ones, are bins of a number, in order."""
        return len(self.cuts) + 1

    @cached_property
    def rule(self) -> Cuts:
        """The cuts; text that is no number is unknown."""
        return Cuts(self.cuts, self.missing_code, self.n_modalities)

    def _own_modalities(self) -> tuple[str, ...]:
        if not self.cuts:
            return ("any",)
        first, last = self.cuts[0], self.cuts[-1]
        inner = tuple(_interval(a, b) for a, b in zip(self.cuts, self.cuts[1:], strict=False))
        below = f"{'≤' if first.after else '<'} {_number(first.value)}"
        above = f"{'>' if last.after else '≥'} {_number(last.value)}"
        return (below, *inner, above)

    def _own_json(self) -> dict[str, Any]:
        cuts = [[c.value, c.after] for c in self.cuts]
        return {"cuts": cuts, "low": self.low, "high": self.high, "integer": self.integer}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Binned:
        """The feature that :meth:`to_json` wrote; a cut may be its value alone."""
        written = listed(document["cuts"], "cuts")
        cuts = [listed(c, "a cut", 2) if isinstance(c, list) else [c, False] for c in written]
        edges = [float(finite(value, "a cut")) for value, _ in cuts]
        return cls(
            name=text(document["name"], "a name"),
            missing=_missing(document),
            cuts=tuple(
                Cut(edge, truth(after, "a cut")) for edge, (_, after) in zip(edges, cuts, strict=True)
            ),
            low=float(finite(document.get("low", edges[0] if edges else 0.0), "low")),
            high=float(finite(document.get("high", edges[-1] if edges else 0.0), "high")),
            integer=truth(document.get("integer", False), "integer"),
        )

    def decode(self, codes: Codes, rng: np.random.Generator) -> Any:
        """Raw values of codes: a uniform draw within each bin."""
        edges = self.rule.edges
        low, high = self.low, self.high
        if len(edges):  # given edges may lie beyond the range: an outer bin then holds one value
            below = np.ceil(edges[0]) - 1 if self.integer else np.nextafter(edges[0], -np.inf)
            low, high = min(low, below), max(high, np.ceil(edges[-1]) if self.integer else edges[-1])
        starts = np.concatenate([[low], edges])
        stops = np.concatenate([np.nextafter(edges, -np.inf), [high]])
        if self.integer:
            starts = np.ceil(starts)
            stops = np.maximum(np.floor(stops), starts)
        known = codes < len(starts)
        bins = np.where(known, codes, 0)
        start, stop = starts[bins], stops[bins]
        drawn = rng.random(len(codes))
        steps = np.floor((stop - start + 1) * drawn) if self.integer else (stop - start) * drawn
        values = np.minimum(start + steps, stop)
        array = pa.array(values, mask=~known)
        return array.cast(pa.int64(), safe=False) if self.integer else array


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _interval(a: Cut, b: Cut) -> str:
    if a.value == b.value:
        return _number(a.value)
    left, right = "(" if a.after else "[", "]" if b.after else ")"
    return f"{left}{_number(a.value)}, {_number(b.value)}{right}"


@dataclass(frozen=True, repr=False)
class Encoded(_Feature):
    """A column whose values share codes by how often they occur and how often they are positive.

    Attributes
    ----------
    groups
        What each code means; the first is for values that the encoding has never seen.
    values
        The values the encoding was learnt on, as canonical text.
    codes
        The code of each of ``values``.
    """

    groups: tuple[str, ...]
    values: tuple[str, ...]
    codes: tuple[int, ...]

    kind: ClassVar[str] = "encoded"

    def _own_modalities(self) -> tuple[str, ...]:
        return self.groups

    @cached_property
    def rule(self) -> LookUp:
        """The values learnt; a value never seen has the first code."""
        return LookUp(dict(zip(self.values, self.codes, strict=True)), 0, self.missing_code)

    def _own_json(self) -> dict[str, Any]:
        return {"groups": list(self.groups), "values": list(self.values), "codes": list(self.codes)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Encoded:
        """The feature that :meth:`to_json` wrote."""
        groups, values = _texts(document, "groups"), _texts(document, "values")
        found = listed(document["codes"], "codes", len(values))
        codes = tuple(whole(code, "a code", 0, len(groups) - 1) for code in found)
        if not groups:
            raise ValueError(f"feature {document['name']!r} has no modality")
        return cls(text(document["name"], "a name"), _missing(document), groups, values, codes)

    def decode(self, codes: Codes, rng: np.random.Generator) -> Any:
        """Raw values of codes: one of those that share the code, each as likely."""
        members: list[list[str]] = [[] for _ in self.groups]
        for value, code in zip(self.values, self.codes, strict=True):
            members[code].append(value)
        drawn = rng.random(len(codes))
        texts = [
            (members[c][int(u * len(members[c]))] if members[c] else OTHER) if c < len(self.groups) else None
            for c, u in zip(codes.tolist(), drawn.tolist(), strict=True)
        ]
        return pa.array(texts, pa.string())


Feature: TypeAlias = Categorical | Binned | Encoded

KINDS: dict[str, type[Feature]] = {kind.kind: kind for kind in (Categorical, Binned, Encoded)}
"""The kinds of feature by their name in files."""
