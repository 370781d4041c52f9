"""When records are from: a day, a span of days, or the number of a period."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from agglearn.errors import InputError

_DAY = r"\d{4}-\d{2}-\d{2}"
_NAMED_DAY = re.compile(rf"(?<!\d)({_DAY})(?!\d)")
_NAMED_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True)
class Period:
    """From the first of its days to the last, both of them in it.

    Attributes
    ----------
    first, last
        Days since 1 January of year 1, or numbers of periods.
    dated
        Whether they are days.
    """

    first: int
    last: int
    dated: bool

    @classmethod
    def parse(cls, text: str) -> Period:
        """Read ``2026-03-01``, ``2026-03-01/2026-03-07``, ``12`` or ``12/14``."""
        ends = [end.strip() for end in text.split("/")]
        try:
            dated = [re.fullmatch(_DAY, end) is not None for end in ends]
            numbers = [
                date.fromisoformat(e).toordinal() if d else int(e) for e, d in zip(ends, dated, strict=True)
            ]
        except ValueError:
            raise _no_period(text) from None
        if len(ends) > 2 or len(set(dated)) > 1 or numbers[0] > numbers[-1]:
            raise _no_period(text)
        return cls(numbers[0], numbers[-1], dated[0])

    @classmethod
    def named(cls, name: str) -> Period | None:
        """The period that a name tells: the one day in it, or the number at its end."""
        days = _NAMED_DAY.findall(name)
        if len(days) == 1:
            try:
                return cls.parse(days[0])
            except InputError:
                return None
        number = _NAMED_NUMBER.search(name)
        return cls.parse(number[1]) if number and not days else None

    def __or__(self, other: Period) -> Period:
        """The least period that holds both."""
        if self.dated != other.dated:
            raise InputError(f"a day ({self if self.dated else other}) and a number cannot be put in order")
        return Period(min(self.first, other.first), max(self.last, other.last), self.dated)

    @property
    def middle(self) -> float:
        return (self.first + self.last) / 2

    def __str__(self) -> str:
        ends = [date.fromordinal(n).isoformat() if self.dated else str(n) for n in (self.first, self.last)]
        return "/".join(dict.fromkeys(ends))


def _no_period(text: str) -> InputError:
    return InputError(
        f"period {text!r} is not a day (2026-03-01), a span (2026-03-01/2026-03-07) or a number"
    )
