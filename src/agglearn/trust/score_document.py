"""How a score from held-out tables is told."""

from __future__ import annotations

from collections.abc import Iterator

from agglearn.field.heldout import TableScore
from agglearn.report.document import Block, Column, Document, Grid, Heading, Measured, Paragraph, number
from agglearn.trust.calibration import FAR, Calibration

_GROUPS = 3
_CELLS = 5
_EXPECTED = "as the model itself expects it"


def score_document(score: TableScore, calibration: Calibration, known: bool = True) -> Document:
    """The score (if it is known), what it stands on, and where predictions are off; no data for programs."""
    return Document(
        title=f"{score.rows:,.0f} records behind the tables, {score.positives / score.rows:.2%} positive",
        blocks=(*_scores(score, known), *_calibration(calibration)),
    )


def _scores(score: TableScore, known: bool) -> Iterator[Block]:
    rows = (
        (
            "NLLH",
            Measured(score.nllh, score.nllh_se) if known else "unknown",
            "1 − log loss / entropy of the label",
        ),
        ("log loss", score.log_loss if known else "unknown", None),
        ("AUC", score.auc, _EXPECTED),
        ("Brier", score.brier, _EXPECTED),
    )
    yield Grid((Column(""), Column("", ".4f"), Column("")), rows)
    yield Paragraph(
        "± is for all records of this kind; the very ones behind the tables give this "
        f"± {score.records_se:.4f}. The tables must be of other records than the model's. They cannot show "
        "all: NLLH is too high where three or more features hang together, too low where the model has too "
        "little penalty."
    )


def _calibration(calibration: Calibration) -> Iterator[Block]:
    yield Heading("Are the predictions calibrated?")
    yield Paragraph(
        f"{calibration.far:,} of {calibration.cells:,} cells are over {FAR:.0f} standard errors off, about "
        f"{calibration.far_by_chance:,.1f} would be by chance."
    )
    groups = (*calibration.tables[:_GROUPS], *calibration.features[:_GROUPS])
    if groups:
        yield Grid(
            (number("mean z²", ".2f"), number("cells"), Column("the tables and features farthest off")),
            tuple((group.chi2 / max(group.cells, 1), group.cells, group.name) for group in groups),
        )
    if calibration.worst:
        yield Grid(
            (
                number("z", "+.1f"),
                number("records", ",.0f"),
                number("expected", ".2%"),
                number("observed", ".2%"),
                Column("the cells farthest off"),
            ),
            tuple((c.z, c.records, c.expected, c.observed, c.name) for c in calibration.worst[:_CELLS]),
        )
