"""Beyond one machine: what a Spark cluster costs, and what it would take at a size that needs one."""

from evidence.subject import Subject

SUBJECT = Subject(
    name="spark",
    page="scale",
    text="""
# Beyond one machine

With Spark the chains of a fit are dealt out in blocks to the executors of a cluster, and stay there. For
each iteration the weights are broadcast (12 bytes a cell: μ, the θ that X follows, and θ, as 32-bit multiples
of 2⁻¹⁶, which is how chains see them on one machine too), every block is moved and counted by the kernels of
the local engine, and the counts are summed in a tree, or by shards (12 bytes a cell: chains as 32-bit
numbers, probabilities as 64-bit multiples of 2⁻³⁰). Both go without their zeros, and without the upper bits
that small numbers do not need. The bits are those of the local engine: this page is about time alone.
`python -m evidence spark` measures on a `local-cluster` of two executors, processes of their own with a core
each, beside the local engine on the same two cores with nothing else running, and writes this page.

**Shards.** The cells, in the order of their tables, are cut into runs. The weights of each are broadcast by
themselves; its tallies are summed for all blocks by one executor, and the driver gets each sum once. A tree
of b blocks adds up √b tallies in a row in an executor and √b in the driver; by shards they are three, and one
stage more. By default whichever is faster by rough figures of these is
taken (`field/engines/tallies.py`); `spark.agglearn.shards` says otherwise.
""",
    modules=("fit", "aggregate"),
)
