"""A finding as a document: headings, paragraphs, grids, notes and figures, and the same for a program.

Whoever finds something says it here once, in words and numbers. How it looks on a terminal
(:mod:`.text`), in JSON (:mod:`.json`) or on a page (:mod:`.html`) is decided there and nowhere else.

Names of columns and values come from data that nobody vetted. A document holds them as they are; each way of
showing it makes them harmless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["note", "warning", "problem"]


@dataclass(frozen=True)
class Note:
    """Something to mind.

    Attributes
    ----------
    text
        In words, without a full stop.
    severity
        ``note`` is worth knowing, ``warning`` is to be minded, ``problem`` makes a thing unfit for use.
    cause
        What kind of thing it is, the same for all notes of that kind: by it they can be put together.
    """

    text: str
    severity: Severity = "warning"
    cause: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Heading:
    """Opens a part; a question that the part answers, as a rule."""

    text: str


@dataclass(frozen=True)
class Statement:
    """A result in one line that stands for itself: what was written, or a verdict."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str


class Measured(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


Value: TypeAlias = "str | int | float | Measured | None"


@dataclass(frozen=True)
class Column:
    """One column of a grid.

    Attributes
    ----------
    name
        Its heading.
    form
        How its numbers are written, as for :func:`format`; texts among them stay as they are.
    align
        Numbers are read from the right, names from the left.
    """

    name: str
    form: str = ""
    align: Literal["left", "right"] = "left"

    def show(self, value: Value) -> str:
        """A value as it is read: nothing for None, a dash for what is no number."""
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        if isinstance(value, Measured):
            return f"{self.show(value.value)} ± {replace(self, form=self.form.lstrip('+')).show(value.error)}"
        if value != value or value in (float("inf"), float("-inf")):
            return "–"
        return format(value, self.form)


def number(name: str, form: str = ",") -> Column:
    """A column of numbers."""
    return Column(name, form, "right")


@dataclass(frozen=True)
class Grid:
    """Rows and columns, with a caption above. Columns without any name have no row of headings."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    caption: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"a row has not {len(self.columns)} values, as the grid has columns")

    @property
    def headed(self) -> bool:
        """Whether there are headings to show."""
        return any(column.name for column in self.columns)

    def shown(self) -> list[list[str]]:
        """Every value as it is read."""
        return [[c.show(v) for c, v in zip(self.columns, row, strict=True)] for row in self.rows]


@dataclass(frozen=True)
class Figure:
    """A series to be drawn where there is something to draw on. What matters of it is also said in words.

    Attributes
    ----------
    name
        What it shows.
    x, y
        The points; ``error`` are standard errors of y, where they have some.
    kind
        ``line``, ``points``, or ``diagonal``: points that lie on x = y where all is well.
    x_name, y_name
        What the axes are.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    kind: Literal["line", "points", "diagonal"] = "line"
    error: tuple[float, ...] = ()
    x_name: str = ""
    y_name: str = ""


Block: TypeAlias = Heading | Statement | Paragraph | Grid | Note | Figure


@dataclass(frozen=True)
class Document:
    """What there is to say of something.

    Attributes
    ----------
    title
        In one line, what it is about.
    blocks
        What a person reads, in order. A note among them is part of the finding.
    warnings
        What to mind about how it came about; told apart from the finding where that can be done.
    data
        The same for a program: names that others rely on, plain values.
    """

    title: str = ""
    blocks: tuple[Block, ...] = ()
    warnings: tuple[Note, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def notes(self) -> Iterator[Note]:
        """All notes, wherever they stand."""
        yield from self.warnings
        yield from (block for block in self.blocks if isinstance(block, Note))

    def named(self, name: str) -> Document:
        """The same, with the name of what it is about before the title."""
        return replace(self, title=f"{name}: {self.title}")

    def warned(self, *notes: Note) -> Document:
        """The same, with further warnings."""
        return replace(self, warnings=(*self.warnings, *notes))

    def followed_by(self, *blocks: Block, **data: Any) -> Document:
        """The same, with more to read at the end, and more data."""
        return replace(self, blocks=(*self.blocks, *blocks), data={**self.data, **data})
