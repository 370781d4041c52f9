"""How a raw value becomes a code.

A feature is one of three kinds, each frozen once it is learnt or given:

- :class:`Categorical`: a vocabulary, and perhaps one modality for all rarer values;
- :class:`Binned`: a numeric column cut into intervals;
- :class:`Encoded`: a column of high cardinality whose values share codes by (count, rate) bins.

Codes run from 0 to M-1; the code M stands for *unknown*: a value the feature has no modality for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agglearn.errors import SchemaError
from agglearn.runtime.speech import option
from agglearn.schema.columns import Column, as_numbers, as_text, distinct, one_array, value_type

Codes: TypeAlias = npt.NDArray[np.uint16]

MAX_MODALITIES = 65_534
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


def _special(name: str, taken: set[str]) -> str:
    """A name for a special modality that no value of the data has."""
    while name in taken:
        name += "'"
    return name


@dataclass(frozen=True)
class _Feature:
    name: str
    missing: bool

    def __post_init__(self) -> None:
        if self.n_modalities > MAX_MODALITIES:
            raise SchemaError(
                f"feature {self.name!r} has {self.n_modalities:,} modalities and the most is "
                f"{MAX_MODALITIES:,}: fold the rare ones with {option('max_modalities')}, or target-encode it"
            )

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

    def _own_modalities(self) -> tuple[str, ...]:
        raise NotImplementedError


def _look_up(column: Column, codes: Mapping[str, int], default: int, missing: int) -> Codes:
    """Codes of a column by the text of its distinct values."""
    values, index = distinct(column)
    texts = as_text(values).to_pylist()
    table = np.empty(len(texts) + 1, np.uint16)
    table[:-1] = [missing if t is None else codes.get(t, default) for t in texts]
    table[-1] = missing  # index -1
    return table[index]


@dataclass(frozen=True)
class Categorical(_Feature):
    """A column of categories.

    Attributes
    ----------
    values
        The vocabulary, as canonical text.
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
    def _value_codes(self) -> dict[str, int]:
        return {text: code for code, text in enumerate(self.values)}

    @property
    def _default(self) -> int:
        return len(self.values) if self.other else self.n_modalities

    @cached_property
    def _integer_codes(self) -> tuple[int, Codes] | None:
        """For a vocabulary of integers in a narrow range: its least value, and codes from there."""
        if self.value_type != "integer" or not self.values:
            return None
        numbers = [int(v) for v in self.values]
        low, span = min(numbers), max(numbers) - min(numbers) + 1
        if span > 1 << 20 or low < -(2**63) or low + span > 2**63:
            return None
        codes = np.full(span + 1, self._default, np.uint16)  # the last one: outside the range
        codes[np.array(numbers) - low] = np.arange(len(numbers))
        return low, codes

    def encode(self, column: Column) -> Codes:
        """Codes of a raw column."""
        array = one_array(column)
        plain = pa.types.is_integer(array.type) and not pa.types.is_uint64(array.type)
        if plain and not array.null_count and self._integer_codes:
            low, codes = self._integer_codes
            index = array.to_numpy().astype(np.int64) - low
            outside = np.uint64(len(codes) - 1)
            # A negative index wraps to a huge unsigned one, so one comparison guards both ends.
            found: Codes = codes[np.minimum(index.view(np.uint64), outside).view(np.int64)]
            return found
        if self.value_type == "boolean" and value_type(array.type) == "string":
            array = pc.utf8_lower(as_text(array))  # some tools write True, some true
        return _look_up(array, self._value_codes, self._default, self.missing_code)

    def decode(self, codes: Codes, rng: np.random.Generator) -> Any:
        """Raw values of codes, as an Arrow array of the original type where that can hold them."""
        texts: list[str | None] = [*self._own_modalities()]
        texts += [None] * (self.n_modalities + 1 - len(texts))
        array = pa.array(texts, pa.string()).take(pa.array(codes))
        try:
            return array if self.other else array.cast(VALUE_TYPES[self.value_type])
        except pa.ArrowInvalid:  # a timestamp with a zone, a value added by hand
            return array


@dataclass(frozen=True)
class Cut:
    """A boundary between two bins: at ``value``, which falls left of it if ``after``."""

    value: float
    after: bool = False


@dataclass(frozen=True)
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

    @cached_property
    def _edges(self) -> npt.NDArray[np.float64]:
        values = np.array([c.value for c in self.cuts], np.float64)
        after = np.array([c.after for c in self.cuts], bool)
        return np.where(after, np.nextafter(values, np.inf), values)

    def _own_modalities(self) -> tuple[str, ...]:
        if not self.cuts:
            return ("any",)
        first, last = self.cuts[0], self.cuts[-1]
        inner = tuple(_interval(a, b) for a, b in zip(self.cuts, self.cuts[1:], strict=False))
        below = f"{'≤' if first.after else '<'} {_number(first.value)}"
        above = f"{'>' if last.after else '≥'} {_number(last.value)}"
        return (below, *inner, above)

    def encode(self, column: Column) -> Codes:
        """Codes of a raw column; text that is no number is unknown."""
        numbers, bad = as_numbers(column)
        codes = np.searchsorted(self._edges, numbers, side="right").astype(np.uint16)
        codes[np.isnan(numbers)] = self.missing_code
        codes[bad] = self.n_modalities
        return codes

    def decode(self, codes: Codes, rng: np.random.Generator) -> Any:
        """Raw values of codes: a uniform draw within each bin."""
        edges = self._edges
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


@dataclass(frozen=True)
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
    def _value_codes(self) -> dict[str, int]:
        return dict(zip(self.values, self.codes, strict=True))

    def encode(self, column: Column) -> Codes:
        """Codes of a raw column; a value never seen has the first code."""
        return _look_up(column, self._value_codes, 0, self.missing_code)

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
