"""What a feature does to a raw value, as data: a look-up, or cuts.

Every kind of feature is one of two rules. Whoever has to apply them elsewhere (an engine that groups records
where they are, a database that is sent SQL, a program in another language) reads these two shapes and needs
not know of kinds.

- :class:`LookUp`: the text of the value, or the number it writes, has a code; any other has a default.
- :class:`Cuts`: a number has as its code how many cuts lie at or below it.

A code as large as the number of modalities stands for *unknown*, in either. Codes have 16 bits, or 32 where a
feature has more modalities than that can tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.runtime.arrays import to_numpy
from agglearn.schema.columns import Column, as_numbers, as_text, distinct, one_array, small_integers
from agglearn.schema.values import by_key, is_whole, key

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]

_WIDEST = 1 << 20  # range of integers that are looked up in an array: 2 MiB of codes


def code_type(greatest: int) -> type[np.unsignedinteger[Any]]:
    """The type of codes up to this one; of a feature that is the number of its modalities, for *unknown*."""
    return np.uint16 if greatest < 1 << 16 else np.uint32


@dataclass(frozen=True)
class LookUp:
    """Codes by the canonical text of a value, or by the number or answer that the text is a writing of.

    Attributes
    ----------
    codes
        The code of each text.
    default
        The code of any other value.
    missing
        The code of a missing value.
    value_type
        What the values were before they became text: a key of :data:`~agglearn.schema.features.VALUE_TYPES`.
    """

    codes: Mapping[str, int]
    default: int
    missing: int
    value_type: str = "string"

    @cached_property
    def one_to_one(self) -> bool:
        """Whether no two values share a code."""
        return len(set(self.codes.values())) == len(self.codes)

    @cached_property
    def by_key(self) -> dict[str, int]:
        """Codes by what numbers and answers are, however they are written."""
        return by_key(self.codes)

    def code(self, text: str) -> int:
        """The code of a value's text."""
        found = self.codes.get(text)
        if found is None and self.by_key and (common := key(text)) is not None:
            found = self.by_key.get(common)
        return self.default if found is None else found

    @cached_property
    def _type(self) -> type[np.unsignedinteger[Any]]:
        return code_type(max(self.default, self.missing, *self.codes.values(), 0))

    @cached_property
    def _integer_codes(self) -> tuple[int, Codes] | None:
        """For integers in a narrow range: the least one, and codes from there."""
        if not self.codes or len(self.by_key) < len(self.codes):
            return None
        if not all(map(is_whole, self.by_key)):
            return None
        numbers = [int(v) for v in self.by_key]
        low, span = min(numbers), max(numbers) - min(numbers) + 1
        if span > _WIDEST or low < -(2**63) or low + span > 2**63:
            return None
        codes: Codes = np.full(span + 1, self.default, self._type)  # the last one: outside the range
        codes[np.array(numbers) - low] = list(self.by_key.values())
        return low, codes

    def encode(self, column: Column) -> Codes:
        """Codes of a raw column."""
        array = one_array(column)
        plain = pa.types.is_integer(array.type) and not pa.types.is_uint64(array.type)
        if plain and not array.null_count and self._integer_codes:
            low, codes = self._integer_codes
            index = to_numpy(array).astype(np.int64) - low
            outside = np.uint64(len(codes) - 1)
            # A negative index wraps to a huge unsigned one, so one comparison guards both ends.
            found: Codes = codes[np.minimum(index.view(np.uint64), outside).view(np.int64)]
            return found
        values, index = distinct(array)
        texts = as_text(values).to_pylist()
        table: Codes = np.empty(len(texts) + 1, self._type)
        table[:-1] = [self.missing if t is None else self.code(t) for t in texts]
        table[-1] = self.missing  # index -1
        return table[index]


@dataclass(frozen=True, repr=False)
class Cut:
    """A boundary between two bins: at ``value``, which falls left of it if ``after``."""

    value: float
    after: bool = False

    def __repr__(self) -> str:
        return f"Cut({self.value!r}{', after=True' if self.after else ''})"


@dataclass(frozen=True)
class Cuts:
    """Codes by where a number lies among cuts.

    Attributes
    ----------
    cuts
        Boundaries, increasing; code k lies between cuts k - 1 and k.
    missing
        The code of a missing value.
    unknown
        The code of a value that is no number.
    """

    cuts: tuple[Cut, ...]
    missing: int
    unknown: int

    @cached_property
    def edges(self) -> npt.NDArray[np.float64]:
        """The least number to the right of each cut."""
        values = np.array([c.value for c in self.cuts], np.float64)
        after = np.array([c.after for c in self.cuts], bool)
        return np.where(after, np.nextafter(values, np.inf), values)

    def encode(self, column: Column) -> Codes:
        """Codes of a raw column; text that is no number is unknown."""
        found = small_integers(one_array(column))
        if found is not None:
            low, above = found
            every = np.arange(low, low + int(above.max()) + 1).astype(np.float64)
            return np.searchsorted(self.edges, every, side="right").astype(np.uint16)[above]
        numbers, bad = as_numbers(column)
        codes = np.searchsorted(self.edges, numbers, side="right").astype(np.uint16)
        codes[np.isnan(numbers)] = self.missing
        codes[bad] = self.unknown
        return codes


Rule: TypeAlias = LookUp | Cuts
