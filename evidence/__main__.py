"""Run the subjects of an experiment, and write its page from what is stored."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from evidence.runner import Results, run_cells

_ROOT = Path(__file__).parent
_DOCS = _ROOT.parent / "docs"


def main(package: str, subjects: Sequence[str], page: str, opening: str) -> None:
    """The command line of an experiment.

    Parameters
    ----------
    package
        Its folder under ``experiments``.
    subjects
        Its modules, in the order of the page.
    page, opening
        The page's name under ``docs``, and what it says before the first section.
    """
    parser = argparse.ArgumentParser(prog=f"python -m evidence.{package}")
    parser.add_argument("subjects", nargs="*", help=f"of {', '.join(subjects)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, kept apart, no page")
    parser.add_argument("--page", action="store_true", help="only rewrite the page from stored results")
    options = parser.parse_args()
    for name in options.subjects:
        if name not in subjects:
            parser.error(f"no subject is called {name!r}: there are {', '.join(subjects)}")
    folder = _ROOT / package / ("results-quick" if options.quick else "results")
    for name in [] if options.page else options.subjects or subjects:
        print(f"{name} …", flush=True)
        module = import_module(f"evidence.{package}.{name}")
        config = module.QUICK if options.quick else module.FULL
        for why in run_cells(name, module.cells(config), Results(folder / name)):
            print(f"  left out: {why}")
    if not options.quick:
        write_page(package, subjects, folder, _DOCS / f"{page}.md", opening)


def write_page(package: str, subjects: Sequence[str], results: Path, target: Path, opening: str) -> None:
    """Write a page and its figures from the results on disk."""
    images = target.parent / "images"
    lines = [opening.strip()]
    for name in subjects:
        stored = Results(results / name)
        if not len(stored):
            continue
        module = import_module(f"evidence.{package}.{name}")
        command = f"python -m evidence.{package} {name}"
        lines += ["", f"## {module.TITLE}", "", (module.__doc__ or "").strip(), ""]
        lines += module.section(stored, images)
        spent = sum(stored.seconds(cell) for cell in stored)
        lines += ["", f"`{command}`: {len(stored)} cells, {spent:,.0f} s."]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
