"""Every random number has a name: what it is for, and which one of its kind.

Two kinds of source, both by counter, so that no number depends on threads, blocks or the order of work:

- :class:`Numbers` gives keys to the kernels that move chains (:mod:`agglearn.field.kernels.rng`);
- :func:`generator` gives a numpy generator to everything that draws a few arrays.

A :class:`Use` says what numbers are for. No two uses share a number, however their seeds are chosen: a model
that is sampled with the seed it was trained with draws afresh.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1


class Use(IntEnum):
    """What random numbers are for. The numbers are part of every result: never reuse one."""

    TRAIN = 0  # the chains of a fit, and where they start
    WALK = 1  # chains on the way from penalty to penalty
    DRAW = 2  # chains of a fitted model set in motion again
    EXACT = 3  # records drawn from an enumerated law
    RECORDS = 4  # raw values and labels of synthetic records
    DEGREES = 5  # random functions that tell degrees of freedom
    PRIOR = 6  # probes of how large weights are
    POSTERIOR = 7  # draws of the weights
    ROOM = 8  # random functions that tell what a further table could
    SEARCHED = 16  # which records a penalty is chosen on
    SIMULATED_NOISE = 20  # noise as that of a private release, for experiments


class Stream(IntEnum):
    """What the numbers of one iteration of moving chains are for."""

    FIRST_LABELS = 0
    FEATURES = 1
    LABELS = 2
    GROW = 3
    TALLIED_LABELS = 4
    GROUPS = 5


@dataclass(frozen=True)
class Numbers:
    """The random numbers of one run of moving chains.

    Attributes
    ----------
    seed
        The user's.
    use
        What they are for.
    part
        Which of several runs side by side: a fold, a segment of a walk.
    """

    seed: int
    use: Use = Use.TRAIN
    part: int = 0

    def key(self, iteration: int, stream: Stream) -> np.uint64:
        """The starting point of one stream of numbers."""
        key = 0
        for number in (self.seed, iteration, stream + (self.use << 8) + (self.part << 16)):
            key = _scramble((key ^ (number & _WORD)) + _GOLDEN)
        return np.uint64(key)

    def generator(self, block: int = 0) -> np.random.Generator:
        """A numpy generator for what is drawn before the chains move; each block of them has its own."""
        return generator(
            self.seed, self.use, *((self.part, block) if block else (self.part,) if self.part else ())
        )


def generator(seed: int, use: Use, *numbers: int) -> np.random.Generator:
    """A generator for one use of a seed, and for one of several draws if these are numbered."""
    spawned = (int(use), *numbers) if use or numbers else ()
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=spawned)))


def scrambled(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64: each number makes one that looks random."""
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _scramble(z: int) -> int:
    """The same on Python integers, as the kernels have it compiled."""
    z &= _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)
