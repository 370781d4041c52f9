"""What was measured, and the targets it is judged by."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Result:
    """One thing measured.

    Attributes
    ----------
    subject, what, setting
        The section that measured it, what it is in a few words, and on what sizes.
    value
        What the target speaks of, mostly a ratio measured in one run; None where it could not be measured.
    unit
        Of the value and of the bound.
    sense, bound
        The target: ``≥`` or ``≤``, and a number; none where the sense is empty.
    detail
        Numbers behind the value.
    curves
        Lines to plot, as (x, y) points by name.
    note
        Why the value could not be measured.
    """

    subject: str
    what: str
    value: float | None
    unit: str = "×"
    setting: str = ""
    sense: str = ""
    bound: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    note: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the target was met; None where there is none, or no value."""
        if self.value is None or not self.sense:
            return None
        return self.value >= self.bound if self.sense == "≥" else self.value <= self.bound

    @property
    def target(self) -> str:
        """The target as text."""
        return f"{self.sense} {number(self.bound)}" if self.sense else ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def number(value: float) -> str:
    """A number to read."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def at_least(
    subject: str, what: str, value: float, bound: float, unit: str = "×", setting: str = "", **detail: Any
) -> Result:
    """A result that should be at least ``bound``."""
    return Result(subject, what, value, unit, setting, "≥", bound, detail)


def at_most(
    subject: str, what: str, value: float, bound: float, unit: str = "×", setting: str = "", **detail: Any
) -> Result:
    """A result that should be at most ``bound``."""
    return Result(subject, what, value, unit, setting, "≤", bound, detail)


def plain(subject: str, what: str, value: float, unit: str, setting: str = "", **detail: Any) -> Result:
    """A result that has no target."""
    return Result(subject, what, value, unit, setting, detail=detail)


def not_measured(subject: str, what: str, why: str) -> Result:
    """A thing that could not be measured here."""
    return Result(subject, what, None, "", note=" ".join(why.split()))
