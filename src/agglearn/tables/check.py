"""Do the tables agree with themselves and with one another?

Every table of one data set counts the same records, so totals must agree, and each feature's margin is
measured once by every table that holds the feature. Where the margins differ they tell how much noise
there is, whatever was declared: with x_t the margin of one modality by table t, a sum of R_t cells of
noise variance σ², the weighted squares Σ_t (x_t − x̄)²/R_t have mean (T−1)σ².
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any, TypeAlias

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
from agglearn.runtime.display import counted
from agglearn.runtime.speech import option
from agglearn.schema.unknown import CAUSE, NEARLY_ALL, nearly_all
from agglearn.tables.data import AggregatedData
from agglearn.tables.noise import Noise
from agglearn.tables.promise import Promise
from agglearn.tables.table import Array, Table

_Apart: TypeAlias = Callable[[Array, Array], npt.NDArray[np.float64]]
_RAKED = 1e-3  # of the records: how closely tables are brought to common margins when noise is taken out
_COUNTED = Noise("gaussian", 1.0)  # how the numbers of a table that has no noise are compared


@dataclass(frozen=True)
class Contradiction:
    """One thing that is wrong, where, and what to do."""

    kind: str
    table: str | None
    message: str
    remedy: str = ""

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
    privacy: Promise | None = None

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
        if self.privacy is not None:
            yield Paragraph(str(self.privacy))
        yield from (problem.note("note") for problem in self.notes)
        yield from _by_cause(self.problems)
        yield Statement(
            "these tables agree" if self.ok else f"{counted(len(self.problems), 'problem')} found"
        )


def _by_cause(problems: list[Contradiction]) -> Iterator[Note]:
    """One note a cause: its first problem, how many more there are of the kind, and what to do."""
    kinds = dict.fromkeys(problem.kind for problem in problems)
    for kind in kinds:
        first, *more = [problem for problem in problems if problem.kind == kind]
        text = first.message
        if more:
            text += f"; and {counted(len(more), 'other')} like it"
        remedy = first.remedy
        yield Note(f"{text}: {remedy}" if remedy else text, "problem", kind)


def check(data: AggregatedData) -> CheckReport:
    """Check aggregated data, and say what was found."""
    tables = list(data.tables.values())
    report = _blank(data)
    _note_promise(data, report)
    if data.denoised:
        message = (
            "what is likely to be noise was taken out of these tables: they are estimates, as sure as the "
            "noisy ones they come from and no surer; a fit is better made to those"
        )
        report.notes.append(Contradiction("noise taken out", None, message))
    for table in tables:
        _check_numbers(table, data, report)
    sound = _sound(data)
    remedy = _remedy(sound, data)
    for table in sound:
        _check_total(table, data, report, remedy)
    report.noise_implied = _check_margins(sound, data, report, remedy)
    _check_labels(data, report)
    _check_unknown(tables, data, report)
    _describe_features(sound, data, report)
    _note_absent_pairs(data, report)
    return report


@dataclass(frozen=True)
class UndeclaredNoise:
    """Noise that the tables show and do not declare: standard deviations a cell.

    Attributes
    ----------
    declared
        What is declared; None where nothing is.
    implied
        What the margins show.
    """

    declared: float | None
    implied: float


def undeclared_noise(data: AggregatedData) -> UndeclaredNoise | None:
    """The noise by which tables of the same records disagree, where it is not the one they declare."""
    report = _blank(data)
    implied = _check_margins(_sound(data), data, report, "")
    if implied is None or not report.problems:
        return None
    return UndeclaredNoise(report.noise_declared, implied)


def _sound(data: AggregatedData) -> list[Table]:
    tables = data.tables.values()
    return [t for t in tables if np.isfinite(t.counts).all() and np.isfinite(t.sums).all()]


def _blank(data: AggregatedData) -> CheckReport:
    """A report that has found nothing yet."""
    tables = list(data.tables.values())
    declared = [t.noise.sigma for t in tables if t.noise]
    return CheckReport(
        tables=len(tables),
        cells=data.n_cells,
        rows=data.rows,
        positives=dict(zip(data.schema.label_names, data.positives, strict=True)),
        unknown=max((_unknown(t) for t in tables), default=0.0),
        noise_declared=float(np.median(declared)) if declared else None,
        noise_implied=None,
        features=[],
        privacy=data.promise,
    )


def _unknown(table: Table) -> float:
    """Records without a cell; none where noise alone may have made them."""
    found = float(table.unknown[0])
    return found if found > 4 * np.sqrt(table.noise_moments.count) else 0.0


def _note_promise(data: AggregatedData, report: CheckReport) -> None:
    """What private tables do not promise."""
    if data.promise is None:
        return
    if data.promise.simulated:
        message = "the noise is a simulation from a seed, for experiments: it protects nobody"
        report.notes.append(Contradiction("simulated noise", None, message))
    elif data.promise.schema == "assumed public":
        message = (
            "vocabularies and bins are only assumed to be public: what they tell is outside of the promise"
        )
        report.notes.append(Contradiction("schema assumed public", None, message))


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


def _rounded(table: Table) -> bool:
    return table.noise is not None and table.noise.law == "rounding"


def _largest_error(table: Table, n_cells: float) -> float:
    """What a sum of so many rounded cells may be off by: many small ones are all rounded the same way."""
    return n_cells * table.noise.scale if table.noise is not None and _rounded(table) else 0.0


def _complete(table: Table, data: AggregatedData) -> bool:
    """Whether every record is in the table; a value whose cells were all withheld is in no schema."""
    return table.measured is None and data.absent == "zero"


def _comparable(table: Table, data: AggregatedData) -> bool:
    """Whether the table's margins can be set beside those of others: noise drowns what few values lack."""
    return _complete(table, data) or (table.measured is None and table.noise is not None)


def _remedy(tables: list[Table], data: AggregatedData) -> str:
    """What to do about tables that disagree, by what their numbers look like."""
    if any(t.noise for t in tables) or data.absent != "zero":
        return "they count different records, or more was done to them than is declared"
    numbers = [np.abs(n[n != 0]) for t in tables for n in (t.counts, t.sums)]
    whole = [n.astype(np.int64) for n in numbers if len(n) and np.issubdtype(n.dtype, np.integer)]
    step = int(np.gcd.reduce([np.gcd.reduce(n) for n in whole])) if whole else 1
    if step > 1:
        told = option("noise", f"rounding-to:{step}")
        return f"all numbers are multiples of {step}, so they were rounded: receive them with {told}"
    least = min((int(t.counts[t.counts > 0].min()) for t in tables if (t.counts > 0).any()), default=1)
    if least > 1 and all((n >= 0).all() for t in tables for n in (t.counts, t.sums)):
        told = option("floor", str(least))
        return f"no cell has fewer than {least} records: if smaller ones were withheld, say so with {told}"
    return f"they count different records, or {option('noise')} or {option('floor')} was not declared"


def _check_total(table: Table, data: AggregatedData, report: CheckReport, remedy: str) -> None:
    if table.measured is not None:
        return  # the withheld cells are missing from the total
    difference = table.total - data.rows
    # Five standard errors of a sum of noisy cells, and as much again for a total that is itself noisy.
    slack = 10 * np.sqrt(table.noise_moments.count * table.n_cells) + 1e-9 * data.rows
    slack = max(slack, 2 * _largest_error(table, table.n_cells))
    if difference > slack or (_complete(table, data) and difference < -slack):
        message = f"table {table.title} counts {table.total:,.0f} records, and the data have {data.rows:,.0f}"
        report.problems.append(Contradiction("total", table.title, message, remedy))


def _check_margins(
    tables: list[Table], data: AggregatedData, report: CheckReport, remedy: str
) -> float | None:
    """Compare each feature's margins between tables; return the noise they imply."""
    first = len(report.problems)
    squares, degrees = 0.0, 0
    for name in data.schema.names:
        holding = [t for t in tables if name in t.features and t.cells.apart and _comparable(t, data)]
        if len(holding) < 2:
            continue
        # What noise was drawn for is compared, so that a cell of each has the same: (T, 1 + labels, M).
        apart = next((t.noise.apart for t in holding if t.noise), _COUNTED.apart)
        margins = np.array([_margin(t, name, apart) for t in holding])
        if all(_complete(t, data) and (t.noise is None or _rounded(t)) for t in holding):
            agree = _compare_exact(name, holding, margins, data, report, remedy)
            if agree and any(t.unknown[0] for t in holding):
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
    if declared is None and len(report.problems) > first and "not declared" in remedy:
        # What counting other records would do to margins is not told from noise; what to do first is.
        told = (
            f"as noise of standard deviation {implied:.3g} a cell would make them: receive them with "
            f"{option('noise', f'gaussian:{implied:.3g}')} if it was put on, or find out which records each "
            "of them counts"
        )
        report.problems[first:] = [replace(p, remedy=told) for p in report.problems[first:]]
    # A rounding is told by its worst case: what it does to a number hangs on the number.
    if declared and all(t.noise and "rounding" not in t.noise.law for t in tables):
        # The relative error of a standard deviation from k squares is 1/√(2k); five of those, and a
        # tenth for the margins' sharing of cells.
        slack = 0.1 + 5 / np.sqrt(2 * degrees)
        if abs(implied / declared - 1) > slack:
            message = (
                f"the margins disagree as if each cell had noise of standard deviation {implied:.3g}, "
                f"and {declared:.3g} is declared"
            )
            told = f"receive them with the noise they have ({option('noise', f'gaussian:{implied:.3g}')})"
            report.problems.append(Contradiction("noise", None, message, told))
    return implied


def _margin(table: Table, name: str, apart: _Apart = _COUNTED.apart) -> npt.NDArray[np.float64]:
    return table.cells.margin(apart(table.counts, table.sums), [table.features.index(name)])


def _compare_exact(
    name: str,
    tables: list[Table],
    margins: npt.NDArray[np.float64],
    data: AggregatedData,
    report: CheckReport,
    remedy: str,
) -> bool:
    """Whether margins agree but for what unknown values leave."""
    reference = min(range(len(tables)), key=lambda i: float(tables[i].unknown[0]))
    for i, table in enumerate(tables):
        # Records with an unknown value elsewhere in a table are missing from this margin of it.
        slack = float(table.unknown[0] + tables[reference].unknown[0])
        slack += sum(_largest_error(t, t.n_cells / margins.shape[2]) for t in (table, tables[reference]))
        gap = np.abs(margins[i] - margins[reference]).max(axis=0)
        if gap.max() > slack + (_RAKED if data.denoised else 1e-9) * data.rows:
            worst = data.schema.feature(name).modalities[int(gap.argmax())]
            message = (
                f"tables {table.title} and {tables[reference].title} disagree on {name} = {worst} by "
                f"{gap.max():,.0f}"
            )
            report.problems.append(Contradiction("margin", table.title, message, remedy))
            return False
    return True


def _check_labels(data: AggregatedData, report: CheckReport) -> None:
    for label, positives in report.positives.items():
        if positives <= 0 or positives >= data.rows:
            word = "positive" if positives > 0 else "negative"
            message = f"label {label}: every record is {word}, so there is nothing to learn"
            report.problems.append(Contradiction("label", None, message))


def _check_unknown(tables: list[Table], data: AggregatedData, report: CheckReport) -> None:
    """A feature that hardly any record has a known value of is empty in every table that holds it."""
    for name in data.schema.names:
        held = [(float(t.unknown[0]), t.total) for t in tables if name in t.features and t.total > 0]
        if held and all(n >= NEARLY_ALL * total for n, total in held):
            message = nearly_all(name, *min(held), "has no cell in its tables")
            report.problems.append(Contradiction(CAUSE, None, message))


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
