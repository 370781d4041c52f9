"""What records without labels, yesterday's model and the days before add to tables."""

from evidence.subject import Subject

SUBJECT = Subject(
    name="known",
    page="known",
    text="""
# Everything the user has

Tables are what everyone has; many have more. Four fifths of the training records of a data set are counted
into tables, everything by default, and models are judged by their NLLH (1 − log loss / entropy of the label)
on the other fifth.
""",
    modules=("shares", "optimum", "days", "next_day", "million"),
)
