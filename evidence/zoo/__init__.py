"""How good the field is by default on data that nobody tuned it for."""

from evidence.zoo.verdict import Zoo

SUBJECT = Zoo(
    name="zoo",
    page="zoo",
    text="""
# The zoo

Nine data sets of many shapes, everything by default: `aggregate` and `fit` as they are, from the tables of
training records alone, beside models that may look at the records. NLLH on test records (1 − log loss /
entropy of the label), means over splits; ± is their standard deviation. The first split of Adult and Census
is the published one; others draw as large a share of the records to test, and a fifth where no test records
are published. Flights are without tail number and flight number; *ads* are simulated logs of few and of many
modalities. `make zoo` runs what has not been run yet, and writes this page and its figure from what is
stored; to judge the field anew, remove `evidence/zoo/results/field`.
""",
    modules=("field", "logistic", "boosting", "baselines", "mixing"),
)
