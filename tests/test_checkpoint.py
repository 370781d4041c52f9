"""A run that was killed goes on from its checkpoints and ends with the bits of one that was not."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agglearn import MaxEntClassifier, aggregate, save
from agglearn.errors import InputError, StoreError
from agglearn.field.problem import Problem
from agglearn.runtime.files import read_json, write_manifest
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.loop import Fit, begin, fit
from agglearn.train.settings import FitSettings, TrainingSettings
from agglearn.train.state import FitState, Iteration
from tests.conftest import Cli
from tests.fields import random_problem
from tests.records import make_records

TRAINING = {field.name for field in fields(TrainingSettings)}


class KilledError(Exception):
    """Stands for the end of a process, where a test needs no real one."""


@pytest.fixture(scope="module")
def problem() -> Problem:
    return random_problem(1, (2, 3, 4), rows=2000)[0]


def settings(**changes: Any) -> FitSettings:
    """The settings of most tests, but for some changes, to those of training too."""
    base = FitSettings(lambda_theta=1.0, chains=400, iterations=45, tolerance=0.0)
    training = {name: changes.pop(name) for name in TRAINING & changes.keys()}
    return replace(base, training=replace(base.training, **training), **changes)


def run(problem: Problem, chosen: FitSettings, folder: Path, until: int | None = None) -> Fit | None:
    """Train with a checkpoint after each iteration; None if it was killed in an iteration."""

    def stop(state: FitState) -> None:
        if state.iteration == until:
            raise KilledError

    try:
        return fit(problem, chosen, on_iteration=stop, checkpoints=Checkpoints(folder, every=0))
    except KilledError:
        return None


def bits(fitted: Fit) -> list[bytes]:
    field, chains = fitted.field, fitted.engine.chains
    arrays = [field.mu, field.theta, np.array(field.intercept), *([] if chains is None else [chains])]
    return [array.tobytes() for array in arrays]


WAYS: dict[str, dict[str, Any]] = {
    "local engine": {},
    "exact engine": {"engine": "exact"},
    "Metropolis": {"exact_up_to": 1},
    "drawn labels and the last weights": {"marginal_label": False, "averaging": False},
    "a penalty that is found": {"lambda_theta": None},
    "a stop before the last iteration": {"tolerance": 0.5, "iterations": 500},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_was_stopped_again_and_again_ends_with_the_same_bits(
    problem: Problem, way: str, tmp_path: Path
) -> None:
    chosen = settings(**WAYS[way])
    whole = fit(problem, chosen)
    # Before any checkpoint; around a look at the predictions (10), and where chains grow (15 and 30).
    for until in (1, 2, 10, 12, 15, 17, 31):
        run(problem, chosen, tmp_path, until)
    resumed = run(problem, chosen, tmp_path)
    assert resumed is not None
    assert bits(resumed) == bits(whole)
    assert resumed.state.stopped_because == whole.state.stopped_because
    assert entries(resumed) == entries(whole)


def entries(fitted: Fit) -> list[dict[str, Any]]:
    return untimed([asdict(entry) for entry in fitted.state.history])


def untimed(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in entry.items() if k != "seconds"} for entry in history]


def test_every_part_of_a_state_comes_back_as_it_was(problem: Problem, tmp_path: Path) -> None:
    engine, mu0, start = begin(problem, settings())
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        name: rng.normal(size=mu0.shape) for name, v in vars(start.weights).items() if np.ndim(v)
    }
    numbers = {f.name: float(rng.normal()) for f in fields(Iteration) if f.type == "float"}
    entry = Iteration(iteration=7, chains=400, moves=0.1, **numbers)
    parts: dict[str, Any] = {
        "weights": replace(start.weights, **arrays, intercept=1 / 3, intercept_mean=-1e-300, push=1e-7 / 3),
        "lambda_theta": 0.1,
        "penalties": rng.normal(size=problem.layout.n_tables),
        "iteration": 7,
        "step_scale": 0.125,
        "overlap": 100 / 3,
        "inertia": 0.5,
        "best_misfit": 2 / 7,
        "bad_iterations": 3,
        "theta_seen": rng.normal(size=mu0.shape),
        "intercept_seen": 1e17 / 7,
        "stopped_because": "iterations",
        "ahead": 5,
        "history": [entry, replace(entry, moves=None, moved=1e-17 / 3, log_partition=-1e17 / 7)],
    }
    assert parts.keys() == {f.name for f in fields(FitState)}
    state = FitState(**parts)
    checkpoints = Checkpoints(tmp_path, every=0)
    checkpoints.resume(problem, settings(), engine, start)
    checkpoints.keep(engine, state)
    resumed = Checkpoints(tmp_path).resume(problem, settings(), engine, start)
    np.testing.assert_equal(asdict(resumed), asdict(state))


def test_a_run_goes_on_from_its_newest_checkpoint(problem: Problem, tmp_path: Path) -> None:
    run(problem, settings(), tmp_path, until=20)
    seen: list[int] = []
    fit(
        problem,
        settings(),
        on_iteration=lambda state: seen.append(state.iteration),
        checkpoints=Checkpoints(tmp_path, every=1000),
    )
    assert seen == list(range(20, 46))


def test_a_finished_run_is_only_read(problem: Problem, tmp_path: Path) -> None:
    whole = run(problem, settings(), tmp_path)
    again = run(problem, settings(), tmp_path, until=45)
    assert whole is not None
    assert again is not None
    assert bits(again) == bits(whole)
    assert len(again.state.history) == 45


def test_the_two_newest_checkpoints_are_kept_and_nothing_else(problem: Problem, tmp_path: Path) -> None:
    run(problem, settings(), tmp_path, until=20)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["iteration-000018", "iteration-000019"]


def test_checkpoints_are_written_no_more_often_than_asked(problem: Problem, tmp_path: Path) -> None:
    fit(problem, settings(), checkpoints=Checkpoints(tmp_path, every=1000))
    assert [p.name for p in tmp_path.iterdir()] == ["iteration-000045"]  # the end is always kept


def test_what_a_killed_writer_left_is_cleared(problem: Problem, tmp_path: Path) -> None:
    run(problem, settings(), tmp_path, until=20)
    leftover = tmp_path / ".iteration-000020.4194999.tmp"
    leftover.mkdir()
    (leftover / "weights-mu.arrow").write_bytes(b"half")
    run(problem, settings(), tmp_path, until=22)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["iteration-000020", "iteration-000021"]


# --- damage -----------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-64])


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def forget_the_scalars(folder: Path) -> None:
    document = read_json(folder / "manifest.json")
    del document["scalars"]
    write_manifest(folder, document)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "an array cut short": lambda f: cut(f / "weights-theta.arrow"),
    "chains cut short": lambda f: cut(f / "engine-chains.arrow"),
    "a manifest cut short": lambda f: cut(f / "manifest.json"),
    "a missing array": lambda f: (f / "weights-mu.arrow").unlink(),
    "an empty folder": empty,
    "a manifest that lacks a part": forget_the_scalars,
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    problem: Problem, case: str, tmp_path: Path
) -> None:
    whole = fit(problem, settings())
    run(problem, settings(), tmp_path, until=20)
    DAMAGE[case](tmp_path / "iteration-000019")
    resumed = run(problem, settings(), tmp_path)
    assert resumed is not None
    assert bits(resumed) == bits(whole)


def test_a_run_whose_every_checkpoint_is_damaged_is_not_begun_anew_unasked(
    problem: Problem, tmp_path: Path
) -> None:
    run(problem, settings(), tmp_path, until=20)
    for checkpoint in tmp_path.iterdir():
        cut(checkpoint / "weights-mu.arrow")
    with pytest.raises(StoreError, match=r"no checkpoint in .* can be read \(.*weights-mu.arrow is damaged"):
        run(problem, settings(), tmp_path)


# --- another run, and what is no folder of checkpoints ---------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lambda_theta": 2.0}, "iteration-000003 is of a run with lambda_theta 1.0, not 2.0"),
        ({"seed": 5}, "with seed 0, not 5"),
        ({"iterations": 99}, "with iterations 45, not 99"),
        ({"gradient": "plain"}, "with gradient rescaled, not plain"),
        ({"chains": None}, "with chains 400, not None"),
    ],
)
def test_other_settings_are_refused_by_their_name(
    problem: Problem, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    run(problem, settings(), tmp_path, until=4)
    with pytest.raises(StoreError, match=message):
        run(problem, settings(**change), tmp_path)


def test_other_tables_are_refused(problem: Problem, tmp_path: Path) -> None:
    run(problem, settings(), tmp_path, until=4)
    one_more = problem.d.copy()
    one_more[0] += 1
    free = np.ones(problem.layout.n_cells, bool)
    free[0] = False
    for other in (replace(problem, d=one_more), replace(problem, free=free)):
        with pytest.raises(StoreError, match="is of a run on other tables"):
            run(other, settings(), tmp_path)


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(problem: Problem, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match=r"thesis\.txt is no checkpoint"):
        run(problem, settings(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(StoreError, match=r"thesis\.txt is a file"):
        run(problem, settings(), tmp_path / "thesis.txt")
    with pytest.raises(StoreError, match="cannot write there"):
        run(problem, settings(), tmp_path / "thesis.txt" / "checkpoints")


@pytest.mark.parametrize("every", [-1.0, float("nan")])
def test_the_time_between_checkpoints_must_make_sense(every: float, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="checkpoint_every"):
        Checkpoints(tmp_path, every)


# --- the command line, and kill -9 -------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "t.agg"
    save(aggregate(make_records(), "bought", positive="yes", exclude=["id"]), path)
    return path


def content(model: Path) -> dict[str, bytes]:
    """Every file of a model but the history, which tells times."""
    return {p.name: p.read_bytes() for p in model.iterdir() if p.name != "history.json"}


def fit_words(tables: Path, model: Path, *more: object) -> list[str]:
    command = ["fit", tables, "-o", model, "--chains", 400, "--iterations", 40, "--tolerance", 0, *more]
    return [str(word) for word in command]


def test_the_command_line_refuses_checkpoints_it_cannot_use(
    run_cli: Cli, small_tables: Path, tmp_path: Path
) -> None:
    kept, model = tmp_path / "kept", tmp_path / "m.model"
    assert run_cli(*fit_words(small_tables, model, "--checkpoint", kept)).code == 0
    shutil.rmtree(model)
    for more, message in (
        (["--checkpoint", kept], f"{kept} is not empty: go on with --resume {kept}, or name a new folder"),
        (["--resume", kept, "--seed", "3"], "is of a run with --seed 0, not 3"),
        (["--resume", kept, "--checkpoint", tmp_path / "new"], "leave out --checkpoint"),
        (["--resume", small_tables], "is no checkpoint: name a folder that holds nothing else"),
        (["--resume", small_tables / "manifest.json"], "is a file"),
        (["--checkpoint", tmp_path / "new", "--checkpoint-every", "-1"], "--checkpoint-every -1.0"),
    ):
        refused = run_cli(*fit_words(small_tables, model, *more))
        assert (refused.code, refused.out) == (2, "")
        assert message in refused.err
        assert refused.err.count("\n") == 1
        assert not model.exists()
        assert not (tmp_path / "new").exists()


def test_a_finished_run_can_be_resumed_for_its_model(
    run_cli: Cli, small_tables: Path, tmp_path: Path
) -> None:
    kept, first, second = tmp_path / "kept", tmp_path / "a.model", tmp_path / "b.model"
    run_cli(*fit_words(small_tables, first, "--checkpoint", kept))
    again = run_cli(*fit_words(small_tables, second, "--resume", kept, "--json"))
    assert again.json["iterations"] == 40
    assert content(first) == content(second)


def test_resuming_where_nothing_is_begins_and_says_so(
    run_cli: Cli, small_tables: Path, tmp_path: Path
) -> None:
    plain, resumed = tmp_path / "a.model", tmp_path / "b.model"
    run_cli(*fit_words(small_tables, plain))
    said = run_cli(*fit_words(small_tables, resumed, "--resume", tmp_path / "none"))
    assert said.code == 0
    assert "none holds no checkpoint: the run starts from the beginning" in said.err
    assert content(plain) == content(resumed)


def test_a_run_killed_at_any_moment_ends_with_the_same_bytes(tmp_path: Path) -> None:
    tables, whole, model, kept = (tmp_path / n for n in ("t.agg", "whole.model", "m.model", "kept"))
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 30, (6, 20_000))
    codes[1:] = np.where(rng.random((5, 20_000)) < 0.5, codes[:-1], codes[1:])
    y = rng.random(20_000) < 1 / (1 + np.exp(-(codes[0] - codes[3]) / 15))
    frame = {f"f{i}": [f"v{v}" for v in row] for i, row in enumerate(codes.tolist())} | {"y": y}
    data = aggregate(frame, "y")
    save(data, tables)
    MaxEntClassifier(chains=10_000, iterations=100, tolerance=0.0).fit(data).save(whole)
    agglearn = str(Path(sys.executable).with_name("agglearn"))
    command = [agglearn, "fit", str(tables), "--chains", "10000", "--iterations", "100", "--tolerance", "0"]

    def names() -> set[str]:
        return {p.name for p in kept.iterdir()} if kept.exists() else set()

    def kill_when(moment: Callable[[set[str]], bool], then: float = 0.0) -> bool:
        """Start or go on, and kill -9 some time after a moment that new names in the folder tell."""
        verb = "--resume" if names() else "--checkpoint"
        with subprocess.Popen(
            [*command, "-o", str(model), verb, str(kept), "--checkpoint-every", "0.05"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            before = names()
            while process.poll() is None and not moment(names() - before):
                time.sleep(0.002)
            time.sleep(then)
            alive = process.poll() is None
            process.kill()
        return alive

    late = random.Random(0)
    killed = [
        kill_when(lambda _: True, then=0.2),  # while it loads
        kill_when(lambda _: kept.exists()),
        kill_when(lambda new: any(n.startswith(".") for n in new)),  # while it writes a checkpoint
        *(
            kill_when(lambda new: any(n.startswith("it") for n in new), late.uniform(0, 0.15))
            for _ in range(2)
        ),
    ]
    assert sum(killed) >= 4
    assert not model.exists()
    subprocess.run(
        [*command, "-o", str(model), "--resume", str(kept)], check=True, capture_output=True, timeout=120
    )
    assert content(model) == content(whole)
    histories = [json.loads((m / "history.json").read_text())["iterations"] for m in (model, whole)]
    assert untimed(histories[0]) == untimed(histories[1])
