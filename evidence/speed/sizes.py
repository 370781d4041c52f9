"""Sizes of the benchmarks: full for the page, quick to see in two minutes that nothing broke."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """How much of everything is measured.

    Attributes
    ----------
    repeat
        Runs behind a median.
    aggregate_rows, stream_rows
        Records aggregated in memory and from Parquet, and in a stream.
    fit_repeat
        Runs behind the median of a fit on Adult or Bank.
    bank_seeds
        Seeds of the random splits of Bank.
    logistic_iterations
        Where the logistic's quality is looked at; the last is the rival of the targets.
    ads_modalities, ads_rows
        The ads log: modalities of its largest features, and records.
    ads_chains, ads_iterations
        Chains, and iterations that are timed.
    race_chains, race_iterations, fresh_rows
        Metropolis against Gibbs: chains, iterations of the Metropolis run, and records to score on.
    growth_chains
        Chains of the smaller run where something doubles.
    sweep_repeat
        Runs behind the median of a sweep.
    sweep_chains, roofline_adds
        Chains of a sweep that is compared with the roofline, and additions of the roofline's loop.
    code_rows, text_rows, export_rows
        Records scored from codes, from a file of text, and by exports.
    cold_start
        Whether a first process compiles into an empty cache.
    mbi_features, mbi_iterations, mbi_seconds
        Numbers of features that mbi is tried on, in order, its iterations, and the seconds it may take.
    mbi_install
        Whether mbi is installed where it is not yet.
    """

    repeat: int
    aggregate_rows: int
    stream_rows: tuple[int, ...]
    fit_repeat: int
    bank_seeds: tuple[int, ...]
    logistic_iterations: tuple[int, ...]
    ads_modalities: int
    ads_rows: int
    ads_chains: int
    ads_iterations: int
    race_chains: int
    race_iterations: int
    fresh_rows: int
    growth_chains: int
    sweep_repeat: int
    sweep_chains: int
    roofline_adds: int
    code_rows: int
    text_rows: int
    export_rows: int
    cold_start: bool
    mbi_features: tuple[int, ...]
    mbi_iterations: int
    mbi_seconds: float
    mbi_install: bool


FULL = Sizes(
    repeat=3,
    aggregate_rows=2_000_000,
    stream_rows=(5_000_000, 10_000_000, 20_000_000),
    fit_repeat=5,
    bank_seeds=(0, 1, 2),
    logistic_iterations=(10, 15, 25, 50, 200),
    ads_modalities=1000,
    ads_rows=4_000_000,
    ads_chains=1_000_000,
    ads_iterations=20,
    race_chains=1_000_000,
    race_iterations=15,
    fresh_rows=200_000,
    growth_chains=200_000,
    sweep_repeat=15,
    sweep_chains=100_000,
    roofline_adds=300_000_000,
    code_rows=4_000_000,
    text_rows=2_000_000,
    export_rows=1_000_000,
    cold_start=True,
    mbi_features=(5, 6, 7),
    mbi_iterations=1000,
    mbi_seconds=90,
    mbi_install=True,
)
QUICK = Sizes(
    repeat=1,
    aggregate_rows=100_000,
    stream_rows=(100_000, 200_000),
    fit_repeat=1,
    bank_seeds=(0,),
    logistic_iterations=(10, 25),
    ads_modalities=250,
    ads_rows=100_000,
    ads_chains=20_000,
    ads_iterations=3,
    race_chains=5_000,
    race_iterations=10,
    fresh_rows=20_000,
    growth_chains=5_000,
    sweep_repeat=1,
    sweep_chains=20_000,
    roofline_adds=50_000_000,
    code_rows=200_000,
    text_rows=100_000,
    export_rows=100_000,
    cold_start=False,
    mbi_features=(3,),
    mbi_iterations=50,
    mbi_seconds=30,
    mbi_install=False,
)
