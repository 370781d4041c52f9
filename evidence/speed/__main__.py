"""Run the benchmarks and write the results page: ``python -m evidence.speed [--quick] [SUBJECT...]``."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from evidence.speed.sizes import FULL, QUICK
from evidence.speed.verdicts import show, store_results, write_page

SUBJECTS = {
    "training": "Training",
    "ads_shape": "Ads shape",
    "growth": "Growth",
    "sweep": "Sweep",
    "prediction": "Prediction",
    "startup": "Start-up",
    "aggregation": "Aggregation",
    "rivals_mbi": "mbi",
}
_RESULTS = Path(__file__).parent / "results"
_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def main() -> None:
    """Run the subjects asked for; a full run also rewrites the page."""
    parser = argparse.ArgumentParser(prog="python -m evidence.speed", description=__doc__)
    parser.add_argument("subjects", nargs="*", help=f"of {', '.join(SUBJECTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, no judgement, no page")
    parser.add_argument("--page", action="store_true", help="only rewrite the page from stored results")
    options = parser.parse_args()
    for name in options.subjects:
        if name not in SUBJECTS:
            parser.error(f"no subject is called {name!r}: there are {', '.join(SUBJECTS)}")
    config = QUICK if options.quick else FULL
    for name in [] if options.page else options.subjects or SUBJECTS:
        print(f"{name} …", flush=True)
        module = import_module(f"evidence.speed.{name}")
        results = module.run(config)
        show(results, judge=not options.quick)
        if not options.quick:
            store_results(_RESULTS, name, module.__doc__ or "", results)
    if not options.quick:
        write_page(_RESULTS, SUBJECTS, _PAGE)


if __name__ == "__main__":
    main()
