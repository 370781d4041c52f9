"""The simulators: what they promise about their law, checked on what they draw."""

from __future__ import annotations

import csv
import gzip
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from agglearn.datasets import (
    AdsLog,
    adkdd_tables,
    load_adkdd_test,
    load_adkdd_train,
    open_criteo_attribution,
    toy,
    write_adkdd_like,
    write_criteo_attribution_like,
    xor,
)
from agglearn.errors import InputError

Codes = npt.NDArray[np.uint16]


def entropy(*columns: npt.NDArray[np.integer]) -> float:
    """Joint entropy in nats of the given columns, from their frequencies."""
    shape = tuple(int(column.max()) + 1 for column in columns)
    counts = np.bincount(np.ravel_multi_index(columns, shape))
    frequencies = counts[counts > 0] / len(columns[0])
    return float(-(frequencies * np.log(frequencies)).sum())


def binary_entropy(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return -(p * np.log(p) + (1 - p) * np.log(1 - p))


@pytest.fixture(scope="module")
def log() -> AdsLog:
    return AdsLog(seed=7)


@pytest.fixture(scope="module")
def drawn(log: AdsLog) -> tuple[Codes, npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    codes, y = log.sample(400_000, seed=11)
    return codes, y, log.probability(codes)


Drawn = tuple[Codes, npt.NDArray[np.uint8], npt.NDArray[np.float64]]


# -- the paper's examples ------------------------------------------------------------------------


def test_toy_gives_the_corrected_table_of_the_paper() -> None:
    records = toy().to_pylist()
    counts = Counter((r["feature_1"], r["feature_2"]) for r in records)
    sums = Counter((r["feature_1"], r["feature_2"]) for r in records if r["label"])
    assert counts == {("1", "A"): 1, ("1", "B"): 2, ("2", "A"): 1, ("2", "B"): 1}
    assert sums == {("1", "B"): 1, ("2", "A"): 1, ("2", "B"): 1}


def test_xor_hides_its_link_from_every_pair() -> None:
    rows = 40_000
    table = xor(rows, seed=3)
    x1, x2, x3, y = (table.column(name).to_numpy() for name in ("x1", "x2", "x3", "y"))
    assert np.array_equal(x3, (x1 + x2) % 2)
    for a, b in itertools.combinations((x1, x2, x3), 2):
        cells = np.bincount(2 * a + b, minlength=4) / rows
        # 5 standard deviations of a frequency of 1/4
        assert np.abs(cells - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / rows)
    for value, rate in ((0, 0.25), (1, 0.75)):
        group = y[x3 == value]
        assert abs(group.mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / len(group))
    assert table.equals(xor(rows, seed=3))
    assert not table.equals(xor(rows, seed=4))


# -- the ads log ---------------------------------------------------------------------------------


def test_the_default_log_has_ten_million_pair_cells(log: AdsLog) -> None:
    assert len(log.cards) == 19
    assert max(log.cards) == 1000
    cells = sum(a * b for a, b in itertools.combinations(log.cards, 2))
    assert cells == log.pair_cells
    assert cells >= 10_000_000


def test_codes_stay_within_the_cards_and_reach_all_of_them(log: AdsLog, drawn: Drawn) -> None:
    codes, y, _ = drawn
    assert codes.dtype == np.uint16
    assert y.dtype == np.uint8
    assert codes.shape == (400_000, 19)
    assert set(np.unique(y)) == {0, 1}
    for column, card in zip(codes.T, log.cards, strict=True):
        # The rarest value of 1,000 has about 1 record in 6,000, and so is in 400,000 of them.
        assert np.array_equal(np.unique(column), np.arange(card))


def test_the_click_rate_is_the_true_probability_in_every_decile(drawn: Drawn) -> None:
    _, y, p = drawn
    for group in np.array_split(np.argsort(p), 10):
        # Given p, the clicks of a group are independent with these variances.
        deviation = np.sqrt((p[group] * (1 - p[group])).sum()) / len(group)
        assert abs(y[group].mean() - p[group].mean()) < 4.5 * deviation


@pytest.mark.parametrize("seed", range(4))
def test_any_seed_gives_the_click_rate_asked_for_and_a_plausible_signal(seed: int) -> None:
    for rate in (0.03, 0.1):
        log = AdsLog(seed=seed, click_rate=rate)
        p = log.probability(log.sample(100_000, seed=1)[0])
        # The intercept is set on 65,536 records, whose mean has a relative deviation below 1 %.
        assert p.mean() == pytest.approx(rate, rel=0.05)
        nllh = 1 - binary_entropy(p).mean() / binary_entropy(p.mean(keepdims=True))[0]
        assert 0.2 < nllh < 0.3


def test_the_label_has_pair_effects_and_none_of_higher_order(log: AdsLog) -> None:
    rng = np.random.default_rng(0)
    base = np.array([rng.integers(0, card - 1) for card in log.cards])

    def contrast(features: tuple[int, ...]) -> float:
        """Alternating sum of the log-odds over a step of each of the features."""
        total = 0.0
        for steps in itertools.product((0, 1), repeat=len(features)):
            x = base.copy()
            x[list(features)] += steps
            p = log.probability(x[None, :])[0]
            total += (-1) ** sum(steps) * np.log(p / (1 - p))
        return abs(total)

    pairs = [contrast(pair) for pair in itertools.combinations(range(19), 2)]
    assert 10 < sum(value > 1e-3 for value in pairs) < 100  # some of the 171, not all
    triples = itertools.islice(itertools.combinations(range(19), 3), 0, None, 13)
    assert max(contrast(triple) for triple in triples) < 1e-9  # rounding of log-odds near 10


def test_features_of_one_hidden_variable_nearly_determine_one_another(drawn: Drawn) -> None:
    codes = drawn[0]
    campaign, site, advertiser, placement = codes[:, :4].T
    hour = codes[:, 11]
    for known, unknown, share in (
        (campaign, advertiser, 0.05),
        (site, placement, 0.1),
        (placement, site, 0.1),
    ):
        left = entropy(known, unknown) - entropy(known)
        assert left < share * entropy(unknown)
    assert entropy(campaign, hour) - entropy(campaign) > 0.95 * entropy(hour)


def test_large_marginals_are_zipf_like(drawn: Drawn) -> None:
    counts = np.sort(np.bincount(drawn[0][:, 0]))[::-1]
    # p_k ∝ 1/(k+2) for rank k; counts of thousands, so 10 % covers the sampling error.
    assert counts[9] / counts[99] == pytest.approx(102 / 12, rel=0.1)
    assert counts[0] / counts.sum() < 0.1


@pytest.mark.parametrize("batch_rows", [1_000, 65_536, 70_001, 1_000_000])
def test_records_do_not_depend_on_the_batch_size(log: AdsLog, batch_rows: int) -> None:
    rows = 150_000
    codes, y = log.sample(rows, seed=5)
    batches = list(log.batches(rows, batch_rows, seed=5))
    assert all(len(part) == batch_rows for part, _ in batches[:-1])
    assert np.array_equal(np.concatenate([part for part, _ in batches]), codes)
    assert np.array_equal(np.concatenate([part for _, part in batches]), y)


def test_asking_for_more_rows_only_appends(log: AdsLog) -> None:
    few, many = log.sample(70_000, seed=5), log.sample(140_000, seed=5)
    assert np.array_equal(few[0], many[0][:70_000])
    assert np.array_equal(few[1], many[1][:70_000])


def test_an_equal_log_gives_equal_records_and_other_seeds_give_others(log: AdsLog) -> None:
    codes, y = log.sample(1_000, seed=5)
    again = AdsLog(seed=7).sample(1_000, seed=5)
    assert np.array_equal(codes, again[0])
    assert np.array_equal(y, again[1])
    assert not np.array_equal(codes, log.sample(1_000, seed=6)[0])
    assert not np.array_equal(codes, AdsLog(seed=8).sample(1_000, seed=5)[0])


def test_chunks_are_not_copies_of_one_another(log: AdsLog) -> None:
    codes, _ = log.sample(131_072, seed=5)
    same = (codes[:65_536] == codes[65_536:]).all(axis=1).mean()
    assert same < 1e-3


def test_a_table_holds_the_codes_or_their_names(log: AdsLog) -> None:
    codes, y = log.sample(500, seed=1)
    numbers, strings = log.to_table(codes, y), log.to_table(codes, y, strings=True)
    assert numbers.column_names == strings.column_names
    assert strings.column_names[0] == "f00"
    assert strings.column_names[-2:] == ["f18", "click"]
    assert np.array_equal(numbers.column("f03").to_numpy(), codes[:, 3])
    assert strings.column("f03").to_pylist() == [f"f03={code}" for code in codes[:, 3]]
    assert strings.schema.field("f03").type == pa.string()
    assert np.array_equal(strings.column("click").to_numpy(), y)


def test_a_small_log_keeps_its_shape() -> None:
    log = AdsLog(n_features=25, max_modalities=8, seed=1)
    codes, _ = log.sample(20_000, seed=1)
    assert codes.shape == (20_000, 25)
    assert max(log.cards) == 8
    assert [len(np.unique(column)) for column in codes.T] == list(log.cards)


def test_an_empty_sample_is_empty(log: AdsLog) -> None:
    codes, y = log.sample(0, seed=1)
    assert codes.shape == (0, 19)
    assert y.shape == (0,)
    assert log.probability(codes).shape == (0,)
    assert list(log.batches(0, 10, seed=1)) == []


def test_settings_and_codes_that_make_no_sense_are_refused(log: AdsLog) -> None:
    for settings in ({"n_features": 1}, {"max_modalities": 70_000}, {"seed": -1}):
        with pytest.raises(InputError, match=next(iter(settings))):
            AdsLog(**settings)
    with pytest.raises(InputError, match="click_rate"):
        AdsLog(click_rate=1.0)
    with pytest.raises(InputError, match="seed"):
        log.sample(10, seed=-1)
    with pytest.raises(InputError, match="rows"):
        log.sample(-1, seed=1)
    with pytest.raises(InputError, match="batch_rows"):
        list(log.batches(10, 0, seed=1))
    with pytest.raises(InputError, match="shape"):
        log.probability(np.zeros((5, 3), np.uint16))
    with pytest.raises(InputError, match="f04"):
        log.probability(np.full((1, 19), 7, np.uint16))


# -- files in Criteo's formats -------------------------------------------------------------------


def read_packed(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def test_an_attribution_file_streams_back_the_records_of_its_log(tmp_path: Path) -> None:
    path = tmp_path / "made" / "criteo.tsv.gz"
    log = write_criteo_attribution_like(path, 30_000, seed=2)
    codes, y = log.sample(30_000, seed=2)
    batches = list(open_criteo_attribution(path))
    assert len(batches) > 1  # it is streamed
    table = pa.Table.from_batches(batches)
    assert np.array_equal(table.column("click").to_numpy(), y)
    for j, name in enumerate(["campaign", *(f"cat{i}" for i in range(1, 10))]):
        values = table.column(name).to_pylist()
        assert len(set(zip(values, codes[:, j], strict=True))) == len(set(values))
        assert len(set(values)) == len(np.unique(codes[:, j]))


def test_an_attribution_file_keeps_the_rules_of_the_published_one(tmp_path: Path) -> None:
    path = tmp_path / "criteo.tsv.gz"
    write_criteo_attribution_like(path, 5_000, seed=2)
    rows = read_packed(path, "\t")
    assert len(rows) == 5_000
    assert list(rows[0])[:3] == ["timestamp", "uid", "campaign"]
    assert list(rows[0])[-1] == "cat9"
    assert len(rows[0]) == 22
    times = [int(row["timestamp"]) for row in rows]
    assert times == sorted(times)
    for row in rows:
        assert row["click"] == "1" or row["conversion"] == "0"
        assert (row["conversion_id"] == "-1") == (row["conversion"] == "0")
        assert int(row["time_since_last_click"]) >= -1


def test_adkdd_tables_without_noise_count_the_records(tmp_path: Path) -> None:
    log = write_adkdd_like(tmp_path, 3_000, seed=4, noise_sigma=0.0, max_modalities=30)
    codes, click = log.sample(3_000, seed=4)
    pairs_path, singles_path = adkdd_tables(tmp_path)

    for path, order, floor in ((pairs_path, 2, 10), (singles_path, 1, 0)):
        places = range(1, order + 1)
        found = {}
        for row in read_packed(path):
            features = tuple(int(row[f"feature_{k}_id"]) for k in places)
            values = tuple(int(row[f"feature_{k}_value"]) for k in places)
            assert 0 <= float(row["nb_sales"]) <= float(row["nb_clicks"])
            found[features, values] = float(row["count"]), float(row["nb_clicks"])
        expected = {}
        for scope in itertools.combinations(range(19), order):
            columns = [tuple(cell) for cell in codes[:, scope].tolist()]
            counts = Counter(columns)
            clicks = Counter(cell for cell, y in zip(columns, click, strict=True) if y)
            for cell, count in counts.items():
                if count > floor:
                    expected[scope, cell] = float(count), float(clicks[cell])
        assert found == expected


def test_adkdd_noise_has_the_declared_spread_and_hides_no_cell(tmp_path: Path) -> None:
    write_adkdd_like(tmp_path / "exact", 20_000, seed=4, noise_sigma=0.0, max_modalities=50)
    write_adkdd_like(tmp_path / "noisy", 20_000, seed=4, max_modalities=50)
    exact = read_packed(adkdd_tables(tmp_path / "exact")[0])
    noisy = read_packed(adkdd_tables(tmp_path / "noisy")[0])
    assert len(exact) == len(noisy) > 5_000
    for name in ("count", "nb_clicks", "nb_sales"):
        noise = np.array([float(b[name]) - float(a[name]) for a, b in zip(exact, noisy, strict=True)])
        # Standard errors of a Gaussian's mean and deviation: σ/√n and σ/√(2n).
        assert abs(noise.mean()) < 5 * 17 / np.sqrt(len(noise))
        assert abs(noise.std() - 17) < 5 * 17 / np.sqrt(2 * len(noise))


def test_adkdd_records_follow_those_that_the_tables_count(tmp_path: Path) -> None:
    log = write_adkdd_like(tmp_path, 2_000, seed=4, max_modalities=30)
    codes, click = log.sample(2_400, seed=4)
    for table, part in (
        (load_adkdd_train(tmp_path), slice(2_000, 2_200)),
        (load_adkdd_test(tmp_path), slice(2_200, 2_400)),
    ):
        assert table.column_names == [*(f"hash_{i}" for i in range(19)), "click", "sale"]
        for i in range(19):
            assert table.column(f"hash_{i}").to_pylist() == [str(v) for v in codes[part, i]]
        assert np.array_equal(table.column("click").to_numpy(), click[part])
        assert not np.any(table.column("sale").to_numpy() > click[part])


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_adkdd_like(tmp_path / folder, 500, seed=seed, max_modalities=20)
        write_criteo_attribution_like(tmp_path / folder / "x.tsv.gz", 500, seed=seed)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(names) == 6
    for name in names:
        first, second, other = ((tmp_path / folder / name).read_bytes() for folder in "abc")
        assert first == second
        assert first != other


def test_writers_refuse_settings_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rows"):
        write_criteo_attribution_like(tmp_path / "x.tsv.gz", 0, seed=1)
    with pytest.raises(InputError, match="noise_sigma"):
        write_adkdd_like(tmp_path, 10, seed=1, noise_sigma=-1.0)
    assert list(tmp_path.iterdir()) == []
