"""The kernels of training on whole graphs, with guard zones, against dense matrices in float64."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.tasks.lib.gnn.model.mean_kernels import transpose
from superworkflow.tasks.lib.gnn.sampler.kernels import fill_masks
from superworkflow.tasks.lib.gnn.whole_graph.activation_kernels import activate, back_through
from superworkflow.tasks.lib.gnn.whole_graph.attention_kernels import (
    SLOPE,
    attend,
    attend_back,
    head_products,
    lanes_of,
    padded_width,
)
from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import (
    drop_rows,
    gather_rows,
    gather_scaled,
    publish_rows,
)
from superworkflow.tasks.lib.gnn.whole_graph.sparse_kernels import drop_entries, multiply_rows, multiply_transposed
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.bfloat16 import DTYPES
from superworkflow.tasks.lib.kernels.float16 import as_read
from superworkflow.tasks.lib.kernels.lanes import table_of
from superworkflow.tasks.lib.kernels.rows_ahead import DISTANCE
from superworkflow.tasks.lib.kernels.variants import VARIABLE

GRAPHS = {"nodes": st.integers(1, 9), "most": st.sampled_from([0, 3, 40]), "seed": st.integers(0, 2**20)}


def arcs_of(rng: np.random.Generator, nodes: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random arcs by receiver, some more than once, and their dense counts."""
    lists = [np.sort(rng.integers(0, nodes, rng.integers(0, most + 1))) for _ in range(nodes)]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    senders = np.concatenate([*lists, np.empty(0)]).astype(np.int32)
    counts = np.zeros((nodes, nodes))
    np.add.at(counts, (np.repeat(np.arange(nodes), np.diff(starts)), senders), 1)
    return read_only(starts), read_only(senders), counts


def turned(starts: np.ndarray, senders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    begins, receivers = np.zeros(len(starts) + 1, np.int64), np.empty(len(senders), np.int32)
    transpose(starts, senders, begins, receivers)
    return read_only(begins[:-1]), read_only(receivers)


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Rounded to 8 bits of precision, by arithmetic."""
    fraction, exponent = np.frexp(values.astype(np.float64))
    return np.ldexp(np.round(fraction * 256) / 256, exponent)


@given(**GRAPHS, width=st.sampled_from([1, 16, 41, 64, 113]), precision=st.sampled_from(list(DTYPES)))
@settings(max_examples=20, deadline=None, print_blob=True)
def test_gather(nodes, most, seed, width, precision):
    """Published rows are summed with their scales, forwards and back, by intervals as in one call."""
    rng = np.random.default_rng(seed)
    starts, senders, counts = arcs_of(rng, nodes, most)
    rows, scales = rng.normal(size=(nodes, width)).astype(np.float32), rng.uniform(0.1, 1, nodes).astype(np.float32)
    table = table_of(nodes, width, DTYPES[precision])
    middle = int(rng.integers(0, nodes + 1))
    publish_rows(rows[:middle], scales, 0, table)
    publish_rows(rows[middle:], scales, middle, table)
    scaled = (rows * scales[:, None]).astype(np.float32)
    stored = scaled if precision == "float32" else bfloat16(scaled)
    for matrix, arcs in ((counts, (starts, senders)), (counts.T, turned(starts, senders))):
        whole, parts = np.empty((nodes, width), np.float32), np.empty((nodes, width), np.float32)
        chosen = rng.permutation(nodes).astype(np.int32)
        gather_rows(read_only(table), *arcs, scales, read_only(np.arange(nodes, dtype=np.int32)), whole)
        gather_rows(read_only(table), *arcs, scales, read_only(chosen[:middle]), parts[:middle])
        gather_rows(read_only(table), *arcs, scales, read_only(chosen[middle:]), parts[middle:])
        assert (whole[chosen] == parts).all()
        wanted = scales[:, None] * ((matrix + np.eye(nodes)) @ stored)
        assert whole == pytest.approx(wanted, abs=1e-4)
    bare = np.empty((nodes, width), DTYPES[precision])
    publish_rows(rows, np.empty(0, np.float32), 0, bare)
    plain = bare if precision == "float32" else (bare.astype(np.uint32) << 16).view(np.float32)
    assert (plain == (rows if precision == "float32" else bfloat16(rows))).all()


GATHERED = """
import hashlib
import numpy as np
from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import gather_rows
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.rows_ahead import DISTANCE
rng = np.random.default_rng(3)
table, senders = rng.normal(size=(40, 96)).astype(np.float32), rng.integers(0, 40, 300).astype(np.int32)
starts = np.sort(np.append([0, 300], rng.integers(0, 301, 39)))
scales, out = np.ones(40, np.float32), np.empty((40, 96), np.float32)
nodes = read_only(np.arange(40, dtype=np.int32))
gather_rows(read_only(table), read_only(starts), read_only(senders), scales, nodes, out)
print(DISTANCE.value, hashlib.sha256(out.tobytes()).hexdigest())
"""


def test_all_distances_give_the_same_bits():
    found = [
        subprocess.run(
            [sys.executable, "-c", GATHERED], env={**os.environ, VARIABLE: f"distance={ahead}"}, timeout=600,
            capture_output=True, check=True, text=True,
        ).stdout.split()
        for ahead in DISTANCE.available
    ]  # fmt: skip
    assert [ahead for ahead, _ in found] == list(DISTANCE.available)
    assert len({digest for _, digest in found}) == 1


@given(**GRAPHS, width=st.sampled_from([1, 17]), half=st.booleans())
@settings(max_examples=15, deadline=None, print_blob=True)
def test_gather_of_unscaled_rows(nodes, most, seed, width, half):
    rng = np.random.default_rng(seed)
    starts, senders, counts = arcs_of(rng, nodes, most)
    values = rng.normal(size=(nodes, width)).astype(np.float16 if half else np.float32)
    scales, first = rng.uniform(0.1, 1, nodes).astype(np.float32), int(rng.integers(0, nodes))
    out = np.empty((nodes - first, width), np.float32)
    gather_scaled(read_only(as_read(values)), scales, starts, senders, first, out)
    wanted = scales[:, None] * ((counts + np.eye(nodes)) @ (scales[:, None] * values.astype(np.float64)))
    assert out == pytest.approx(wanted[first:], abs=1e-4)


def nodes_of(rows: int, seed: int) -> np.ndarray:
    """Numbers of nodes in any order."""
    return read_only(np.random.default_rng(seed).permutation(70 + rows)[:rows].astype(np.int32))


@given(rows=st.integers(0, 5), width=st.sampled_from([1, 4, 9]), seed=st.integers(0, 2**20))
@settings(max_examples=15, deadline=None, print_blob=True)
def test_dropout_is_that_of_batches(rows, width, seed):
    """The same entries as in mini-batches, by the nodes' numbers, also in place."""
    values = np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)
    masks, words = np.empty((rows, width), np.float32), np.empty((width + 3) >> 2, np.uint64)
    fill_masks((nodes := nodes_of(rows, seed)).astype(np.int64), 30000, np.uint64(seed), masks)
    drop_rows(values, nodes, 30000, np.uint64(seed), words, out := values.copy())
    assert (out == values * masks).all()
    drop_rows(out, nodes, 30000, np.uint64(seed), words, out)
    assert out == pytest.approx(values * masks * masks)


@given(
    rows=st.integers(0, 6), columns=st.sampled_from([1, 5, 40]), width=st.sampled_from([1, 16]),
    share=st.sampled_from([0.0, 0.1, 0.9]), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=15, deadline=None, print_blob=True)
def test_sparse_rows(rows, columns, width, share, seed):
    """Products are those of the dense rows, and dropout drops the same entries of them."""
    rng = np.random.default_rng(seed)
    dense = (rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < share)).astype(np.float32)
    found = sp.csr_matrix(dense)
    sparse = found.indptr.astype(np.int64), found.indices.astype(np.int32), found.data
    matrix, other = (rng.normal(size=(each, width)).astype(np.float32) for each in (columns, rows))
    out, back = np.empty((rows, width), np.float32), np.empty((columns, width), np.float32)
    multiply_rows(*sparse, matrix, out)
    assert out == pytest.approx(dense @ matrix, abs=1e-4)
    multiply_transposed(*sparse, other, back)
    assert back == pytest.approx(dense.T @ other, abs=1e-4)
    words, dropped, nodes = np.empty((columns + 3) >> 2, np.uint64), np.empty_like(dense), nodes_of(rows, seed)
    drop_rows(dense, nodes, 30000, np.uint64(seed), words, dropped)
    drop_entries(*sparse, nodes, 30000, np.uint64(seed), entries := np.empty_like(found.data))
    assert (dropped[dense != 0] == entries).all()


def shares_of(scores: np.ndarray, counts: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Shares [receivers, senders, heads] after dropout, in float64; `scores` before LeakyReLU."""
    active = np.where(scores > 0, scores, float(SLOPE) * scores)
    weights = np.exp(active - active.max(axis=1, keepdims=True)) * counts[:, :, None]
    return weights / weights.sum(axis=1, keepdims=True) * keep


def keep_of(states: np.ndarray, numbers: np.ndarray, heads: int, dropped: int) -> np.ndarray:
    """Factors of dropout [receivers, senders, heads], as `fill_masks` has them for the senders of a receiver."""
    keep = np.ones((len(states), len(numbers), heads), np.float32)
    for i, state in enumerate(states):
        fill_masks(numbers, dropped, state, keep[i])
    return keep


@given(
    rows=st.integers(0, 5), width=st.sampled_from([1, 4, 33]), seed=st.integers(0, 2**20),
    elu=st.booleans(), dropped=st.sampled_from([0, 30000]), biased=st.booleans(),
)  # fmt: skip
@settings(max_examples=15, deadline=None, print_blob=True)
def test_activation_and_its_gradient(rows, width, seed, elu, dropped, biased):
    rng = np.random.default_rng(seed)
    given_rows, bias = (rng.normal(size=each).astype(np.float32) * 3 for each in ((rows, width), width * biased))
    activate(made := given_rows.copy(), read_only(bias), elu)
    total = given_rows + bias if biased else given_rows
    wanted = np.where(total > 0, total, np.expm1(np.minimum(total, 0, dtype=np.float64)) if elu else 0)
    assert made == pytest.approx(wanted, abs=2e-7)
    changes, words = rng.normal(size=made.shape).astype(np.float32), np.empty((width + 3) >> 2, np.uint64)
    masks, nodes = np.ones_like(made), nodes_of(rows, seed)
    if dropped:
        fill_masks(nodes.astype(np.int64), dropped, np.uint64(seed), masks)
    found = changes.copy()
    back_through(found, read_only(made), elu, nodes, dropped, np.uint64(seed), words)
    assert found == pytest.approx(changes * masks * np.where(made > 0, 1, made + 1 if elu else 0), abs=1e-6)


def in_table(rows: np.ndarray, heads: int, precision: str) -> np.ndarray:
    """Rows as `attend` reads them: published, each head in columns of its own."""
    width = rows.shape[1] // heads
    table = table_of(len(rows), heads * padded_width(width), DTYPES[precision], 8)
    publish_rows(rows.reshape(-1, width), np.empty(0, np.float32), 0, table.reshape(-1, padded_width(width)))
    return read_only(table)


def bare(rows: np.ndarray, heads: int, width: int) -> np.ndarray:
    """Rows without the columns that pad heads, which are 0."""
    by_head = rows.reshape(len(rows), heads, -1)
    assert not by_head[:, :, width:].any()
    return by_head[:, :, :width].reshape(len(rows), -1)


@given(
    nodes=st.integers(1, 9), most=st.sampled_from([0, 3, 40, 200]), seed=st.integers(0, 2**20),
    heads=st.sampled_from([1, 3, 8, 11]), width=st.sampled_from([1, 8, 41]), dropped=st.sampled_from([0, 30000]),
    precision=st.sampled_from(list(DTYPES)), spread=st.sampled_from([1.0, 40.0]),
)  # fmt: skip
@settings(max_examples=25, deadline=None, print_blob=True)
def test_attention_and_its_gradients(nodes, most, seed, heads, width, dropped, precision, spread):
    """Results are those of dense float64 sums; gradients those of central differences of these."""
    rng = np.random.default_rng(seed)
    starts, senders, counts = arcs_of(rng, nodes, most)
    arcs = counts + np.eye(nodes)
    given_rows = rng.normal(size=(nodes, heads * width)).astype(np.float32)
    table, lanes = in_table(given_rows, heads, precision), lanes_of(heads)
    rows = given_rows if precision == "float32" else bfloat16(given_rows).astype(np.float32)
    sending, receiving = (np.zeros((nodes, lanes), np.float32) for _ in range(2))
    for each in (sending, receiving):
        each[:, :heads] = rng.normal(size=(nodes, heads)) * spread
    states = rng.integers(0, 2**63, nodes).astype(np.uint64)
    out, also = np.empty(table.shape, np.float32), np.empty(table.shape, np.float32)
    slopes, logs = np.empty((nodes, lanes), np.float32), np.empty((nodes, lanes), np.float32)
    first, own = int(rng.integers(0, nodes)), rng.integers(0, 99, nodes if seed % 2 else 0)
    numbers = read_only(own.astype(np.uint64))
    every, chosen = read_only(np.arange(nodes, dtype=np.int32)), rng.permutation(nodes).astype(np.int32)
    for low, high in ((0, first), (first, nodes)):
        attend(
            table, sending, receiving[low:high], heads, starts, senders, every[low:high], numbers, dropped,
            states[low:high], out[low:high], also[low:high], slopes[low:high], logs[low:high],
        )  # fmt: skip
    again = np.empty_like(out)
    attend(
        table, sending, receiving[chosen], heads, starts, senders, read_only(chosen), numbers, dropped,
        states[chosen], again, also[:0], np.empty_like(slopes), np.empty_like(logs),
    )  # fmt: skip
    assert (again == out[chosen]).all()
    out, also = bare(out, heads, width), bare(also, heads, width)
    keep = keep_of(states, own if len(own) else np.arange(nodes), heads, dropped).astype(np.float64)

    def dense(rows: np.ndarray, sending: np.ndarray, receiving: np.ndarray) -> np.ndarray:
        scores = sending[None].astype(np.float64) + receiving[:, None]
        shares = shares_of(scores, arcs, keep)
        by_head = rows.astype(np.float64).reshape(nodes, heads, width)
        return np.einsum("ijh,jhd->ihd", shares, by_head).reshape(nodes, -1)

    scored = sending[:, :heads], receiving[:, :heads]
    assert out == pytest.approx(dense(rows, *scored), abs=2e-4 * spread)
    gradient = rng.normal(size=rows.shape).astype(np.float32)
    if precision == "bfloat16":
        gradient = bfloat16(gradient).astype(np.float32)
    published = in_table(gradient, heads, precision)
    products, tilted = np.empty((nodes, heads), np.float32), np.empty((nodes, heads), np.float32)
    head_products(gradient, out, products)
    head_products(gradient, also, tilted)
    assert products == pytest.approx((gradient * out).reshape(nodes, heads, width).sum(2), abs=1e-4)
    facts = np.zeros((nodes, 3, lanes), np.float32)
    facts[:, 0], facts[:, 1], facts[:, 2, :heads] = receiving, logs, products
    back, sums = np.empty(table.shape, np.float32), np.empty(table.shape, np.float32)
    less = np.empty((nodes, lanes), np.float32)
    for low, high in ((0, first), (first, nodes)):
        attend_back(
            published, facts.reshape(nodes, -1), heads, states, *turned(starts, senders), sending[low:high], low,
            numbers, dropped, back[low:high], sums[low:high], less[low:high],
        )  # fmt: skip
    back, scores = bare(back, heads, width), np.empty((nodes, heads), np.float32)
    head_products(rows, bare(sums, heads, width), scores)
    scores -= less[:, :heads]
    of_receivers = tilted - products * slopes[:, :heads]
    step = 1e-6
    given_to = [each.astype(np.float64) for each in (rows, *scored)]
    for place, found in enumerate((back, scores, of_receivers)):
        direction = rng.normal(size=found.shape)
        ahead, behind = list(given_to), list(given_to)
        ahead[place], behind[place] = given_to[place] + step * direction, given_to[place] - step * direction
        slope = ((dense(*ahead) - dense(*behind)) * gradient).sum() / (2 * step)
        assert (found * direction).sum() == pytest.approx(slope, abs=3e-3 * spread, rel=1e-3)
