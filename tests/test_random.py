"""Random numbers that are for different things are different, and those of training are what they were."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import agglearn
from agglearn.field.kernels.rng import random_bits
from agglearn.model.draw import moving, population, sample
from agglearn.model.model import Model
from agglearn.runtime.random import Numbers, Stream, Use, generator
from agglearn.train.settings import FitSettings
from tests.fields import random_field

SEEDS = (0, 1, 7, 2**32, 2**63)
PARTS = (0, 1, 2, 1 << 16, (1 << 16) + 1)  # a fold's segments are numbered from its own multiple of 2¹⁶


def first_of(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(rng.integers(0, 2**63, 4).tolist())


def test_every_seed_use_part_iteration_and_stream_has_a_key_of_its_own() -> None:
    names = list(product(SEEDS, Use, PARTS, (0, 1, 2, 500), Stream))
    keys = [int(Numbers(s, use, part).key(i, stream)) for s, use, part, i, stream in names]
    assert len(set(keys)) == len(names)


def test_no_two_streams_share_a_number() -> None:
    streams = list(product(SEEDS, Use, PARTS[:3], (0, 1), Stream))
    numbers = {
        int(random_bits(Numbers(s, use, part).key(i, stream), np.uint64(k)))
        for s, use, part, i, stream in streams
        for k in range(20)
    }
    # 19,200 of 2⁶⁴ numbers: two are the same by chance once in 10¹¹
    assert len(numbers) == 20 * len(streams)


def test_every_seed_use_and_number_has_a_generator_of_its_own() -> None:
    names = list(product(SEEDS, Use, ((), (0,), (1,), (2,), (0, 1), (1, 0), (1, 1))))
    drawn = {first_of(generator(seed, use, *numbers)) for seed, use, numbers in names}
    assert len(drawn) == len(names)
    parts = list(product(SEEDS, Use, PARTS))
    assert len({first_of(Numbers(*name).generator()) for name in parts}) == len(parts)


def test_a_name_says_everything() -> None:
    for name in product(SEEDS, Use, PARTS):
        assert Numbers(*name).key(3, Stream.LABELS) == Numbers(*name).key(3, Stream.LABELS)
        assert first_of(Numbers(*name).generator()) == first_of(Numbers(*name).generator())


@pytest.mark.parametrize("seed", SEEDS)
def test_training_starts_by_the_generator_of_version_0_1(seed: int) -> None:
    expected = first_of(np.random.Generator(np.random.Philox(seed)))
    assert first_of(Numbers(seed).generator()) == expected
    assert first_of(generator(seed, Use.TRAIN)) == expected


def test_training_moves_by_the_keys_of_version_0_1() -> None:
    # what stream_key(seed, iteration, stream) of that version gave
    stored = {
        (0, 0, Stream.FIRST_LABELS): 0x238275BC38FCBE91,
        (0, 0, Stream.FEATURES): 0x2F32A78496C67C60,
        (7, 3, Stream.LABELS): 0x9473A693C473A79,
        (2**40, 100, Stream.GROW): 0x8FE882B5B6BC2447,
    }
    assert {name: int(Numbers(name[0]).key(*name[1:])) for name in stored} == stored


class Recorder:
    """Every key of a stream and of a generator that is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: set[int] = set()
        self.generators: set[tuple[int, ...]] = set()
        key, philox = Numbers.key, np.random.Philox

        def recorded_key(numbers: Numbers, iteration: int, stream: Stream) -> np.uint64:
            found = key(numbers, iteration, stream)
            self.keys.add(int(found))
            return found

        def recorded_philox(*args: Any, **kwargs: Any) -> np.random.Philox:
            made = philox(*args, **kwargs)
            state: Any = made.state
            self.generators.add(tuple(state["state"]["key"].tolist()))
            return made

        monkeypatch.setattr(Numbers, "key", recorded_key)
        monkeypatch.setattr(np.random, "Philox", recorded_philox)

    def take(self) -> tuple[set[int], set[tuple[int, ...]]]:
        """What was asked for since the last time."""
        taken = self.keys, self.generators
        self.keys, self.generators = set(), set()
        return taken


def records_of(model: Model, seed: int) -> None:
    for _ in sample(model, 300, seed=seed):
        pass


def members_of(model: Model, seed: int) -> None:
    population(model, seed=seed, members=300)


def sweep_of(model: Model, seed: int) -> None:
    codes = np.zeros((model.layout.n_features, 10), np.uint16)
    moving(model, None, codes, seed=seed).sweep(model.field, 0)


@pytest.mark.parametrize("draw", [records_of, members_of, sweep_of])
@pytest.mark.parametrize("engine", ["local", "exact"])
def test_drawing_with_the_seed_of_the_training_uses_none_of_its_numbers(
    engine: str, draw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = random_field(0, (3, 2, 4)).tables(500, 0)
    recorder = Recorder(monkeypatch)
    model = agglearn.fit(tables, FitSettings(engine=engine, chains=100, iterations=20, seed=5), threads=1)
    trained = recorder.take()
    draw(model, 5)
    drawn = recorder.take()
    assert bool(trained[0]) == bool(trained[1]) == (engine == "local")
    assert drawn[0] or drawn[1]
    assert trained[0].isdisjoint(drawn[0])
    assert trained[1].isdisjoint(drawn[1])


def test_draws_for_records_and_for_a_population_are_different() -> None:
    tables = random_field(0, (3, 2, 4)).tables(500, 0)
    model = agglearn.fit(tables, FitSettings(chains=100, iterations=20), threads=1)
    start = np.zeros((3, 100), np.uint16)
    ends = [moving(model, None, start, use=use) for use in (Use.TRAIN, Use.DRAW, Use.RECORDS)]
    for engine in ends:
        engine.sweep(model.field, 0)
    assert len({engine.chains.tobytes() for engine in ends}) == 3
