"""Run what a page of the documentation rests on, and write the page from what is stored.

Cells that have been run are not run again (those of speed are: they measure this machine). A run that is
stopped goes on where it was. A quick run has small sizes, is kept apart, and writes no page.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from evidence.page import write_page
from evidence.runner import run_cells
from evidence.subject import Subject

SUBJECTS = (
    "speed",
    "paper",
    "tables_only",
    "zoo",
    "known",
    "privacy",
    "fuzz",
    "cardinality",
    "spark",
)


def subject(name: str) -> Subject:
    """A subject by its name."""
    found: Subject = import_module(f"evidence.{name}").SUBJECT
    return found


def main() -> None:
    """Run the sections asked for; a full run also rewrites the page."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence",
        description=__doc__,
        epilog=contents(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subject", nargs="?", metavar="SUBJECT", help="what to run")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="only these of its sections")
    parser.add_argument("--quick", action="store_true", help="small sizes, kept apart, no page")
    parser.add_argument("--page", action="store_true", help="only rewrite the page from stored results")
    parser.add_argument("--cases", type=int, metavar="N", help="how many cases, for the subject fuzz")
    parser.add_argument("--list", action="store_true", help="show the subjects and their sections")
    options = parser.parse_args()
    if options.list:
        print(contents())
        return
    if options.subject is None:
        parser.print_help()
        return
    if options.subject not in SUBJECTS:
        parser.error(f"no subject is called {options.subject!r}: there are {', '.join(SUBJECTS)}")
    chosen = subject(options.subject)
    for name in options.sections:
        if name not in chosen.sections:
            parser.error(f"{chosen.name} has no section {name!r}: there are {', '.join(chosen.sections)}")
    if options.cases is not None and not hasattr(chosen.module(chosen.sections[0]), "sized"):
        parser.error(f"{chosen.name} has no cases to count")
    if not options.page:
        for name in options.sections or chosen.sections:
            run_section(chosen, name, options.quick, options.cases)
    if not options.quick:
        write_page(chosen)


def run_section(chosen: Subject, name: str, quick: bool, cases: int | None = None) -> None:
    """Run the cells of a section that are to be run, and say what came of it."""
    print(f"{name} …", flush=True)
    results = chosen.results(name, quick)
    for why in run_cells(name, chosen.cells(name, quick, cases), results):
        print(f"  left out: {why}")
    for line in chosen.told(name, results, quick):
        print(f"  {line}", flush=True)


def contents() -> str:
    """The subjects, each with its page and sections."""
    lines = ["subjects and their sections:"]
    for found in map(subject, SUBJECTS):
        lines += ["", f"  {found.name}: {found.headline} (docs/{found.page}.md)"]
        lines += [f"    {name}" for name in found.sections]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
