"""Run the benchmarks and write the results page: ``python -m benchmarks [--quick] [SUBJECT...]``."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path

from benchmarks.config import FULL, QUICK
from benchmarks.measure import machine
from benchmarks.page import show, write_page

SUBJECTS = (
    "training",
    "ads_shape",
    "growth",
    "sweep",
    "prediction",
    "startup",
    "aggregation",
    "rivals_mbi",
)
_RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run the subjects asked for; a full run also rewrites the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subjects", nargs="*", help=f"of {', '.join(SUBJECTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, no page")
    parser.add_argument("--page", action="store_true", help="only rewrite the page from stored results")
    options = parser.parse_args()
    for name in options.subjects:
        if name not in SUBJECTS:
            parser.error(f"no subject is called {name!r}: there are {', '.join(SUBJECTS)}")
    config = QUICK if options.quick else FULL
    for name in [] if options.page else options.subjects or SUBJECTS:
        print(f"{name} …", flush=True)
        results = import_module(f"benchmarks.{name}").run(config)
        show(results)
        if not options.quick:
            _RESULTS.mkdir(exist_ok=True)
            document = {"machine": machine(), "results": [r.to_json() for r in results]}
            text = json.dumps(document, indent=1, ensure_ascii=False)
            (_RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    if not options.quick:
        write_page(_RESULTS, SUBJECTS, Path("docs/benchmarks.md"))


if __name__ == "__main__":
    main()
