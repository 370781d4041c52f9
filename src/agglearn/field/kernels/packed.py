# mypy: disallow-untyped-decorators=False
"""Numbers on their way between machines: zeros and small ones take less room, and nothing is lost.

A vector goes as planes of bits, the low ones first. A plane says of each place in one bit whether it holds
anything there but zeros, and then what. Most cells of large tables are visited by no chain of a block and
have no θ; counts and rounded weights are mostly small, so that their upper bits are zeros too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agglearn.runtime.compiled import njit

Array = npt.NDArray[Any]

_PLANES: dict[str, tuple[tuple[int, str], ...]] = {  # how many bits, and as what they go
    "float64": ((64, "uint64"),),
    "uint32": ((8, "uint8"), (8, "uint8"), (16, "uint16")),
    "int64": ((32, "uint32"), (32, "uint32")),
    "int32": ((8, "uint8"), (24, "uint32")),
}


class Packed(NamedTuple):
    """A vector in planes, each as marks and the words that are not zero."""

    dtype: str
    size: int
    planes: tuple[tuple[npt.NDArray[np.uint8], Array], ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return sum(marks.nbytes + words.nbytes for marks, words in self.planes)


def pack(values: Array) -> Packed:
    """The vector with its zeros taken out; numbers without a fraction are at least 0."""
    dtype = values.dtype.name
    bits = np.ascontiguousarray(values).view(f"uint{8 * values.itemsize}")
    planes, shift = [], 0
    for width, kind in _PLANES[dtype]:
        marks = np.zeros(-(-values.size // 8), np.uint8)
        words = np.empty(values.size + 1, kind)
        mask = bits.dtype.type((1 << width) - 1)
        n = _pack(bits, bits.dtype.type(shift), mask, marks, words)
        planes.append((marks, words[:n].copy()))
        shift += width
    return Packed(dtype, values.size, tuple(planes))


def unpack(packed: Packed, out: Array | None = None) -> Array:
    """The vector again, in an array of its own or in the one given."""
    values = np.zeros(packed.size, packed.dtype) if out is None else out
    bits, shift = values.view(f"uint{8 * values.itemsize}"), 0
    bits[:] = 0
    for (width, _), (marks, words) in zip(_PLANES[packed.dtype], packed.planes, strict=True):
        if words.size:
            _unpack(marks, words, bits.dtype.type(shift), bits)
        shift += width
    return values


def whole(sums: npt.NDArray[np.float64], unit: float, kind: Any) -> Array:
    """Sums as whole numbers of a unit that they are multiples of; their own memory is used."""
    found: Array = sums.view(kind)[: sums.size]
    _whole(sums, 1 / unit, found)
    return found


@njit(nogil=True)
def _whole(sums, units, found):  # type: ignore[no-untyped-def]
    for k in range(sums.size):  # in this order: a number is read before its place is written to
        found[k] = sums[k] * units


@njit(nogil=True)
def _pack(bits, shift, mask, marks, words):  # type: ignore[no-untyped-def]
    n = 0
    for k in range(bits.size):
        word = (bits[k] >> shift) & mask
        words[n] = word
        there = word != 0
        marks[k >> 3] |= np.uint8(there) << np.uint8(k & 7)
        n += there
    return n


@njit(nogil=True)
def _unpack(marks, words, shift, bits):  # type: ignore[no-untyped-def]
    n = 0
    last = words.size - 1
    for k in range(bits.size):
        there = (marks[k >> 3] >> np.uint8(k & 7)) & np.uint8(1)
        word = bits.dtype.type(words[min(n, last)])
        bits[k] |= (word << shift) * bits.dtype.type(there)
        n += there
