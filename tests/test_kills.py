"""A verb that is killed while it writes loses nothing, wherever the kill falls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agglearn.runtime import files
from agglearn.runtime.exchange import exchange
from evidence.fuzz.kills import VERBS, Verb, prepare, trials


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder


EVERY = {"checkpoint": 9, "predict": 1, "sample": 1}  # of the calls, here; all of them in the long run


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_a_verb_killed_at_any_call_leaves_the_old_or_the_new_and_can_be_run_again(
    verb: Verb, prepared: Path, tmp_path: Path
) -> None:
    found = list(trials(prepared, verb, tmp_path, every=EVERY.get(verb.name, 4)))
    assert len(found) > 4  # it was killed at several calls indeed
    assert not [fault for faults in found for fault in faults]


def test_nothing_is_lost_either_where_the_system_cannot_exchange_folders(
    prepared: Path, tmp_path: Path
) -> None:
    merge = next(verb for verb in VERBS if verb.name == "merge")
    found = list(trials(prepared, merge, tmp_path, without_exchange=True))
    assert not [fault for faults in found for fault in faults]


def test_two_folders_change_places_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "it").write_text(name)
    if not exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot exchange two folders")
    assert (tmp_path / "a" / "it").read_text() == "b"
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "a", tmp_path / "gone")


def test_a_folder_that_had_stepped_aside_is_put_back_by_who_reads_it(tmp_path: Path, prepared: Path) -> None:
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    (tmp_path / f".t.agg.old.{dead}.tmp").mkdir()
    files.put_back(tmp_path / "t.agg")
    assert (tmp_path / "t.agg").is_dir()
    (tmp_path / f".u.agg.old.{os.getppid()}.tmp").mkdir()  # of a writer that lives
    files.put_back(tmp_path / "u.agg")
    assert not (tmp_path / "u.agg").exists()
