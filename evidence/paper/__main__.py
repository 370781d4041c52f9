"""Run the paper's experiments and write the page: ``python -m evidence.paper [--quick] [SUBJECT...]``."""

from evidence.__main__ import main

SUBJECTS = (
    "nllh_table",
    "criteo",
    "penalty_grid",
    "chains",
    "gradients",
    "step_sizes",
    "triplets",
    "xor",
    "beyond",
)
OPENING = """
# The paper again

Every table and figure of *Learning from aggregated data with a maximum entropy model* (Gilotte, Yahmed,
Rohde), made with agglearn on the data at hand, beside the published figures. `make paper` runs what has not
been run yet, and writes this page and its figures from what is stored.
"""

if __name__ == "__main__":
    main("paper", SUBJECTS, "paper", OPENING)
