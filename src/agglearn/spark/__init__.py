"""A Spark cluster: how it is reached, and what is asked of it."""
