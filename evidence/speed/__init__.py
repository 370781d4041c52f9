"""How fast it is, beside what: ratios measured in one run."""

from evidence.speed.verdicts import Measured

SUBJECT = Measured(
    name="speed",
    page="benchmarks",
    text="""
# Benchmarks

Ratios measured in one run, rivals side by side, two threads, after compilation, medians of several
runs. This page and its plots are made by `make bench` from what it measured; `make bench-quick`
runs small sizes in two minutes.
""",
    modules=(
        "training",
        "ads_shape",
        "growth",
        "sweep",
        "prediction",
        "exports",
        "startup",
        "aggregation",
        "rivals_mbi",
    ),
)
