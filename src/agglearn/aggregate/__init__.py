"""Records to tables: :func:`aggregate` for all of them, :func:`aggregate_split` for disjoint parts."""

from agglearn.aggregate.api import Aggregation, aggregate, aggregate_split

__all__ = ["Aggregation", "aggregate", "aggregate_split"]
