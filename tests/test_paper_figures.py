"""The paper's figures at small sizes: what they show must hold, and the page comes from what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import agglearn
from agglearn.datasets import write_adkdd_like
from agglearn.datasets import xor as xor_records
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.layout import Layout
from agglearn.judge.baselines import one_hot
from evidence.paper import chains, gradients, penalty_grid, triplets, xor
from evidence.paper.notebook import Notebook, authors_training, constant_steps, train_as_authors
from evidence.paper.published import NOTEBOOK_CHAINS, NOTEBOOK_TABLES, XOR, XOR_RATE
from evidence.paper.triplet_fits import MODELS, Three, columns, fit_logistic, judge, three_way_information
from evidence.runner import Cell, Results, run_cells
from evidence.splits import Part, Predictor, Split, split

SUBJECTS = (penalty_grid, chains, gradients, triplets, xor)


@pytest.fixture(scope="module")
def data(shared_data: Path) -> Iterator[None]:
    """The public data at hand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGGLEARN_DATA", str(shared_data))
        yield


@pytest.fixture(scope="module")
def adult(data: None) -> Split:
    return split("adult", "width", 0, tables=NOTEBOOK_TABLES)


@pytest.fixture(scope="module")
def some_of_adult(data: None) -> Split:
    return split("adult", "quantile", 0, share=0.4)


def keep(results: Results, name: str, found: dict[str, object]) -> None:
    results.keep(Cell(name, {}, dict), found, 1.0)


# -- what the figures show -----------------------------------------------------------------------


def test_xor_is_predicted_as_the_paper_says_from_pairs_and_rightly_with_the_triple(tmp_path: Path) -> None:
    results = Results(tmp_path / "xor")
    run_cells("xor", [cell for cell in xor.cells(xor.QUICK) if cell.name.startswith("exact")], results)
    states = [a ^ b for a, b in product((0, 1), repeat=2)]
    pairs, triple = results["exact-pairs"]["field"], results["exact-triple"]["field"]
    # Two witnesses of odds 3 each make 9 to 1; a penalty of 0.001 on a million records moves less than this.
    np.testing.assert_allclose(pairs, [XOR[x3] for x3 in states], atol=1e-4)
    np.testing.assert_allclose(triple, [XOR_RATE[x3] for x3 in states], atol=1e-4)
    lines = "\n".join(xor.section(results, tmp_path))
    assert "| field, pairs | 0.1000 | 0.9000 | 0.9000 | 0.1000 |" in lines
    # Given y, x₃ and x₁ xor x₂ are independent and each is 1 with probability ¼ or ¾: they differ in 2·¼·¾.
    assert "37.5% of the records" in lines


def test_the_authors_training_ends_where_their_notebook_ended(adult: Split) -> None:
    model = train_as_authors(adult.whole, Notebook(chains=1_000))
    score = adult.test.held_out.nllh(model)
    # Two seeds of 1,000 chains differ by about 0.001 at this number of chains.
    assert score == pytest.approx(NOTEBOOK_CHAINS[1_000], abs=0.003)


def test_the_rescaled_gradient_needs_fewer_iterations_than_the_plain_one(adult: Split) -> None:
    curves = {}
    for gradient in ("rescaled", "plain"):
        settings = Notebook(gradient=gradient, chains=1_000, iterations=60)
        curves[gradient] = gradients.trained(
            adult, constant_steps(adult.whole.layout, settings, "independent")
        )["nllh"]
        by_authors = list(authors_training(adult.whole, settings))[-1]
        curves[f"authors, {gradient}"] = [judge_on(by_authors, adult.test)]
    best_plain = max(curves["plain"])
    reached = next(k for k, score in enumerate(curves["rescaled"]) if score > best_plain)
    # Measured: half the iterations. Two thirds leave room for the noise of the chains.
    assert reached < 2 / 3 * len(curves["plain"])
    # The notebook's own curves are 0.03 apart after 50 iterations.
    assert curves["authors, rescaled"][0] > curves["authors, plain"][0] + 0.01


def test_the_tree_start_is_ahead_of_the_independent_one(adult: Split) -> None:
    settings = Notebook(chains=1_000, iterations=30)
    tree, independent = (
        gradients.trained(adult, constant_steps(adult.whole.layout, settings, start))["nllh"][-1]
        for start in ("tree", "independent")
    )
    assert tree > independent + 0.01  # measured: 0.03; seeds differ by 0.002


@pytest.mark.parametrize(("name", "least"), [("ours-quantile", 0.002), ("authors", 0.05)])
def test_a_small_penalty_on_mu_is_best(name: str, least: float, data: None) -> None:
    method, gains = penalty_grid.METHODS[name], []
    for seed in (0, 1):
        tables = NOTEBOOK_TABLES if method.authors else "pairs"
        bank = split("bank", method.binning, seed, tables=tables, share=0.25)
        free, tied = (
            judge_on(penalty_grid.fit_with(method, bank.whole, 1.0, lambda_mu, 0, 40), bank.test)
            for lambda_mu in (1.0, 64.0)
        )
        gains.append(free - tied)
    # Measured at this size: 0.007 and 0.3. Other chains change the mean of the two splits by 0.001.
    assert fmean(gains) > least


def test_on_triplets_the_field_is_near_the_logistic_and_above_naive_bayes(some_of_adult: Split) -> None:
    whole, test = some_of_adult.whole, some_of_adult.test
    chosen = [
        ("age", "education", "sex"),
        ("marital-status", "relationship", "sex"),
        ("education", "education-num", "hours-per-week"),
        ("workclass", "occupation", "capital-gain"),
    ]
    assert set(chosen) < set(triplets.triplets_of(whole))
    with threadpool_limits(1):  # as in the experiment: the matrices are small
        rows = [judge(triplet, whole, test, dict.fromkeys(MODELS, 1.0)) for triplet in chosen]
    # Over a hundred triplets at this size the largest difference was 0.002, with a standard error of 0.0008.
    assert max(abs(row["logistic"] - row["field"]) for row in rows) < 0.004
    # Husbands are married men, and an education is its number: Naive Bayes counts them twice and three times.
    correlated = [
        row for row in rows if "relationship" in row["triplet"] or "education-num" in row["triplet"]
    ]
    assert all(row["field"] > row["naive_bayes"] + 0.02 for row in correlated)


def test_the_logistic_of_the_states_is_that_of_the_records(some_of_adult: Split) -> None:
    triplet = ("education", "relationship", "race")
    three = Three.of(triplet, some_of_adult.whole)
    codes = columns(triplet, some_of_adult.whole)
    records = LogisticRegression(C=1 / (2 * 2.0), tol=1e-7, max_iter=5_000)
    design = one_hot(codes, three.problem.layout)
    expected = records.fit(design, some_of_adult.whole.y).decision_function(design)
    # Both stop at a gradient of 1e-7 a record; where it bends least the objective still bends by 2λ/n = 3e-4.
    np.testing.assert_allclose(fit_logistic(three, 2.0).log_odds(codes), expected, atol=2e-3)


def test_three_way_information_is_what_pairs_do_not_show() -> None:
    layout = Layout.plain([2, 2, 2], [(0, 1), (0, 2), (1, 2)])
    records = [xor_records(20_000, seed) for seed in (0, 1)]
    learnt = agglearn.aggregate(records[0], "y", categorical=["*"])
    parts = [
        Part(learnt.schema, tuple(learnt.tables), learnt.schema.encode(r), learnt.schema.encode_labels(r)[0])
        for r in records
    ]
    three = Three.of(("x1", "x2", "x3"), parts[0])
    other = columns(("x1", "x2", "x3"), parts[1])
    even = np.full(8, 1 / 8)
    # Four of eight states occur: log 2 nats more likely than under a law that knows nothing of it.
    assert three_way_information(three, even, other) == pytest.approx(np.log(2), abs=0.01)
    law = three.d / three.d.sum()
    true = np.where(law > 0, law, 1e-12)
    assert abs(three_way_information(three, true, other)) < 0.001  # 4/2n nats, with n = 20,000, is 0.0001
    assert ExactEngine(layout, 1.0).states.size == len(law)


def test_adkdd_is_run_where_its_files_are_and_left_out_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = triplets.Sizes(share=1.0, every=200, chosen_on=1, lambdas=(4.0,))
    (cell,) = [cell for cell in triplets.cells(sizes) if cell.name == "adkdd-00"]
    monkeypatch.setenv("AGGLEARN_DATA", str(tmp_path))
    (why,) = run_cells("triplets", [cell], Results(tmp_path / "results"))
    assert "small_train.csv.gz is not there" in why
    write_adkdd_like(tmp_path, rows=20_000, seed=0, max_modalities=120)
    results = Results(tmp_path / "results")
    assert run_cells("triplets", [cell], results) == []
    (row, *_) = results["adkdd-00"]["triplets"]
    assert all(name.startswith("hash_") for name in row["triplet"].split(" × "))


def judge_on(model: Predictor, part: Part) -> float:
    return part.held_out.nllh(model)


# -- the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.__name__.rsplit(".", 1)[-1])
def test_a_section_without_results_is_no_error(subject: object, tmp_path: Path) -> None:
    assert isinstance(subject.section(Results(tmp_path / "none"), tmp_path), list)  # type: ignore[attr-defined]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.__name__.rsplit(".", 1)[-1])
def test_cells_have_names_of_their_own(subject: object) -> None:
    for config in (subject.FULL, subject.QUICK):  # type: ignore[attr-defined]
        names = [cell.name for cell in subject.cells(config)]  # type: ignore[attr-defined]
        assert len(names) == len(set(names))


def test_the_grid_shows_what_validation_records_choose_beside_the_paper(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    for theta, scores in {"001": (0.30, 0.20), "064": (0.35, 0.41)}.items():
        rows = {"1": {"valid": scores[0], "test": scores[1]}, "64": {"valid": 0.1, "test": 0.111}}
        keep(results, f"authors-seed0-theta{theta}", {"by_lambda_mu": rows})
    lines = penalty_grid.section(results, tmp_path)
    assert "| λ_θ = 64 | 0.410 (0.421) | 0.111 (0.406) |" in lines
    assert any(line.startswith("| authors' training, equal width | 64 / 1 | 0.410 |") for line in lines)
    assert (tmp_path / "paper-penalty-grid.svg").exists()


def test_the_chains_have_error_bars_over_seeds_and_the_logistic_beside(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    keep(results, "adult-logistic", {"nllh": 0.4321, "lambda": 8.0})
    for seed, score in enumerate((0.40, 0.42)):
        keep(results, f"adult-ours-000100-seed{seed}", {"nllh": score, "lambda": 8.0})
        keep(results, f"adult-ours-001000-seed{seed}", {"nllh": score + 0.01, "lambda": 8.0})
    text = "\n".join(chains.section(results, tmp_path))
    assert "| 100 | 0.4100 ± 0.0141 | 0.3853 |" in text
    assert "1,000 (Adult, agglearn)" in text
    assert "Adult 0.4321" in text
    assert (tmp_path / "paper-chains.svg").exists()


def test_the_gradients_are_shown_by_iteration_and_by_seconds(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    for gradient, scores in {"rescaled": [0.3, 0.4], "plain": [0.2, 0.39]}.items():
        curve = {"iterations": [25, 50], "seconds": [1.0, 2.0], "nllh": scores}
        keep(results, f"{gradient}-independent-seed0", curve)
    lines = gradients.section(results, tmp_path)
    assert "| rescaled gradient, independent start | 0.3000 | 0.4000 |  |  |  |  | 50 | 2.0 |" in lines
    assert any("independent start: +0.0100" in line for line in lines)
    assert (tmp_path / "paper-gradients.svg").exists()


def test_the_worst_triplets_come_first_with_the_state_where_the_laws_differ(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    furthest = {"state": "a · b · c", "records": 0.1, "field": 0.3}
    rows = [
        {
            "triplet": name,
            "field": 0.30 - lost,
            "logistic": 0.30,
            "naive_bayes": 0.1,
            "lost_error": 0.0004,
            "lost_in_training": lost,
            "information": lost,
            "furthest": furthest,
        }
        for name, lost in (("u × v × w", 0.0001), ("x × y × z", 0.0123))
    ]
    keep(results, "bank-00", {"penalties": dict.fromkeys(MODELS, 4.0), "triplets": rows})
    lines = triplets.section(results, tmp_path)
    assert any(line.startswith("| Bank | 2 | 4, 4, 4 |") and "0.0123 ± 0.0004" in line for line in lines)
    first = next(line for line in lines if line.startswith("| x × y × z"))
    assert "a · b · c: 10.0% of the records, 30.0% of the field" in first
    assert lines.index(first) < next(k for k, line in enumerate(lines) if line.startswith("| u × v × w"))
    assert (tmp_path / "paper-triplets.svg").exists()
