"""Do the tables agree with themselves and with one another?

Every table of one data set counts the same records, so totals must agree, and each feature's margin is
measured once by every table that holds the feature. Where the margins differ they tell how much noise
there is, whatever was declared: with x_t the margin of one modality by table t, a sum of R_t cells of
noise variance σ², the weighted squares Σ_t (x_t − x̄)²/R_t have mean (T−1)σ².
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.report.document import (
    Block,
    Column,
    Document,
    Grid,
    Note,
    Paragraph,
    Severity,
    Statement,
    number,
)
from agglearn.report.finding import Finding
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Table


@dataclass(frozen=True)
class Contradiction:
    """One thing that is wrong, where, and what to do."""

    kind: str
    table: str | None
    message: str

    def note(self, severity: Severity) -> Note:
        """The same as a note; its cause is the kind."""
        return Note(self.message, severity, self.kind)


@dataclass
class CheckReport(Finding):
    """What a check found.

    ``problems`` make the data unfit to learn from as they are; ``notes`` are worth knowing.
    """

    tables: int
    cells: int
    rows: float
    positives: dict[str, float]
    unknown: float
    noise_declared: float | None
    noise_implied: float | None
    features: list[dict[str, Any]]
    problems: list[Contradiction] = field(default_factory=list)
    notes: list[Contradiction] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {"ok": self.ok, **asdict(self)}

    def document(self) -> Document:
        """What was found, in words and numbers."""
        positives = ", ".join(f"{p:,.0f} {label}" for label, p in self.positives.items())
        size = f"{self.tables:,} tables, {self.cells:,} cells"
        return Document(
            title=f"{size}, {self.rows:,.0f} records ({positives})",
            blocks=tuple(self._blocks()),
            data=self.to_json(),
        )

    def _blocks(self) -> Iterator[Block]:
        columns = (Column("feature"), Column("kind"), number("modalities"), number("seen"))
        yield Grid(columns, tuple((f["name"], f["kind"], f["modalities"], f["seen"]) for f in self.features))
        if self.unknown:
            yield Paragraph(
                f"up to {self.unknown:,.0f} records have an unknown value and are in no cell of a table"
            )
        if self.noise_implied is not None:
            declared = "none" if self.noise_declared is None else f"{self.noise_declared:.3g}"
            found = f"{self.noise_implied:.3g} a cell" if self.noise_implied else "none, all margins agree"
            yield Paragraph(f"noise: {found} (declared: {declared})")
        yield from (problem.note("note") for problem in self.notes)
        yield from (problem.note("problem") for problem in self.problems)
        yield Statement("these tables agree" if self.ok else f"{len(self.problems):,} problems found")


def check(data: AggregatedData) -> CheckReport:
    """Check aggregated data, and say what was found."""
    tables = list(data.tables.values())
    declared = [t.noise.sigma for t in tables if t.noise]
    report = CheckReport(
        tables=len(tables),
        cells=data.n_cells,
        rows=data.rows,
        positives=dict(zip(data.schema.label_names, data.positives, strict=True)),
        unknown=max((float(t.unknown[0]) for t in tables), default=0.0),
        noise_declared=float(np.median(declared)) if declared else None,
        noise_implied=None,
        features=[],
    )
    for table in tables:
        _check_numbers(table, data, report)
    sound = [t for t in tables if np.isfinite(t.counts).all() and np.isfinite(t.sums).all()]
    for table in sound:
        _check_total(table, data, report)
    report.noise_implied = _check_margins(sound, data, report)
    _check_labels(data, report)
    _describe_features(sound, data, report)
    _note_absent_pairs(data, report)
    return report


def _check_numbers(table: Table, data: AggregatedData, report: CheckReport) -> None:
    """Numbers that no count can have. Noise may push a number anywhere, so it excuses all but NaN."""

    def problem(kind: str, message: str) -> None:
        report.problems.append(Contradiction(kind, table.title, f"table {table.title}: {message}"))

    if not table.n_cells:
        problem("empty", "it has no cell")
        return
    if not (np.isfinite(table.counts).all() and np.isfinite(table.sums).all()):
        problem("not a number", "some numbers are missing or infinite")
        return
    if table.noise is not None:
        return
    negative = (table.counts < 0) | (table.sums < 0).any(axis=0)
    if negative.any():
        problem(
            "negative count",
            f"{negative.sum():,} cells are negative, the first at {_where(table, negative, data)}: "
            "declare the noise if they are noisy",
        )
    above = (table.sums > table.counts).any(axis=0) & ~negative
    if above.any():
        problem(
            "sum above count",
            f"{above.sum():,} cells have more positives than records, the first at "
            f"{_where(table, above, data)}",
        )


def _where(table: Table, mask: npt.NDArray[np.bool_], data: AggregatedData) -> str:
    cell = int(np.argmax(mask))
    codes = table.cells.codes(cell)
    if codes is None:
        return table.cells.nameless(cell)
    names = [data.schema.feature(f).modalities[i] for f, i in zip(table.features, codes, strict=True)]
    return "(" + ", ".join(names) + ")"


def _sigma(table: Table) -> float:
    return table.noise.sigma if table.noise else 0.0


def _check_total(table: Table, data: AggregatedData, report: CheckReport) -> None:
    if table.measured is not None:
        return  # the withheld cells are missing from the total
    difference = table.total - data.rows
    # Five standard errors of a sum of noisy cells, and as much again for a total that is itself noisy.
    slack = 10 * _sigma(table) * np.sqrt(table.n_cells) + 1e-9 * data.rows
    if abs(difference) > slack:
        message = f"table {table.title} counts {table.total:,.0f} records, and the data have {data.rows:,.0f}"
        report.problems.append(Contradiction("total", table.title, message))


def _check_margins(tables: list[Table], data: AggregatedData, report: CheckReport) -> float | None:
    """Compare each feature's margins between tables; return the noise they imply."""
    squares, degrees = 0.0, 0
    for name in data.schema.names:
        holding = [t for t in tables if name in t.features and t.cells.apart and t.measured is None]
        if len(holding) < 2:
            continue
        margins = np.array([_margin(t, name) for t in holding])  # (T, 1 + labels, M)
        if not any(t.noise for t in holding):
            _compare_exact(name, holding, margins, data, report)
            if any(t.unknown[0] for t in holding):
                continue  # the gaps that unknown values leave are not noise
        terms = np.array([t.n_cells / margins.shape[2] for t in holding])
        weights = (1 / terms)[:, None, None]
        mean = (weights * margins).sum(axis=0) / weights.sum()
        residuals = margins - mean
        squares += float((weights * residuals**2).sum())
        degrees += (len(holding) - 1) * margins[0].size
    if not degrees:
        return None
    implied = float(np.sqrt(squares / degrees))
    if implied < 1e-9 * data.rows:  # rounding of the arithmetic, not of the tables
        implied = 0.0
    declared = report.noise_declared
    if declared and all(t.noise for t in tables):
        # The relative error of a standard deviation from k squares is 1/√(2k); five of those, and a
        # tenth for the margins' sharing of cells.
        slack = 0.1 + 5 / np.sqrt(2 * degrees)
        if abs(implied / declared - 1) > slack:
            message = (
                f"the margins disagree as if each cell had noise of standard deviation {implied:.3g}, "
                f"and {declared:.3g} is declared"
            )
            report.problems.append(Contradiction("noise", None, message))
    return implied


def _margin(table: Table, name: str) -> npt.NDArray[np.float64]:
    stacked = np.concatenate([table.counts[None], table.sums]).astype(np.float64)
    return table.cells.margin(stacked, [table.features.index(name)])


def _compare_exact(
    name: str,
    tables: list[Table],
    margins: npt.NDArray[np.float64],
    data: AggregatedData,
    report: CheckReport,
) -> None:
    reference = min(range(len(tables)), key=lambda i: float(tables[i].unknown[0]))
    for i, table in enumerate(tables):
        # Records with an unknown value elsewhere in a table are missing from this margin of it.
        slack = float(table.unknown[0] + tables[reference].unknown[0])
        gap = np.abs(margins[i] - margins[reference]).max(axis=0)
        if gap.max() > slack + 1e-9 * data.rows:
            worst = data.schema.feature(name).modalities[int(gap.argmax())]
            message = (
                f"tables {table.title} and {tables[reference].title} disagree on {name} = {worst} by "
                f"{gap.max():,.0f}: they count different records, or noise is not declared"
            )
            report.problems.append(Contradiction("margin", table.title, message))
            return


def _check_labels(data: AggregatedData, report: CheckReport) -> None:
    for label, positives in report.positives.items():
        if positives <= 0 or positives >= data.rows:
            word = "positive" if positives > 0 else "negative"
            message = f"label {label}: every record is {word}, so there is nothing to learn"
            report.problems.append(Contradiction("label", None, message))


def _describe_features(tables: list[Table], data: AggregatedData, report: CheckReport) -> None:
    for feature in data.schema.features:
        holding = [t for t in tables if feature.name in t.features]
        seen = None
        plain = [t for t in holding if t.cells.apart]
        if plain:
            seen = int((_margin(plain[0], feature.name)[0] > 0).sum())
        report.features.append(
            {
                "name": feature.name,
                "kind": feature.kind,
                "modalities": feature.n_modalities,
                "seen": seen,
            }
        )
        if not holding:
            message = f"feature {feature.name} is in no table: it cannot be learnt from"
            report.notes.append(Contradiction("absent feature", None, message))
        elif seen is not None and seen < 2:
            message = f"feature {feature.name} has one value only: it tells nothing"
            report.notes.append(Contradiction("constant feature", None, message))


def _note_absent_pairs(data: AggregatedData, report: CheckReport) -> None:
    held = {pair for scope in data.tables for pair in combinations(scope, 2)}
    absent = [pair for pair in combinations(data.schema.names, 2) if pair not in held]
    if absent and held:
        first = " × ".join(absent[0])
        message = f"{len(absent):,} pairs of features are in no table, the first {first}"
        report.notes.append(Contradiction("absent pair", first, message))
    elif absent:
        message = "no pair of features is in any table: only a Naive Bayes can be learnt"
        report.notes.append(Contradiction("absent pair", None, message))
