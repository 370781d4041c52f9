"""The holder's ledger: what has been released of a source, and whether there is enough left.

A text file beside the records, a line of JSON for each entry. It only grows: every line carries a checksum of
itself and of all before it, so that a line that was changed or taken out is noticed, and the file is replaced
whole under a lock. It never leaves the house.

Releases of one source add up. Their ε is the smaller of the plain sum and of what dp-accounting finds for all
their noises composed, at the sum of their δ.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agglearn.errors import InputError, StoreError
from agglearn.privacy.accounting import certified_epsilon
from agglearn.runtime.files import write_text
from agglearn.runtime.speech import option
from agglearn.tables.promise import Promise, Spending

FORMAT = "agglearn.ledger"
VERSION = 1
SUFFIX = ".ledger.jsonl"


def ledger_beside(source: str | os.PathLike[str]) -> Path:
    """Where the ledger of a file or folder is."""
    path = Path(os.path.realpath(source))
    return path.with_name(path.name + SUFFIX)


@dataclass(frozen=True)
class Total:
    """What all releases of a source promise together."""

    epsilon: float
    delta: float
    releases: int


@dataclass
class Ledger:
    """The ledger of one source.

    Attributes
    ----------
    path
        Its file, which need not exist yet.
    source
        A random name for the records, by which releases of the same are known.
    entries
        What was written, in order.
    """

    path: Path
    source: str
    entries: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Ledger:
        """The ledger at a path, verified; an empty one if there is none."""
        path = Path(path)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return cls(path, secrets.token_hex(16))
        except (OSError, UnicodeError) as error:
            raise StoreError(f"ledger {path} cannot be read ({error})") from None
        entries, seal = [], ""
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                sound = entry.pop("sha256") == (seal := _seal(seal, entry))
            except (ValueError, LookupError, TypeError, AttributeError):
                sound = False
            if not sound:
                raise StoreError(
                    f"ledger {path}, line {number}: changed or damaged after it was written; bring back the "
                    "last sound copy, as what was spent cannot be told without it"
                )
            entries.append(entry)
        head = entries[0] if entries else {}
        if head.get("format") != FORMAT or head.get("version") != VERSION:
            raise StoreError(f"{path} is not a ledger that this agglearn reads: name another file")
        return cls(path, str(head["source"]), entries[1:])

    @property
    def limit(self) -> float | None:
        """The least total ε that was ever set for this source."""
        limits = [entry["total_epsilon"] for entry in self.entries if entry.get("total_epsilon") is not None]
        return min(limits, default=None)

    @property
    def promises(self) -> list[Promise]:
        """The releases that were made."""
        void = {entry["void"] for entry in self.entries if "void" in entry}
        releases = [entry for entry in self.entries if "privacy" in entry]
        promises = [Promise.from_json(entry["privacy"]) for entry in releases]
        return [promise for promise in promises if not set(promise.releases) & void]

    def total(self, *further: Promise) -> Total:
        """What was released so far, with further releases if given."""
        return total_of([*self.promises, *further])

    def check(self, promise: Promise, total_epsilon: float | None) -> Total:
        """What will have been spent after a further release, or that there is not enough left."""
        if total_epsilon is not None and not total_epsilon > 0:
            raise InputError(f"{option('total_epsilon', f'{total_epsilon:g}')} must be above 0")
        limits = [limit for limit in (self.limit, total_epsilon) if limit is not None]
        after = self.total(promise)
        # What an accountant finds for the very same release twice may differ in its last digits.
        if limits and after.epsilon > min(limits) * (1 + 1e-9):
            before = self.total()
            raise InputError(
                f"the budget is spent: {before.releases} releases of these records had "
                f"ε = {before.epsilon:.3g}, with this one it would be {after.epsilon:.3g}, and the most is "
                f"{min(limits):g} ({self.path})"
            )
        return after

    @contextlib.contextmanager
    def spending(self, promise: Promise, total_epsilon: float | None, told: str) -> Iterator[Total]:
        """:func:`spending` for this ledger alone."""
        with spending([self], promise, total_epsilon, told) as [after]:
            yield after

    def append(self, entry: dict[str, Any]) -> None:
        """Add a line."""
        self.entries.append(json.loads(json.dumps(entry)))
        head = {"format": FORMAT, "version": VERSION, "source": self.source}
        lines, seal = [], ""
        for line in [head, *self.entries]:
            seal = _seal(seal, line)
            lines.append(json.dumps({**line, "sha256": seal}, ensure_ascii=False))
        write_text(self.path, "\n".join(lines) + "\n")


@contextlib.contextmanager
def spending(
    ledgers: Sequence[Ledger], promise: Promise, total_epsilon: float | None, told: str
) -> Iterator[list[Total]]:
    """Write a release down before it is made; if what is done in here fails, that it was not made.

    All is checked again under a lock, so that of two releases at once the second sees the first.
    """
    with _locked([ledger.path.parent for ledger in ledgers]):
        now = [Ledger.read(ledger.path) for ledger in ledgers]
        for ledger, read in zip(ledgers, now, strict=True):
            read.source = read.source if read.entries else ledger.source
        after = [read.check(promise, total_epsilon) for read in now]
        time = datetime.now(UTC).isoformat(timespec="seconds")
        release = {"output": told, "total_epsilon": total_epsilon, "privacy": promise.to_json()}
        written: list[Ledger] = []
        try:
            for ledger, read in zip(ledgers, now, strict=True):
                read.append({"time": time, **release})
                written.append(read)
                ledger.entries = read.entries
            yield after
        except BaseException:
            for read in written:
                read.append({"time": time, "void": promise.releases[0]})
            raise


def total_of(promises: Sequence[Promise]) -> Total:
    """What releases of the same records promise together."""
    if not promises:
        return Total(0.0, 0.0, 0)
    epsilon = sum(promise.epsilon for promise in promises)
    delta = sum(promise.delta for promise in promises)
    if len(promises) > 1 and all(promise.spent for promise in promises):
        spent = _alike([s for promise in promises for s in promise.spent])
        by_name = sum(s.delta for promise in promises for s in promise.spent)
        epsilon = min(epsilon, certified_epsilon(spent, delta - by_name))
    return Total(epsilon, delta, len(promises))


def _alike(spent: Sequence[Spending]) -> list[Spending]:
    """Spendings by the same noise put together: composing them is then one step."""
    moved: dict[Spending, int] = {}
    for s in spent:
        key = replace(s, what="", numbers=0, moved=1, share=1.0, delta=0.0)
        moved[key] = moved.get(key, 0) + s.moved
    return [replace(key, moved=n) for key, n in moved.items()]


def _seal(before: str, entry: dict[str, Any]) -> str:
    text = before + json.dumps(entry, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def _locked(folders: Iterable[Path]) -> Iterator[None]:
    """Only one process at a time; where a system has no such locks, none.

    Locked are folders: a ledger is replaced whole, and a lock on it would go with it.
    """
    try:
        import fcntl
    except ImportError:  # pragma: no cover - not on Windows
        yield
        return
    with contextlib.ExitStack() as stack:
        for folder in sorted({Path(os.path.realpath(folder)) for folder in folders}):
            try:
                handle = os.open(folder, os.O_RDONLY)
            except OSError as error:
                raise StoreError(f"{folder}: cannot write there ({error.strerror or error})") from None
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
