"""How a release is told: what it promises, what the budget went into, and what is left of it."""

from __future__ import annotations

from collections.abc import Iterator

from agglearn.privacy.ledger import Ledger
from agglearn.report.document import Block, Column, Document, Grid, Note, Paragraph, Statement, number
from agglearn.tables.promise import Promise


def promise_blocks(promise: Promise) -> Iterator[Block]:
    """What is promised, and what it cost."""
    yield Statement(str(promise))
    yield Paragraph(f"it holds for everything in the file together, {promise.accounting}")
    columns = (
        Column("spent on"),
        number("numbers"),
        Column("noise"),
        number("sensitivity"),
        number("share"),
    )
    rows = tuple(
        (
            s.what,
            s.numbers or None,
            f"{s.mechanism} {s.scale:.4g}",
            f"{s.sensitivity:.4g}",
            f"{s.share:.0%}" + (f", δ {s.delta:.2g}" if s.delta else ""),
        )
        for s in promise.spent
    )
    yield Grid(columns, rows)
    if promise.unit == "record" and not promise.simulated:
        yield Paragraph(
            "the promise is for one record: who has several among them is protected less, by so many times ε"
        )
    if promise.schema == "assumed public":
        yield Note(
            "vocabularies and bins were taken from the records and are only assumed to be public: what they "
            "tell is outside of the promise",
            "note",
            "schema assumed public",
        )


def ledger_blocks(ledger: Ledger) -> Iterator[Block]:
    """What has been spent of a source, on one line."""
    total, limit = ledger.total(), ledger.limit
    most = "" if limit is None else f"; the most is {limit:g}"
    releases = "1 release" if total.releases == 1 else f"{total.releases} releases"
    yield Paragraph(
        f"{ledger.path}: {releases} so far, together ε = {total.epsilon:.3g}, δ = {total.delta:.3g}{most}"
    )


def ledger_document(ledger: Ledger) -> Document:
    """All that was written down of a source."""
    columns = (Column("when"), Column("written to"), number("ε"), number("δ"), Column("for one"))
    made = {promise.releases for promise in ledger.promises}
    rows = []
    for entry in ledger.entries:
        if "privacy" not in entry:
            continue
        promise = Promise.from_json(entry["privacy"])
        void = "" if promise.releases in made else " (not made)"
        told = (entry["time"], entry["output"] + void, f"{promise.epsilon:.3g}", f"{promise.delta:.3g}")
        rows.append((*told, promise.unit))
    total = ledger.total()
    return Document(
        blocks=(Grid(columns, tuple(rows)), *ledger_blocks(ledger)),
        data={**vars(total), "most": ledger.limit, "entries": ledger.entries},
    )
