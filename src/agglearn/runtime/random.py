"""Where random numbers begin: every stream has its key."""

from __future__ import annotations

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1


def stream_key(seed: int, iteration: int, stream: int) -> np.uint64:
    """The starting point of one stream of numbers."""
    key = 0
    for part in (seed, iteration, stream):
        key = _scramble((key ^ (part & _WORD)) + _GOLDEN)
    return np.uint64(key)


def _scramble(z: int) -> int:
    """The finaliser of SplitMix64 on Python integers, as the kernels has it compiled."""
    z &= _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)
