"""The noise that was put on tables before they were given away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agglearn.errors import InputError

NOISE_LAWS = ("gaussian", "laplace", "rounding")


@dataclass(frozen=True)
class Noise:
    """The noise that was added to each number of a table.

    ``scale`` is the standard deviation of a Gaussian, the scale b of a Laplace law, or the largest
    error of a rounding: 2.5 where numbers are multiples of 5.
    """

    law: str
    scale: float

    def __post_init__(self) -> None:
        if self.law not in NOISE_LAWS or not (np.isfinite(self.scale) and self.scale > 0):
            raise InputError(
                f"noise {self.law}:{self.scale:g} is not one of {', '.join(NOISE_LAWS)} with a scale "
                "above 0, such as gaussian:17"
            )

    @classmethod
    def parse(cls, text: str) -> Noise:
        """Read ``LAW:SCALE``, such as ``gaussian:17``; ``rounding-to:5`` is ``rounding:2.5``."""
        law, _, written = text.partition(":")
        try:
            scale = float(written)
        except ValueError:
            raise InputError(f"noise {text!r} is not LAW:SCALE, such as gaussian:17") from None
        return cls("rounding", scale / 2) if law == "rounding-to" else cls(law, scale)

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise."""
        factor = {"gaussian": 1.0, "laplace": np.sqrt(2.0), "rounding": 1 / np.sqrt(3.0)}
        return float(self.scale * factor[self.law])

    def __str__(self) -> str:
        return f"{self.law}:{self.scale:g}"
