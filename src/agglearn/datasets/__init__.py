"""Data to learn from: public sets, among them those of the paper, and simulators whose truth is known."""

from agglearn.datasets.adslog import AdsLog
from agglearn.datasets.catalogue import DatasetInfo, available, fetch
from agglearn.datasets.criteo import (
    CRITEO_ATTRIBUTION_FEATURES,
    adkdd_tables,
    criteo_attribution_path,
    load_adkdd_test,
    load_adkdd_train,
    open_criteo_attribution,
)
from agglearn.datasets.packaged import load_census, load_credit, load_fars, load_flights, load_nursery
from agglearn.datasets.simulate import toy, write_adkdd_like, write_criteo_attribution_like, xor
from agglearn.datasets.sources import data_home
from agglearn.datasets.uci import load_adult, load_bank

__all__ = [
    "CRITEO_ATTRIBUTION_FEATURES",
    "AdsLog",
    "DatasetInfo",
    "adkdd_tables",
    "available",
    "criteo_attribution_path",
    "data_home",
    "fetch",
    "load_adkdd_test",
    "load_adkdd_train",
    "load_adult",
    "load_bank",
    "load_census",
    "load_credit",
    "load_fars",
    "load_flights",
    "load_nursery",
    "open_criteo_attribution",
    "toy",
    "write_adkdd_like",
    "write_criteo_attribution_like",
    "xor",
]
