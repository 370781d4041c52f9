"""A subject of evidence: a package whose ``SUBJECT`` says what its page opens with and which sections it has.

A section is a module of the package. It has a docstring (what the section says first), a ``TITLE``, its
sizes ``FULL`` and ``QUICK``, ``cells(config)``, and ``section(results, images)``, which gives the section's
lines and draws its figures. A subject of one section needs no other module: its own is the section.

To add a subject, write the package and name it in ``evidence.__main__``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from evidence.runner import Cell, Results

_ROOT = Path(__file__).parent
_DOCS = _ROOT.parent / "docs"


@dataclass(frozen=True)
class Subject:
    """What one page shows.

    Attributes
    ----------
    name
        Its package under ``evidence``, and its word on the command line.
    page
        The page's name under ``docs``.
    text
        What the page says before the first section.
    modules
        Its sections, in the order of the page; none where the subject's own module is the only one.
    """

    name: str
    page: str
    text: str
    modules: tuple[str, ...] = ()

    @property
    def sections(self) -> tuple[str, ...]:
        """The names of its sections, by which results are stored and asked for."""
        return self.modules or (self.name,)

    @property
    def headline(self) -> str:
        """The page's title."""
        return self.text.strip().splitlines()[0].removeprefix("# ")

    @property
    def target(self) -> Path:
        """The file of the page."""
        return _DOCS / f"{self.page}.md"

    def module(self, section: str) -> ModuleType:
        """The module of a section."""
        return import_module(f"evidence.{self.name}.{section}" if self.modules else f"evidence.{self.name}")

    def command(self, section: str) -> str:
        """What runs a section again."""
        return " ".join(["python -m evidence", self.name, *([section] if self.modules else [])])

    def results(self, section: str, quick: bool = False) -> Results:
        """What is stored of a section; a quick run is kept apart."""
        return Results(_ROOT / self.name / ("results-quick" if quick else "results") / section)

    def sizes(self, section: str, quick: bool) -> Any:
        """The sizes of a section."""
        module = self.module(section)
        return module.QUICK if quick else module.FULL

    def cells(self, section: str, quick: bool, cases: int | None = None) -> list[Cell]:
        """What there is to run; as many cases as asked for, where a section has such."""
        module = self.module(section)
        found: list[Cell] = module.cells(self.sizes(section, quick) if cases is None else module.sized(cases))
        return found

    def told(self, section: str, results: Results, quick: bool) -> list[str]:
        """What a person who watches is told once a section has been run."""
        return []

    def opening(self, stored: Mapping[str, Results], images: Path) -> list[str]:
        """What the page says before the first section."""
        return [self.text.strip()]

    def body(self, section: str, results: Results, images: Path) -> list[str]:
        """What a section says after its docstring, with the command that made it."""
        spent = sum(results.seconds(cell) for cell in results)
        made_by = f"`{self.command(section)}`: {len(results)} cells, {spent:,.0f} s."
        return [*self.module(section).section(results, images), "", made_by]
