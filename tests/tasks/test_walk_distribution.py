"""The walks have exactly the node2vec distribution: chi-square against the paper's definition, written anew here."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.params import parse_params
from superworkflow.tasks.walk import STAGE
from superworkflow.tasks.walk.kernels import edge_filter_size, triangles
from superworkflow.tasks.walk.params import LEAST_BIAS, MOST_BIAS
from superworkflow.tasks.walk.walker import Walker

P_VALUE = 1e-4
Weights = npt.NDArray[np.float64]


def transition(weight: Weights, t: int, v: int, p: float, q: float) -> Weights:
    """Grover & Leskovec 2016, section 3.2.2, from a dense matrix: the next vertex's probabilities after t -> v."""
    unnormalised = np.zeros(len(weight))
    for x in np.flatnonzero(weight[v]):
        distance = 0 if x == t else 1 if weight[t, x] > 0 else 2
        unnormalised[x] = {0: 1 / p, 1: 1.0, 2: 1 / q}[distance] * weight[v, x]
    return unnormalised / unnormalised.sum()


def csr(weight: Weights) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    rows, columns = np.nonzero(weight)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(weight)))])
    return indptr.astype(np.int64), columns.astype(np.int32), weight[rows, columns].astype(np.float32)


def random_graph(n: int, density: float, seed: int, *, directed: bool, weighted: bool) -> Weights:
    rng = np.random.default_rng(seed)
    present = rng.random((n, n)) < density
    # Multiples of 1/8, so that float32 holds them exactly.
    weight = np.where(present, rng.integers(1, 80, (n, n)) / 8 if weighted else 1.0, 0.0)
    if not directed:
        weight = np.triu(weight, 1)
        weight = weight + weight.T
    np.fill_diagonal(weight, 0)
    return weight


def star_with_tail(*, weighted: bool) -> Weights:
    """A hub with 30 leaves, a triangle and a tail: hardly a common neighbour, and one row longer than a search step."""
    weight = np.zeros((34, 34))
    edges = [(0, leaf) for leaf in range(1, 31)] + [(1, 2), (30, 31), (31, 32), (32, 33)]
    for i, (a, b) in enumerate(edges):
        weight[a, b] = weight[b, a] = 1 + i % 5 if weighted else 1.0
    return weight


def pooled_p_value(observed: npt.NDArray[np.int64], expected: Weights) -> tuple[float, int]:
    """Chi-square and degrees of freedom of one row of counts; cells that expect fewer than 5 are pooled."""
    small = expected < 5
    cells, wants = observed[~small].astype(float), expected[~small]
    if small.any() and expected[small].sum() >= 5:
        cells, wants = np.append(cells, observed[small].sum()), np.append(wants, expected[small].sum())
    elif small.any() and len(cells):
        cells[0] += observed[small].sum()
        wants[0] += expected[small].sum()
    return (float(((cells - wants) ** 2 / wants).sum()), len(cells) - 1) if len(cells) > 1 else (0.0, 0)


def check(weight: Weights, p: float, q: float, *, directed: bool, weighted: bool, seed: int = 7) -> None:
    n, walk_length = len(weight), 24
    num_walks = 100_000 // n
    indptr, indices, weights = csr(weight)
    walker = Walker(
        indptr, indices, weights if weighted else None, directed=directed, walk_length=walk_length, p=p, q=q, seed=seed
    )
    walks = walker.walk(0, n * num_walks)

    alive = walks[:, 1] >= 0
    first = np.bincount(walks[alive, 0] * n + walks[alive, 1], minlength=n**2).reshape(n, n)
    pairs = walks[:, :-1] * n + walks[:, 1:]
    x = walks[:, 2:].ravel()
    triples = np.bincount(pairs[:, :-1].ravel()[x >= 0] * n + x[x >= 0], minlength=n**3).reshape(n, n, n)

    total, freedom = 0.0, 0
    for vertex in np.flatnonzero(weight.sum(1)):
        if first[vertex].any():
            row = weight[vertex] / weight[vertex].sum()
            assert not first[vertex][row == 0].any()
            statistic, degrees = pooled_p_value(first[vertex], first[vertex].sum() * row)
            total, freedom = total + statistic, freedom + degrees
    for a, b in zip(*np.nonzero(triples.sum(2)), strict=True):
        row = transition(weight, a, b, p, q)
        assert not triples[a, b][row == 0].any(), "a step that is no edge"
        statistic, degrees = pooled_p_value(triples[a, b], triples[a, b].sum() * row)
        total, freedom = total + statistic, freedom + degrees
    assert freedom > 0
    assert stats.chi2.sf(total, freedom) > P_VALUE, f"chi-square {total:.0f} at {freedom} degrees of freedom"


@pytest.fixture(params=["matrix", "filter"])
def pairs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of bit table: small graphs would take the matrix only."""
    _set_pairs(request.param, monkeypatch)


@pytest.fixture(params=["matrix", "filter", "triangles"])
def pairs_and_triangles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the filter with the edges known that lie in no triangle."""
    _set_pairs(request.param, monkeypatch)


def _set_pairs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "matrix":
        monkeypatch.setattr(edge_filter_size, "MATRIX_BYTES", 0)
    if kind == "triangles":
        monkeypatch.setattr(triangles, "WORTH", 0.0)


BIASES = [(1, 1), (0.25, 0.25), (0.5, 2), (4, 0.25), (0.25, 4), (2, 1), (0.2, 1), (1, 2), (1, 0.5), (1, 1e-3)]


@pytest.mark.parametrize(("p", "q"), BIASES)
@pytest.mark.parametrize(("directed", "weighted"), [(False, False), (False, True), (True, True)])
@pytest.mark.usefixtures("pairs")
def test_random_graph(p: float, q: float, directed: bool, weighted: bool) -> None:
    weight = random_graph(14, 0.35, 3, directed=directed, weighted=weighted)
    check(weight, p, q, directed=directed, weighted=weighted)


LIMITS = [(p, q) for p in (LEAST_BIAS, 1, MOST_BIAS) for q in (LEAST_BIAS, 1, MOST_BIAS) if not p == q == 1]


@pytest.mark.parametrize(("p", "q"), LIMITS)
@pytest.mark.parametrize(("directed", "weighted"), [(False, False), (True, True)])
@pytest.mark.usefixtures("pairs_and_triangles")
def test_limits_of_p_and_q(p: float, q: float, directed: bool, weighted: bool) -> None:
    check(random_graph(14, 0.35, 3, directed=directed, weighted=weighted), p, q, directed=directed, weighted=weighted)


@pytest.mark.parametrize("name", ["p", "q"])
@pytest.mark.parametrize("value", [LEAST_BIAS / 2, MOST_BIAS * 2, 0.0, -1.0, np.inf, np.nan])
def test_beyond_the_limits(name: str, value: float) -> None:
    with pytest.raises(ValueError, match="p and q must be in 1e-06 to 1e"):
        Walker(*csr(star_with_tail(weighted=False)), **{name: value})
    with pytest.raises(UserError, match=rf"walk.{name}: .*(0.000001|1000000|finite)"):
        parse_params(STAGE.params, {name: value}, STAGE.name)


@pytest.mark.parametrize(("p", "q"), [(0.5, 2), (0.25, 0.25), (1e3, 1e3)])
@pytest.mark.parametrize(("directed", "weighted"), [(False, True), (True, False)])
@pytest.mark.usefixtures("pairs")
def test_rows_longer_than_a_search_step(p: float, q: float, directed: bool, weighted: bool) -> None:
    weight = random_graph(60, 0.6, 4, directed=directed, weighted=weighted)
    check(weight, p, q, directed=directed, weighted=weighted)


@pytest.mark.parametrize(("p", "q"), [(0.5, 2), (1e3, 1e3), (1e-3, 1e3), (1e3, 1e-3)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("pairs")
def test_hub_with_hardly_a_triangle(p: float, q: float, weighted: bool) -> None:
    check(star_with_tail(weighted=weighted), p, q, directed=False, weighted=weighted)


@pytest.mark.parametrize("weighted", [False, True])
def test_directed_graph_with_sinks(weighted: bool) -> None:
    weight = random_graph(16, 0.25, 5, directed=True, weighted=weighted)
    weight[[3, 7]] = 0
    check(weight, 0.5, 2, directed=True, weighted=weighted)
    check(weight, 1, 1, directed=True, weighted=weighted)


def test_heavy_and_light_weights() -> None:
    """The edge back is the lightest of its row, and one edge has nearly all of the weight."""
    weight = random_graph(12, 0.6, 6, directed=False, weighted=False)
    weight[weight > 0] = 0.125
    weight[0, 1:] *= 4096 * np.sign(weight[0, 1:])
    weight[1:, 0] = weight[0, 1:]
    for p, q in [(0.01, 1), (0.01, 4), (100, 0.25)]:
        check(weight, p, q, directed=False, weighted=True)


@pytest.mark.parametrize("distort", ["p", "q", "weights"])
def test_the_test_sees_a_wrong_distribution(distort: str) -> None:
    """A distribution that is off by a few per cent does not pass."""
    weight = random_graph(14, 0.35, 3, directed=False, weighted=True)
    indptr, indices, weights = csr(weight)
    wrong: dict[str, Callable[[], Walker]] = {
        "p": lambda: Walker(indptr, indices, weights, p=0.53, q=2.0, walk_length=24, seed=7),
        "q": lambda: Walker(indptr, indices, weights, p=0.5, q=2.1, walk_length=24, seed=7),
        "weights": lambda: Walker(indptr, indices, None, p=0.5, q=2.0, walk_length=24, seed=7),
    }
    walks = wrong[distort]().walk(0, 14 * 17_000)
    total, freedom = 0.0, 0
    for a, b in zip(*np.nonzero(weight), strict=True):
        chosen = walks[:, 2:][(walks[:, :-2] == a) & (walks[:, 1:-1] == b)]
        observed = np.bincount(chosen, minlength=14)
        statistic, degrees = pooled_p_value(observed, len(chosen) * transition(weight, a, b, 0.5, 2))
        total, freedom = total + statistic, freedom + degrees
    assert stats.chi2.sf(total, freedom) < P_VALUE
