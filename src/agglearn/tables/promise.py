"""What whoever released tables promises about the people in them, as the file carries it.

(ε, δ) bounds how much better anyone can tell, from all numbers of the release together, whether one record
(or all records of one person) was there: added or removed, every event's probability changes by a factor of
at most exp(ε), but for δ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from operator import add
from typing import Any

from agglearn.errors import TableError

UNITS = ("record", "person")
SCHEMAS = ("public", "paid for", "assumed public")
"""How the vocabularies and bins of a release came to be known, from the safest on."""


@dataclass(frozen=True)
class Spending:
    """What a part of the budget was spent on.

    Attributes
    ----------
    what
        What was released, in words.
    mechanism
        How: ``gaussian`` or ``laplace``.
    scale
        Of the noise on each number.
    numbers
        How many there are; 0 where that is not to be told.
    moved, by
        How many of them one record moves, and by how much at most: by more than one where a person may have
        several.
    share
        Of the budget, between 0 and 1.
    delta
        What of δ was spent on values that come to light by name.
    """

    what: str
    mechanism: str
    scale: float
    numbers: int
    moved: int
    by: int = 1
    share: float = 1.0
    delta: float = 0.0

    @property
    def sensitivity(self) -> float:
        """How far one record (or person) moves all of them: in the norm L1 of a Laplace law, else L2."""
        return self.by * (self.moved if self.mechanism == "laplace" else self.moved**0.5)


@dataclass(frozen=True)
class Promise:
    """What a release promises, what it spent, and on what.

    Attributes
    ----------
    epsilon, delta
        The promise for everything in the release together.
    unit
        Whose: that of one ``record``, or of one ``person``.
    max_records
        The most records that one person has in it.
    spent
        On what.
    schema
        How vocabularies and bins came to be known: ``public``, ``paid for`` out of the same budget, or only
        ``assumed public``.
    releases
        A random name for each release that went into these tables.
    source
        A random name of the records behind them, the same in every release of the same records.
    accounting
        How the promise was reckoned, with the versions of the libraries.
    rho
        Of zero-concentrated privacy, where the budget was given so.
    simulated
        Whether the noise came from a seed, for an experiment: then nothing is promised.
    """

    epsilon: float
    delta: float
    unit: str = "record"
    max_records: int = 1
    spent: tuple[Spending, ...] = ()
    schema: str = "public"
    releases: tuple[str, ...] = ()
    source: str | None = None
    accounting: str = ""
    rho: float | None = None
    simulated: bool = False

    def __str__(self) -> str:
        if self.simulated:
            return f"simulated noise as of ε = {self.epsilon:.3g}, δ = {self.delta:.3g}: no privacy"
        most = "1 record" if self.max_records == 1 else f"{self.max_records} records"
        one = "record" if self.unit == "record" else f"person (at most {most})"
        assumed = " if vocabularies and bins are public" if self.schema == "assumed public" else ""
        return f"private: ε = {self.epsilon:.3g}, δ = {self.delta:.3g} for one {one}{assumed}"

    def beside(self, other: Promise, same_people: bool = False) -> Promise:
        """The promise of two releases together: of other people's records, or of the same people's.

        A person who is in one of them only has the worse of the two promises; of one who may be in both, what
        can be told adds up. Parts of one release were promised together already.
        """
        if self.unit != other.unit:
            raise TableError(
                "a release that protects records and one that protects persons cannot be put together"
            )
        apart = not self.releases or set(self.releases) != set(other.releases)
        adds_up = same_people and apart
        together: Callable[..., Any] = add if adds_up else max
        return replace(
            self,
            epsilon=together(self.epsilon, other.epsilon),
            delta=together(self.delta, other.delta),
            max_records=together(self.max_records, other.max_records),
            spent=self.spent + tuple(s for s in other.spent if s not in self.spent or adds_up),
            schema=max(self.schema, other.schema, key=SCHEMAS.index),
            releases=tuple(dict.fromkeys(self.releases + other.releases)),
            source=self.source if self.source == other.source else None,
            rho=None if self.rho is None or other.rho is None else together(self.rho, other.rho),
            simulated=self.simulated or other.simulated,
        )

    def to_json(self) -> dict[str, Any]:
        """The promise as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Promise:
        """The promise that :meth:`to_json` wrote."""
        given = dict(document)
        spent = tuple(Spending(**entry) for entry in given.pop("spent"))
        promise = cls(**given | {"spent": spent, "releases": tuple(given["releases"])})
        if promise.unit not in UNITS or promise.schema not in SCHEMAS:
            raise ValueError(f"unit {promise.unit!r} or schema {promise.schema!r} is unknown")
        return promise
