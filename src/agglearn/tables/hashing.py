"""The bucket of a combination of modalities: a fixed mixing function of the codes, compiled.

Data and model agree on it for ever: it never changes.
"""

from __future__ import annotations

import numpy as np

from agglearn.runtime.compiled import njit

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


@njit(nogil=True, inline="always")
def mix(state, code):  # type: ignore[no-untyped-def]
    """Fold one code into the running 64-bit state of a combination (start from 0)."""
    state = (state ^ (np.uint64(code) + np.uint64(1))) * _MULTIPLIER
    return state ^ (state >> _SHIFT)


@njit(nogil=True, inline="always")
def bucket(state, hash_size):  # type: ignore[no-untyped-def]
    """The bucket of a combination whose codes have all been mixed into ``state``."""
    return state % np.uint64(hash_size)


@njit(nogil=True)
def hashed_cells(codes, hash_size):  # type: ignore[no-untyped-def]
    """Buckets of many combinations; ``codes`` has a row per feature of the table."""
    arity, n = codes.shape
    cells = np.empty(n, np.int64)
    for i in range(n):
        state = np.uint64(0)
        for k in range(arity):
            state = mix(state, codes[k, i])
        cells[i] = np.int64(bucket(state, hash_size))
    return cells
