"""The paper's tables and figures, made again."""

from evidence.subject import Subject

SUBJECT = Subject(
    name="paper",
    page="paper",
    text="""
# The paper again

Every table and figure of *Learning from aggregated data with a maximum entropy model* (Gilotte, Yahmed,
Rohde), made with agglearn on the data at hand, beside the published figures. `make paper` runs what has not
been run yet, and writes this page and its figures from what is stored.
""",
    modules=(
        "nllh_table",
        "criteo",
        "penalty_grid",
        "chains",
        "gradients",
        "step_sizes",
        "triplets",
        "xor",
        "beyond",
    ),
)
