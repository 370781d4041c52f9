"""Five hundred seeded cases that try to break the command line; ``evidence fuzz`` runs any number."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.fuzz.cases import KINDS, try_case
from evidence.fuzz.kills import prepare

CASES = {"folders": 150, "inputs": 150, "options": 150, "faults": 50}
SEED = 20_260


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_no_case_gives_a_traceback_an_odd_exit_code_or_a_half_written_file(
    kind: str, half: int, prepared: Path, tmp_path: Path
) -> None:
    codes, findings = set(), []
    for number in range(half, CASES[kind], 2):
        outcome, found = try_case(kind, SEED, number, prepared, tmp_path)
        codes.add(outcome.code)
        findings += found
    assert not findings
    assert {0, 2} <= codes  # some cases were mistakes, and some were not
