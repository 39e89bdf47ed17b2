"""Products of packed factors of bfloat16, with guard zones, against the order of sums that they state."""

import os
import subprocess
import sys

import numba as nb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.gnn.model.dropout import NOTHING, RowDropout
from superworkflow.tasks.lib.gnn.tensor_tasks import drop_dense
from superworkflow.tasks.lib.gnn.whole_graph import short_products
from superworkflow.tasks.lib.gnn.whole_graph.short_products import short_gradient, short_product
from superworkflow.tasks.lib.kernels import matrix_products
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.bfloat16 import round_rows
from superworkflow.tasks.lib.kernels.matrix_products import TERMS, left_room, product_room, right_room
from superworkflow.tasks.lib.kernels.products import PRODUCTS
from superworkflow.tasks.lib.kernels.variants import VARIABLE
from tests.kernels.test_whole_graph_kernels import bfloat16, nodes_of

add_products, pack_left, pack_right, pack_turned = (
    nb.njit(getattr(matrix_products, name).py_func)
    for name in ("add_products", "pack_left", "pack_right", "pack_turned")
)
"""As kernels of their own, so that guard zones are around what they get."""
SIZES = {
    "rows": st.sampled_from([1, 2, 15, 16, 17, 33, 70]), "terms": st.sampled_from([1, 2, 31, 32, 33, 65, 130]),
    "columns": st.sampled_from([1, 3, 16, 17, 41, 64, 80]), "seed": st.integers(0, 2**20),
}  # fmt: skip


def product_of(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The stated sums: even and odd terms of a block of 32 apart, by multiply-adds, exact in float64 before rounding.

    A product of two bfloat16 is exact in float32, and its sum with a float32 is rounded once, as float64 has room.
    """
    pad = -left.shape[1] % TERMS
    left, right = np.pad(bfloat16(left), ((0, 0), (0, pad))), np.pad(bfloat16(right), ((0, pad), (0, 0)))
    total = np.zeros((len(left), right.shape[1]), np.float32)
    for begin in range(0, left.shape[1], TERMS):
        both = []
        for first in (begin, begin + 1):
            part = np.zeros_like(total)
            for t in range(first, begin + TERMS, 2):
                part = (part + left[:, t, None] * right[t]).astype(np.float32)
            both.append(part)
        total = total + (both[0] + both[1])
    return total


def padded(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return np.pad(np.ascontiguousarray(values), ((0, -len(values) % rows), (0, -values.shape[1] % columns)))


@given(**SIZES)
@settings(max_examples=25, deadline=None, print_blob=True)
def test_packed_products(rows, terms, columns, seed):
    """Every bit; packed by rows or by columns, at once or in parts."""
    rng = np.random.default_rng(seed)
    left, right = (rng.normal(size=size).astype(np.float32) for size in ((rows, terms), (terms, columns)))
    words, parts, turned = (left_room(rows, terms) for _ in range(3))
    pack_left(padded(left, 1, TERMS), words, 0)
    middle = int(rng.integers(0, rows + 1))
    pack_left(padded(left[:middle], 1, TERMS), parts, 0)
    pack_left(padded(left[middle:], 1, TERMS), parts, middle)
    assert (words == parts).all()
    pack_turned(padded(left.T, TERMS, 16), turned, 0)
    assert (words == turned).all()
    pairs, behind = right_room(terms, columns), right_room(terms, columns)
    pack_right(square := padded(right, TERMS, 16), pairs, 0)
    for first in range(0, len(square), 16):
        pack_right(square[first : first + 16], behind, first)
    assert (pairs == behind).all()
    out = product_room(rows, columns)
    add_products(words, pairs, out)
    wanted = product_of(left, right)
    assert (out[:rows, :columns] == wanted).all()
    assert not out[rows:].any()
    assert not out[:, columns:].any()
    add_products(words, pairs, out)
    assert out[:rows, :columns] == pytest.approx(2 * wanted, rel=1e-5, abs=1e-4)


def test_factors_that_do_not_fit_are_refused():
    words, pairs, out = left_room(17, 33), right_room(33, 5), product_room(17, 5)
    rows = np.zeros((16, 64), np.float32)
    for kernel, arguments in (
        (pack_left, (rows[:, :32].copy(), words, 0)), (pack_left, (rows, words, 17)), (pack_left, (rows, words, -1)),
        (pack_right, (rows, pairs, 0)), (pack_right, (rows[:, :16].copy(), pairs, 8)),
        (pack_right, (rows[:, :16].copy(), pairs, 64)), (pack_right, (rows[:5, :16].copy(), pairs, 0)),
        (pack_turned, (rows, words, 0)), (pack_turned, (rows[:, :32].copy(), words, 64)),
        (add_products, (words[:, :16].copy(), pairs, out)), (add_products, (words[:16], pairs, out)),
        (add_products, (words, pairs, product_room(17, 17))),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="fit"):
            kernel(*arguments)


@given(
    **SIZES,
    share=st.sampled_from([0, 30000]),
    kind=st.sampled_from(["float32", "float16", "bits"]),
    block=st.sampled_from([32, 512]),
)
@settings(max_examples=25, deadline=None, print_blob=True)
def test_products_of_rows_after_dropout(rows, terms, columns, seed, share, kind, block):
    """Rows are dropped as for other products, and scaled afterwards; blocks change no bit."""
    rng = np.random.default_rng(seed)
    values = plain = rng.normal(size=(rows, terms)).astype(np.float32 if kind == "bits" else kind)
    if kind == "bits":
        round_rows(read_only(plain), values := np.empty((rows, terms), np.int16), 0)
    matrix, gradient = (rng.normal(size=(each, columns)).astype(np.float32) for each in (terms, rows))
    nodes, dropout = nodes_of(rows, seed), RowDropout(share, seed) if share else NOTHING
    dropped = np.where(drop_dense(np.ones_like(plain), nodes, dropout) > 0, plain, 0).astype(np.float32)
    scale = np.float32(65536 / (65536 - share))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(short_products, "_BLOCK", block)
        given = nodes, dropout.share, dropout.word
        made, found = short_product(values, matrix, *given), short_gradient(gradient, values, *given)
    assert (made == product_of(dropped, matrix * scale)).all()
    assert (found == product_of(gradient.T, dropped) * scale).all()


ALL_BITS = """
import hashlib
import numpy as np
from superworkflow.tasks.lib.gnn.whole_graph.short_products import short_gradient, short_product
from superworkflow.tasks.lib.kernels.arrays import read_only
rng = np.random.default_rng(5)
values, matrix, gradient = (rng.normal(size=size).astype(np.float32) for size in ((700, 75), (75, 41), (700, 41)))
nodes = read_only(np.arange(700, dtype=np.int32))
for found in (short_product(values, matrix, nodes, 9000, np.uint64(3)), short_gradient(gradient, values)):
    print(hashlib.sha256(found.tobytes()).hexdigest())
"""


def test_all_ways_give_the_same_bits():
    found = {
        subprocess.run(
            [sys.executable, "-c", ALL_BITS], env={**os.environ, VARIABLE: f"products={way}"}, timeout=600,
            capture_output=True, check=True, text=True,
        ).stdout
        for way in PRODUCTS.available
    }  # fmt: skip
    assert len(found) == 1
