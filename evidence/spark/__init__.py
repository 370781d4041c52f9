"""Beyond one machine: what a Spark cluster costs, and what it would take at a size that needs one."""

from evidence.subject import Subject

SUBJECT = Subject(
    name="spark",
    page="scale",
    text="""
# Beyond one machine

With Spark the chains of a fit are dealt out in blocks to the executors of a cluster, and stay there. For
each iteration the weights are broadcast (24 bytes a cell: μ, the θ that X follows, and θ), every block is
moved and counted by the kernels of the local engine, and the counts are summed in a tree (12 bytes a cell:
chains as 32-bit numbers, probabilities as 64-bit multiples of 2⁻³⁰). The bits are those of the local engine:
this page is about time alone. `python -m evidence spark` measures on a `local-cluster` of two executors,
processes of their own with a core each, beside the local engine on the same two cores with nothing else
running, and writes this page.
""",
    modules=("fit", "aggregate"),
)
