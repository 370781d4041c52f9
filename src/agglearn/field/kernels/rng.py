# mypy: disallow-untyped-decorators=False
"""Random numbers by counter: the same number for the same (seed, iteration, stream, counter).

SplitMix64 run from a hashed starting point: number ``k`` of a stream is a function of its key and
``k`` alone, so a draw depends on which chain and feature it is for, never on which thread makes it
or in what order.
"""

import numpy as np

from agglearn.runtime.compiled import njit

_STEP = np.uint64(0x9E3779B97F4A7C15)


@njit(nogil=True, inline="always")
def random_bits(key, counter):  # type: ignore[no-untyped-def]
    """64 random bits: number ``counter`` of the stream ``key``."""
    z = key + (counter + np.uint64(1)) * _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(nogil=True, inline="always")
def uniform32(key, counter):  # type: ignore[no-untyped-def]
    """A float32 in [0, 1), a multiple of 2⁻²⁴."""
    return np.float32(random_bits(key, counter) >> np.uint64(40)) * np.float32(2.0**-24)


@njit(nogil=True, inline="always")
def uniform64(key, counter):  # type: ignore[no-untyped-def]
    """A float64 in [0, 1), a multiple of 2⁻⁵³."""
    return np.float64(random_bits(key, counter) >> np.uint64(11)) * 2.0**-53
