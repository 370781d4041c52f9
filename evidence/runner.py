"""Cells: each is run once, kept on disk as a file of JSON, and not run again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agglearn.errors import InputError
from agglearn.runtime.progress import meter

Value = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run of a section.

    Attributes
    ----------
    name
        What it is, as a file name: ``adult-quantile-seed0``.
    settings
        All that decides what comes out, as JSON values. A stored result of other settings is run again.
    work
        Does it, and gives its findings as JSON values. An ``InputError`` says that data are missing here:
        the cell is left out, and its section says what is not there.
    again
        Run it whenever it is asked for, because it measures the machine it runs on.
    """

    name: str
    settings: Value
    work: Callable[[], Value]
    again: bool = False


class Results(Mapping[str, Value]):
    """Findings of a section's cells by name, as they stand on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Value:
        document = self._document(name)
        found: Value = document.get("found", document)  # a file without settings holds nothing but findings
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in self._folder.glob("*.json")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return (self._folder / f"{name}.json").exists()

    def starting(self, prefix: str) -> dict[str, Value]:
        """Those whose name starts so, in the order of their names."""
        return {name: self[name] for name in self if name.startswith(prefix)}

    def seconds(self, name: str) -> float:
        """How long a cell took."""
        return float(self._document(name)["seconds"])

    def settings(self, name: str) -> Value:
        """What a cell was run with."""
        return self._document(name)["settings"]  # type: ignore[no-any-return]

    def holds(self, cell: Cell) -> bool:
        """Whether this very cell has been run."""
        return cell.name in self and self.settings(cell.name) == json.loads(json.dumps(cell.settings))

    def keep(self, cell: Cell, found: Value, seconds: float) -> None:
        """Write what a cell found, all or nothing."""
        self._folder.mkdir(parents=True, exist_ok=True)
        document = {"settings": cell.settings, "seconds": round(seconds, 3), "found": found}
        part = self._folder / f"{cell.name}.part"
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        part.write_bytes(
            text.encode("utf-8", "backslashreplace")
        )  # half a character becomes its escape in JSON
        os.replace(part, self._folder / f"{cell.name}.json")

    def _document(self, name: str) -> Value:
        try:
            text = (self._folder / f"{name}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            raise KeyError(name) from None
        return json.loads(text)  # type: ignore[no-any-return]


def run_cells(title: str, cells: Sequence[Cell], results: Results) -> list[str]:
    """Run the cells that have not been run, or measure anew; why some could not be."""
    missing = []
    with meter(title, len(cells), "cells") as advance:
        for cell in cells:
            if cell.again or not results.holds(cell):
                began = time.perf_counter()
                try:
                    results.keep(cell, cell.work(), time.perf_counter() - began)
                except InputError as error:
                    missing.append(f"{cell.name}: {error}")
            advance(1, cell.name)
    return missing
