"""The cluster that is measured: executors of this machine, processes of their own with a core each."""

from __future__ import annotations

import sys
from typing import Any

from agglearn.spark.session import open_session

CORES = 2


def open_cluster(module: str, memory: int, driver: str) -> Any:
    """A session; the functions of a module go along with the work, for executors do not have it."""
    session = open_session(
        f"local-cluster[{CORES},1,{memory}]",
        {"spark.driver.memory": driver, "spark.driver.maxResultSize": "0"},
    )
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[module])
    return session
