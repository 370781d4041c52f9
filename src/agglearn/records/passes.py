"""One pass over the records of a source, here or on the machines that have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from agglearn.records.sources import Source
from agglearn.records.split import Parts
from agglearn.runtime.fold import Fold
from agglearn.runtime.progress import meter

_Folded = TypeVar("_Folded", bound=Fold)


@runtime_checkable
class SpreadSource(Protocol):
    """Records on many machines, which fold them there."""

    def folded(self, parts: Parts, columns: Sequence[str], make: Callable[[], _Folded]) -> _Folded:
        """A fold of these columns of all records."""


def folded(
    source: Source,
    parts: Parts,
    columns: Sequence[str],
    make: Callable[[], _Folded],
    what: str,
    show_progress: bool = False,
) -> _Folded:
    """A fold of these columns of all records; ``what`` says on the terminal what is being done."""
    if isinstance(source, SpreadSource):
        with meter(what, show=show_progress):
            return source.folded(parts, list(dict.fromkeys(columns)), make)
    whole = make()
    with meter(what, source.rows, show=show_progress) as advance:
        for batch, part in parts.batches(source, columns):
            whole.add(batch, part)
            advance(batch.num_rows)
    return whole
