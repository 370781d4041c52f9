# mypy: disallow-untyped-decorators=False, check-untyped-defs=False, disallow-untyped-calls=False
"""The four vector loops at the heart of a draw, written in LLVM's vector instructions.

A draw sums the rows of all tables of a feature, takes exponentials, and picks a value. With few
modalities the rows are so short that what the compiler makes of plain loops (checks for aliasing,
scalar remainders, sums kept in memory) costs four times the additions. Written with vectors of
fixed length the sums stay in registers. LLVM lowers the vectors to whatever the machine has.

Rows are stored in lines of :data:`WIDTH` floats (one cache line), padded where the modalities run
out; a padded place holds a logit so low that its exponential is exactly 0.

No fast-math: every sum has one order, so a chain's draw is the same wherever it is computed.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 16
LANES = 8
NEVER = np.float32(-1e30)
"""Logit of a padded place."""

_f32, _i32, _i64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_floats, _ints = ir.VectorType(_f32, LANES), ir.VectorType(_i32, LANES)
_ZERO = ir.Constant(_floats, [0.0] * LANES)

# 2^f on [-1/2, 1/2]: interpolation at Chebyshev points, error 1e-7 (float32 has 6e-8).
_POWER_OF_TWO = (
    np.polynomial.Chebyshev.interpolate(np.exp2, 5, domain=[-0.5, 0.5])
    .convert(kind=np.polynomial.Polynomial)
    .coef
)
# Adding 3·2²² to a float32 of moderate size leaves its nearest integer in the low bits.
_ROUNDER = float(3 << 22)

Value = Any  # llvmlite values are untyped


@intrinsic
def add_rows(typingctx, out, at, weights, start, rows, first, stride, count):  # type: ignore[no-untyped-def]
    """One line of logits: ``out[at:at+WIDTH]`` = sum over ``count`` rows of their line.

    Row ``r`` has its line at ``weights[start + r * WIDTH]``; the row numbers are
    ``rows[first], rows[first + stride], ...``.
    """
    signature = types.void(out, at, weights, start, rows, first, stride, count)

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        sink = _address(context, b, kinds[0], args[0], args[1])
        lines = _address(context, b, kinds[2], args[2], args[3])
        numbers = _address(context, b, kinds[4], args[4], args[5])
        parts = range(0, WIDTH, LANES)
        sums = [cgutils.alloca_once_value(b, _ZERO) for _ in parts]
        with cgutils.for_range(b, args[7], intp=_i64) as loop:
            row = b.zext(b.load(b.gep(numbers, [b.mul(loop.index, args[6])])), _i64)
            line = b.gep(lines, [b.mul(row, _i64(WIDTH))])
            for part, total in zip(parts, sums, strict=True):
                b.store(b.fadd(b.load(total), _load(b, line, _i64(part))), total)
        for part, total in zip(parts, sums, strict=True):
            _store(b, b.load(total), sink, _i64(part))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def greatest_of_row(typingctx, logits, at, vectors):  # type: ignore[no-untyped-def]
    """The greatest logit of a row of ``vectors * LANES`` places."""
    signature = types.float32(logits, at, vectors)

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        row = _address(context, b, signature.args[0], args[0], args[1])
        greatest = cgutils.alloca_once_value(b, _repeat(float(NEVER)))
        with cgutils.for_range(b, args[2], intp=_i64) as loop:
            here = _load(b, row, b.mul(loop.index, _i64(LANES)))
            b.store(_maximum(b, here, b.load(greatest)), greatest)
        top = b.load(greatest)
        for step in (4, 2, 1):  # halve: the greatest of all lanes ends up in the first
            moved = [(lane + step) % LANES for lane in range(LANES)]
            top = _maximum(b, top, b.shuffle_vector(top, top, ir.Constant(_ints, moved)))
        return b.extract_element(top, _i32(0))

    return signature, codegen


@intrinsic
def exp_row(typingctx, logits, at, vectors, greatest, sums, to):  # type: ignore[no-untyped-def]
    """Replace a row of logits by exp(logit - greatest); the sum of each lane goes to ``sums``.

    Lane ``k`` holds the values k, k + LANES, k + 2·LANES, ...; its sum is ``sums[to + k]``.
    """
    signature = types.void(logits, at, vectors, greatest, sums, to)

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        row = _address(context, b, signature.args[0], args[0], args[1])
        sink = _address(context, b, signature.args[4], args[4], args[5])
        top = _spread(b, args[3])
        lane_sums = cgutils.alloca_once_value(b, _ZERO)
        with cgutils.for_range(b, args[2], intp=_i64) as loop:
            place = b.mul(loop.index, _i64(LANES))
            value = _exp(b, b.fsub(_load(b, row, place), top))
            _store(b, value, row, place)
            b.store(b.fadd(b.load(lane_sums), value), lane_sums)
        _store(b, b.load(lane_sums), sink, _i64(0))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def pick_value(typingctx, exps, at, vectors, sums, to, uniform):  # type: ignore[no-untyped-def]
    """Draw a value in proportion to a row that :func:`exp_row` left: first the lane, then in it.

    The sums of the lanes are replaced by their running sums. A value of weight 0 is never drawn.
    About once in 10⁷ draws rounding leaves no value at all; the number returned is then past the
    end of the row.
    """
    signature = types.uint64(exps, at, vectors, sums, to, uniform)

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        row = _address(context, b, signature.args[0], args[0], args[1])
        sums = _address(context, b, signature.args[3], args[3], args[4])
        running = _load(b, sums, _i64(0))
        for step in (1, 2, 4):  # add what stands `step` lanes below, zeros coming in
            moved = [0] * step + [LANES + lane for lane in range(LANES - step)]
            shifted = b.shuffle_vector(_ZERO, running, ir.Constant(_ints, moved))
            running = b.fadd(running, shifted)
        _store(b, running, sums, _i64(0))
        target = b.fmul(b.extract_element(running, _i32(LANES - 1)), args[5])
        passed = b.fcmp_ordered("<=", running, _spread(b, target))
        lane = b.zext(b.ctpop(b.bitcast(passed, ir.IntType(LANES))), _i64)

        lowest = b.icmp_unsigned("==", lane, _i64(0))
        below = b.load(b.gep(sums, [b.select(lowest, lane, b.sub(lane, _i64(1)))]))
        below = b.select(lowest, _f32(0.0), below)
        rest = _maximum(b, b.fsub(target, below), _f32(0.0))
        total = cgutils.alloca_once_value(b, _f32(0.0))
        steps = cgutils.alloca_once_value(b, _i64(0))
        column = b.gep(row, [lane])
        with cgutils.for_range(b, args[2], intp=_i64) as loop:
            here = b.load(b.gep(column, [b.mul(loop.index, _i64(LANES))]))
            b.store(b.fadd(b.load(total), here), total)
            still = b.zext(b.fcmp_ordered("<=", b.load(total), rest), _i64)
            b.store(b.add(b.load(steps), still), steps)
        return b.add(b.mul(b.load(steps), _i64(LANES)), lane)

    return signature, codegen


def _exp(b: Value, x: Value) -> Value:
    """exp(x) for x ≤ 0, as 2^n · 2^f with n the nearest integer; exactly 0 below -88."""
    y = _maximum(b, b.fmul(x, _repeat(1 / np.log(2))), _repeat(-127.0))
    shifted = b.fadd(y, _repeat(_ROUNDER))
    f = b.fsub(y, b.fsub(shifted, _repeat(_ROUNDER)))
    power = _repeat(_POWER_OF_TWO[-1])
    for coefficient in _POWER_OF_TWO[-2::-1]:
        product = b.fmul(power, f, flags=("contract",))
        power = b.fadd(product, _repeat(coefficient), flags=("contract",))
    # n + 127 in the exponent bits is 2^n, and 0 for n = -127
    exponent = b.add(b.bitcast(shifted, _ints), ir.Constant(_ints, [127] * LANES))
    return b.fmul(power, b.bitcast(b.shl(exponent, ir.Constant(_ints, [23] * LANES)), _floats))


def _maximum(b: Value, x: Value, y: Value) -> Value:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _spread(b: Value, x: Value) -> Value:
    """A vector of ``x`` in every lane."""
    one = b.insert_element(ir.Constant(_floats, ir.Undefined), x, _i32(0))
    return b.shuffle_vector(one, one, ir.Constant(_ints, [0] * LANES))


def _repeat(x: float) -> Value:
    return ir.Constant(_floats, [float(np.float32(x))] * LANES)


def _address(context: Any, b: Value, kind: Any, array: Value, index: Value) -> Value:
    return b.gep(context.make_array(kind)(context, b, array).data, [index])


def _load(b: Value, base: Value, offset: Value) -> Value:
    return b.load(b.bitcast(b.gep(base, [offset]), _floats.as_pointer()), align=4)


def _store(b: Value, value: Value, base: Value, offset: Value) -> None:
    b.store(value, b.bitcast(b.gep(base, [offset]), _floats.as_pointer()), align=4)
