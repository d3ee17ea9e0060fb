# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
"""The CUDA kernels. Importing this module imports triton: only `cuda.py` does, for the first CUDA tensor.

`statistics` cuts memory into segments that a persistent grid takes in turn. A segment is first summed as if
it were finite; NaN and Inf propagate into its sum of squares, and only a segment where that shows (or where
float32 squares overflow or vanish) is read again with care: masked, counted and in float64.
"""

from __future__ import annotations

import triton
import triton.language as tl

ROW = tl.constexpr(8)
ANSWER_WORDS = tl.constexpr(2)


@triton.jit
def _is_last(arrivals):
    """Whether all other programs have stored their part; `arrivals` points to a 0 behind the parts, and it is
    one again afterwards."""
    tl.debug_barrier()
    counter = arrivals.to(tl.pointer_type(tl.int32))
    last = tl.atomic_add(counter, 1, sem="acq_rel") == tl.num_programs(0) - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def _combine(rows, out, count, ROWS: tl.constexpr):
    index = tl.arange(0, ROWS)
    inside = index < count
    row = rows + index * ROW
    for field in tl.static_range(7):
        if field == 3:
            low = tl.load(row + field, mask=inside, other=float("inf"), cache_modifier=".cg")
            tl.store(out + field, tl.min(low))
        elif field == 4:
            high = tl.load(row + field, mask=inside, other=float("-inf"), cache_modifier=".cg")
            tl.store(out + field, tl.max(high))
        else:
            part = tl.load(row + field, mask=inside, other=0.0, cache_modifier=".cg")
            tl.store(out + field, tl.sum(part))


@triton.jit
def _quick_step(v, lo, hi, total, squares):
    return tl.minimum(lo, v), tl.maximum(hi, v), total + v, squares + v * v


@triton.jit
def _careful_segment(x, start, end, lo, hi, LARGEST: tl.constexpr, REAL: tl.constexpr, TILE: tl.constexpr):
    """Counts and float64 sums of x[start:end], and extremes beginning at lo and hi."""
    nan = tl.zeros([TILE], tl.int64)
    posinf = tl.zeros([TILE], tl.int64)
    neginf = tl.zeros([TILE], tl.int64)
    total = tl.zeros([TILE], tl.float64)
    squares = tl.zeros([TILE], tl.float64)
    low = tl.full([TILE], float("inf"), REAL)
    high = tl.full([TILE], float("-inf"), REAL)
    offsets = tl.arange(0, TILE)
    for at in range(start, end, TILE):
        inside = at + offsets < end
        v = tl.load(x + at + offsets, mask=inside, other=0.0).to(REAL)
        good = inside & (tl.abs(v) <= LARGEST)
        nan += (v != v).to(tl.int64)
        posinf += (v > LARGEST).to(tl.int64)
        neginf += (v < -LARGEST).to(tl.int64)
        low = tl.minimum(low, tl.where(good, v, float("inf")))
        high = tl.maximum(high, tl.where(good, v, float("-inf")))
        value = tl.where(good, v, 0.0).to(tl.float64)
        total += value
        squares += value * value
    return (
        tl.sum(nan),
        tl.sum(posinf),
        tl.sum(neginf),
        tl.minimum(lo, tl.min(low).to(tl.float64)),
        tl.maximum(hi, tl.max(high).to(tl.float64)),
        tl.sum(total),
        tl.sum(squares),
    )


@triton.jit
def _quick_segment(x, start, steps, REAL: tl.constexpr, TILE: tl.constexpr, UNROLL: tl.constexpr):
    """As if every value were finite: extremes and sums of `steps` times `UNROLL` whole tiles."""
    lo = tl.full([TILE], float("inf"), REAL)
    hi = tl.full([TILE], float("-inf"), REAL)
    total = tl.zeros([TILE], REAL)
    squares = tl.zeros([TILE], REAL)
    tile = x + start + tl.arange(0, TILE)
    for _ in range(steps):
        for u in tl.static_range(UNROLL):
            v = tl.load(tile + u * TILE).to(REAL)
            lo, hi, total, squares = _quick_step(v, lo, hi, total, squares)
        tile += UNROLL * TILE
    return (
        tl.min(lo).to(tl.float64),
        tl.max(hi).to(tl.float64),
        tl.sum(total.to(tl.float64)),
        tl.sum(squares.to(tl.float64)),
    )


@triton.jit(do_not_specialize=["count", "steps"])
def statistics_kernel(
    x,
    rows,
    out,
    count,
    steps,
    LARGEST: tl.constexpr,
    VANISH: tl.constexpr,
    REAL: tl.constexpr,
    TILE: tl.constexpr,
    UNROLL: tl.constexpr,
    CAREFUL_TILE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One row of partial statistics for each program; the last to arrive makes them one."""
    program = tl.program_id(0)
    size = tl.cast(steps, tl.int64) * (TILE * UNROLL)
    segments = tl.cdiv(count, size)
    nan = tl.full([], 0, tl.int64)
    posinf = tl.full([], 0, tl.int64)
    neginf = tl.full([], 0, tl.int64)
    lo = tl.full([], float("inf"), tl.float64)
    hi = tl.full([], float("-inf"), tl.float64)
    total = tl.full([], 0.0, tl.float64)
    squares = tl.full([], 0.0, tl.float64)
    for segment in range(program, segments, tl.num_programs(0)):
        start = tl.cast(segment, tl.int64) * size
        end = tl.minimum(start + size, count)
        part_squares = tl.full([], float("inf"), tl.float64)
        part_lo = tl.full([], float("inf"), tl.float64)
        part_hi = tl.full([], float("-inf"), tl.float64)
        part_total = tl.full([], 0.0, tl.float64)
        if end - start == size:
            part_lo, part_hi, part_total, part_squares = _quick_segment(x, start, steps, REAL, TILE, UNROLL)
        in_range = (part_squares <= LARGEST) & (part_squares >= VANISH)
        if in_range | ((part_lo == 0) & (part_hi == 0)):
            lo = tl.minimum(lo, part_lo)
            hi = tl.maximum(hi, part_hi)
            total += part_total
            squares += part_squares
        else:
            n, p, m, lo, hi, t, s = _careful_segment(x, start, end, lo, hi, LARGEST, REAL, CAREFUL_TILE)
            nan += n
            posinf += p
            neginf += m
            total += t
            squares += s
    row = rows + program * ROW
    tl.store(row + 0, nan.to(tl.float64))
    tl.store(row + 1, posinf.to(tl.float64))
    tl.store(row + 2, neginf.to(tl.float64))
    tl.store(row + 3, lo)
    tl.store(row + 4, hi)
    tl.store(row + 5, total)
    tl.store(row + 6, squares)
    if _is_last(rows + tl.num_programs(0) * ROW):
        _combine(rows, out, tl.num_programs(0), ROWS)


@triton.jit
def _root_of_sum(parts, count, TILE: tl.constexpr):
    total = tl.zeros([TILE], tl.float64)
    offsets = tl.arange(0, TILE)
    for at in range(0, count, TILE):
        total += tl.load(parts + at + offsets, mask=at + offsets < count, other=0.0, cache_modifier=".cg")
    return tl.sqrt(tl.sum(total)).to(tl.float32)


@triton.jit
def _latch(kept, answer, loss, norm, LARGEST: tl.constexpr):
    """Bring `kept` up to this step: whether one was bad, its loss, its norm. And answer with it."""
    value = tl.load(loss).to(tl.float32)
    fine = (tl.abs(value) <= LARGEST) & (tl.abs(norm) <= LARGEST) & (tl.load(kept) == 0)
    bad = tl.where(fine, 0.0, 1.0)
    tl.store(kept, bad)
    tl.store(kept + 1, value)
    tl.store(kept + 2, norm)
    tl.store(answer, bad)
    tl.store(answer + 1, value)
    tl.store(answer + 2, norm)


@triton.jit(do_not_specialize=["loss"])
def squares_kernel(
    table,
    letter,
    parts,
    out,
    loss,
    JUDGE: tl.constexpr,
    LARGEST: tl.constexpr,
    TENSORS: tl.constexpr,
    CHUNK: tl.constexpr,
    STORED: tl.constexpr,
    REAL: tl.constexpr,
    ALIGNED: tl.constexpr,
    TILE: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """The sum of squares of one chunk of one of many tensors; the last program makes the norm of all, and
    with `JUDGE` the verdict of it and the loss. `letter`: room for the answer, then the addresses."""
    chunk = tl.program_id(0)
    first_chunks = tl.load(table + tl.arange(0, TENSORS))
    tensor = tl.sum((first_chunks <= chunk).to(tl.int32)) - 1
    start = (chunk - tl.load(table + tensor)) * CHUNK
    address = tl.load(letter + ANSWER_WORDS + tensor, cache_modifier=".cv")
    count = tl.minimum(tl.load(table + TENSORS + tensor) - start, CHUNK).to(tl.int32)
    if ALIGNED:
        address = tl.multiple_of(address, 16)
    x = address.to(tl.pointer_type(STORED)) + start
    offsets = tl.arange(0, TILE)
    squares = tl.zeros([TILE], REAL)
    whole = count // (TILE * UNROLL) * (TILE * UNROLL)
    for at in range(0, whole, TILE * UNROLL):
        for u in tl.static_range(UNROLL):
            v = tl.load(x + at + u * TILE + offsets).to(REAL)
            squares += v * v
    for at in range(whole, count, TILE):
        v = tl.load(x + at + offsets, mask=at + offsets < count, other=0.0).to(REAL)
        squares += v * v
    tl.store(parts + chunk, tl.sum(squares.to(tl.float64)))
    if _is_last(parts + tl.num_programs(0)):
        norm = _root_of_sum(parts, tl.num_programs(0), TILE)
        if JUDGE:
            _latch(out, letter.to(tl.pointer_type(tl.float32)), loss, norm, LARGEST)
        else:
            tl.store(out, norm)
