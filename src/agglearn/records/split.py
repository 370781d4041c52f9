"""Which part of a split a record belongs to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError

TRAIN = "train"


def parse_split(text: str) -> dict[str, float]:
    """Read ``valid=0.2,test=0.2``."""
    shares: dict[str, float] = {}
    for term in text.split(","):
        name, _, share = term.strip().partition("=")
        if name in shares:
            raise InputError(f"split part {name!r} stands twice")
        try:
            shares[name] = float(share)
        except ValueError:
            raise InputError(f"split {term!r} is not NAME=SHARE, such as valid=0.2") from None
    check_split(shares)
    return shares


def check_split(shares: Mapping[str, float]) -> None:
    """Refuse shares that leave nothing to train on, and names that cannot be part of a file name."""
    for name, share in shares.items():
        if not name.isidentifier() or name == TRAIN:
            raise InputError(f"split part {name!r} needs a plain name other than {TRAIN!r}")
        if not 0 < share < 1:
            raise InputError(f"split part {name}={share:g} must be between 0 and 1")
    if sum(shares.values()) >= 1:
        raise InputError("the parts of the split leave nothing to train on: their sum must be below 1")


def assign(start: int, n: int, seed: int, shares: Mapping[str, float]) -> npt.NDArray[np.uint8]:
    """The part of each of ``n`` records from number ``start`` on: 0 for the rest, k for the k-th share.

    The answer depends on the seed and the record's number alone, never on how records are batched.
    """
    with np.errstate(over="ignore"):  # the splitmix64 generator, as a function of (seed, record)
        z = np.arange(start, start + n, dtype=np.uint64)
        z += np.uint64(seed % 2**64) * np.uint64(0x632BE59BD9B4E019)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    uniform = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    bounds = np.cumsum(list(shares.values()))
    part = np.searchsorted(bounds, uniform, side="right") + 1
    return np.where(part > len(bounds), 0, part).astype(np.uint8)
