"""Noise by OpenDP, and by nothing else: exact samplers of discrete laws, fed by the system's random numbers.

A number takes OpenDP some 20 µs, so that many of them are drawn in blocks by several processes. There is no
seed: none is asked for, none is kept, and the same call never gives the same numbers twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import AgglearnError, MissingExtraError, one_line
from agglearn.runtime.progress import meter
from agglearn.runtime.threads import thread_count

Ints = npt.NDArray[np.int64]

_BLOCK = 20_000  # numbers that a process noises before it tells how far it is: about half a second
_ALONE = 100_000  # so few are done here: another process takes half a second to start


def load_opendp() -> None:
    """Load OpenDP, with all of it that is needed here."""
    try:
        from opendp import mod
    except ImportError:
        raise MissingExtraError("Private noise", "privacy") from None
    except Exception as error:  # what it raises, of no kind of its own, where the system loads no library
        raise AgglearnError(
            f"OpenDP, which draws noise, cannot be loaded ({one_line(error)}): give the process more memory"
        ) from None
    mod.enable_features("contrib")


def measurement(mechanism: str, scale: float) -> Any:
    """OpenDP's measurement that adds discrete noise to each number of a list."""
    load_opendp()
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance

    numbers = vector_domain(atom_domain(T="i64"))
    if mechanism == "laplace":
        return make_laplace(numbers, l1_distance(T="i64"), scale)
    return make_gaussian(numbers, l2_distance(T="f64"), scale)


def add_noise(
    numbers: Ints,
    mechanism: str,
    scale: float,
    *,
    processes: int | None = None,
    show_progress: bool = False,
) -> Ints:
    """The numbers, in the shape they have, with noise on each.

    Parameters
    ----------
    numbers
        Exact counts.
    mechanism, scale
        The law: ``gaussian`` with its σ, or ``laplace`` with its b, over the whole numbers.
    processes
        How many to draw in; by default one for each core, and none beside this one for few numbers.
    show_progress
        Whether to show on the terminal how far it is.
    """
    noisy = measurement(mechanism, scale)  # names the missing part before anything is begun
    flat = np.ascontiguousarray(numbers.reshape(-1), np.int64)
    blocks = [flat[at : at + _BLOCK] for at in range(0, len(flat), _BLOCK)]
    workers = thread_count(processes)
    if processes is None and len(flat) <= _ALONE:
        workers = 1
    with meter("drawing noise", len(flat), "numbers", show=show_progress) as advance:
        if workers == 1:
            found = []
            for block in blocks:
                found.append(np.array(noisy(block.tolist()), np.int64))
                advance(len(block))
        else:
            found = _in_processes(blocks, mechanism, scale, workers, advance)
    out = np.concatenate(found) if found else flat
    return out.reshape(numbers.shape)


def _in_processes(
    blocks: Sequence[Ints], mechanism: str, scale: float, workers: int, advance: Any
) -> list[Ints]:
    """Blocks dealt out to processes as they ask for the next one; a thread waits on each."""
    waiting = deque(enumerate(blocks))
    found: list[Ints] = [np.zeros(0, np.int64)] * len(blocks)

    def serve(worker: int) -> None:
        with _Worker(mechanism, scale) as process:
            while waiting:
                try:
                    position, block = waiting.popleft()
                except IndexError:  # another took the last one
                    return
                found[position] = process.noised(block)
                advance(len(block))

    with ThreadPoolExecutor(workers, thread_name_prefix="agglearn-noise") as pool:
        try:
            for done in [pool.submit(serve, worker) for worker in range(workers)]:
                done.result()
        except BaseException:
            waiting.clear()  # whoever is at a block ends it, and takes no other
            raise
    return found


class _Worker:
    """A process of its own, which reads blocks of numbers and writes them back with noise.

    It is started as a program rather than forked: threads do not survive a fork, and starting anew by
    multiprocessing would run the caller's script a second time.
    """

    def __init__(self, mechanism: str, scale: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, mechanism, repr(scale)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout

    def __enter__(self) -> _Worker:
        return self

    def noised(self, block: Ints) -> Ints:
        try:
            self._to.write(np.int64(len(block)).tobytes() + block.tobytes())
            self._to.flush()
            answer = self._from.read(8 * len(block))
        except OSError:
            answer = b""
        if len(answer) != 8 * len(block):
            raise AgglearnError("a process that draws noise has died: try again, or with one process")
        return np.frombuffer(answer, np.int64)

    def __exit__(self, *raised: object) -> None:
        if any(raised):
            self._process.kill()
        self._to.close()
        self._process.wait()
        self._from.close()


def _serve(mechanism: str, scale: float) -> None:
    """What a process does until its input ends."""
    noisy = measurement(mechanism, scale)
    while size := sys.stdin.buffer.read(8):
        block = np.frombuffer(sys.stdin.buffer.read(8 * int(np.frombuffer(size, np.int64)[0])), np.int64)
        sys.stdout.buffer.write(np.array(noisy(block.tolist()), np.int64).tobytes())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], float(sys.argv[2]))
