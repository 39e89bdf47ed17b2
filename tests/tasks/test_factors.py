"""Factor graphs: the UAI format, belief propagation and Gibbs sampling on them, and what is refused."""

import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chisquare

from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.bp import STAGE as BP
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.factor_graph import STAGE as FACTOR_GRAPH
from superworkflow.tasks.gibbs import STAGE as GIBBS
from superworkflow.tasks.gibbs.factors import PROGRAM
from superworkflow.tasks.gibbs.program import GibbsParams, draws
from superworkflow.tasks.lib.vertex.run import ChromaticEngine
from superworkflow.tasks.publish_factors import STAGE as PUBLISH
from tests.tasks.index_helpers import run_stage
from tests.tasks.lib.vertex.graphs import coloured

Factors = list[tuple[tuple[int, ...], np.ndarray]]


def uai(states: Sequence[int], factors: Factors, kind: str = "MARKOV") -> str:
    scopes = "\n".join(" ".join(map(str, [len(scope), *scope])) for scope, _ in factors)
    tables = "\n\n".join(f"{table.size}\n {' '.join(map(repr, table.ravel().tolist()))}" for _, table in factors)
    return f"{kind}\n{len(states)}\n{' '.join(map(str, states))}\n{len(factors)}\n{scopes}\n\n{tables}\n"


def trees(count: int, size: int, seed: int) -> tuple[list[int], list[Factors]]:
    """States of the variables of all trees, and each tree's factors of one to three variables, with zeros."""
    rng = np.random.default_rng(seed)
    states: list[int] = []
    found: list[Factors] = []
    for number in range(count):
        base, factors, have = number * size, [], 1
        states += [*rng.integers(1, 4, size - 1).tolist(), 3]
        while have < size:
            new = min(int(rng.integers(1, 3)), size - have)
            scope = rng.permutation([base + int(rng.integers(have)), *range(base + have, base + have + new)])
            have += new
            factors.append(scope)
        factors += [[base + 1], [base + 1], [], factors[-1][:2], factors[0][::-1]]  # the last two are parts of others
        found.append([(tuple(map(int, scope)), _table([states[int(v)] for v in scope], rng)) for scope in factors])
    return states, found


def _table(shape: list[int], rng: np.random.Generator) -> np.ndarray:
    table = rng.gamma(0.5, size=shape)
    table[rng.random(shape) < 0.1] = 0.0
    table.flat[0] += 0.1  # state 0 of all is possible
    return table


def joint(states: Sequence[int], factors: Factors, first: int, size: int) -> np.ndarray:
    """Product of all tables for each assignment of `size` variables from `first` on."""
    product = np.ones(states[first : first + size])
    for scope, table in factors:
        shape = [states[v] if v in scope else 1 for v in range(first, first + size)]
        product = product * table.transpose(np.argsort(scope)).reshape(shape)
    return product


def made(text: str, folder: Path, evidence: str = "", log: io.StringIO | None = None) -> Dataset:
    folder.mkdir(exist_ok=True)
    (folder / "model.uai").write_text(text)
    inputs = {"factors": str(folder / "model.uai")}
    if evidence:
        (folder / "model.evid").write_text(evidence)
        inputs["evidence"] = str(folder / "model.evid")
    return run_stage(FACTOR_GRAPH, {}, inputs, folder / "graph", log=log)


def solved(stage: Any, graph: Dataset, folder: Path, **params: Any) -> tuple[Dataset, Dataset]:
    """Dataset of the program, and what is published of it."""
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, folder / "colour")
    values = run_stage(stage, params, {"graph": graph.uri, "colours": colours.uri}, folder / "values")
    return values, run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, folder / "published")


def marginals(published: Dataset) -> list[np.ndarray]:
    rows = published.table("marginals.parquet").to_pydict()
    found: dict[int, list[float]] = {}
    for node, state, probability in zip(rows["node"], rows["state"], rows["probability"], strict=True):
        assert state == len(found.setdefault(node, []))
        found[node].append(probability)
    return [np.array(each) for each in found.values()]


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_marginals_of_trees_are_exact(damping: float, tmp_path: Path) -> None:
    count, size = 12, 7
    states, factors = trees(count, size, seed=1)
    observed = [number * size + size - 1 for number in range(0, count, 2)]  # which have 3 states, 0 always possible
    text = uai(states, [factor for tree in factors for factor in tree])
    graph = made(text, tmp_path, f"{len(observed)}\n" + "\n".join(f"{variable} 0" for variable in observed))
    assert graph.stats["cycles"] == 0
    found = marginals(solved(BP, graph, tmp_path, damping=damping, precision=1e-13)[1])
    assert [len(each) for each in found] == states
    for number, tree in enumerate(factors):
        product = joint(states, tree, number * size, size)
        if number * size + size - 1 in observed:
            product[..., 1:] = 0.0
        for axis in range(size):
            expected = product.sum(axis=tuple(a for a in range(size) if a != axis)) / product.sum()
            assert np.abs(found[number * size + axis] - expected).max() < 1e-10


def test_most_probable_assignment(tmp_path: Path) -> None:
    """Trees, among them one whose states are likely in differing pairs alone, so that each by itself is a tie."""
    count, size = 12, 7
    states, factors = trees(count, size, seed=2)
    differ = 1.0 - np.eye(3)
    factors.append([((v, v + 1), differ) for v in range(count * size, count * size + size - 1)])
    states += [3] * size
    graph = made(uai(states, [factor for tree in factors for factor in tree]), tmp_path)
    _, published = solved(BP, graph, tmp_path, max_product=True)
    assignment = published.table("assignment.parquet")
    assert assignment.column_names == ["node", "state", "probability"]
    chosen = assignment["state"].to_numpy()
    total = 0.0
    for number, tree in enumerate(factors):
        product = joint(states, tree, number * size, size)
        reached = product[tuple(chosen[number * size : (number + 1) * size])]
        assert reached == pytest.approx(product.max(), rel=1e-5)
        total += math.log(reached)
    assert published.stats["log_value"] == pytest.approx(total, abs=1e-9)


def grid(side: int, seed: int, strength: float) -> tuple[list[int], Factors]:
    """A square of variables of 3 states with random weights, and neighbours that attract or repel each other."""
    rng = np.random.default_rng(seed)
    places = np.arange(side * side).reshape(side, side)
    across, down = (zip(each.flat, other.flat, strict=True) for each, other in
                    ((places[:, :-1], places[:, 1:]), (places[:-1], places[1:])))  # fmt: skip
    factors: Factors = [((int(v),), rng.uniform(0.5, 1.5, 3)) for v in places.flat]
    factors += [((int(u), int(v)), np.exp(strength * rng.normal(size=(3, 3)))) for u, v in (*across, *down)]
    return [3] * side**2, factors


def exact(factors: Factors, variables: Sequence[int]) -> list[np.ndarray]:
    """Marginals by elimination."""
    operands = [each for scope, table in factors for each in (table, list(scope))]
    found = [np.einsum(*operands, [variable], optimize="greedy") for variable in variables]
    return [each / each.sum() for each in found]


@pytest.mark.slow
def test_gibbs_draws_from_the_exact_marginals(tmp_path: Path) -> None:
    """As many 4×4 grids as samples, not joined, so that the draws are independent; a factor of three joins some."""
    copies, (states, factors) = 4_000, grid(4, seed=3, strength=0.6)
    factors.append(((15, 10, 6), np.random.default_rng(4).uniform(0.5, 2, (3, 3, 3)) ** 3))
    graph = made(uai(states, factors), tmp_path)
    one = sp.csr_array((np.ones(graph.stats["edges"] * 2), graph.array("indices.npy"), graph.array("indptr.npy")))
    starts, table = graph.array("table_indptr.npy"), graph.array("table.npy")
    many = dataclasses.replace(
        coloured(sp.csr_array(sp.kron(sp.eye_array(copies), one)), 2), sizes={"states": 3},
        given={"factor": np.tile(graph.array("factor.npy"), copies)},
        rows={"table": (np.concatenate([[0], np.cumsum(np.tile(np.diff(starts), copies))]), np.tile(table, copies))},
    )  # fmt: skip
    params = GibbsParams(max_steps=30, burn_in=29, seed=6)
    drawn = ChromaticEngine(PROGRAM, params, many).run().fields["drawn"].reshape(copies, -1)[:, :16]
    expected = exact(factors, range(16))
    values = [chisquare(np.bincount(drawn[:, v], minlength=3), copies * expected[v]).pvalue for v in range(16)]
    assert min(values) > 1e-3 / 16
    (other,) = exact(factors[:-1], [15])
    assert chisquare(np.bincount(drawn[:, 15], minlength=3), copies * other).pvalue < 1e-6


def test_damping_lets_a_grid_converge(tmp_path: Path) -> None:
    """Neighbours that repel each other, where undamped messages swing."""
    states, factors = grid(6, seed=1, strength=1.0)
    factors = [(s, np.exp(-2 * np.eye(3)) if len(s) == 2 else np.array([1.2, 1, 0.9])) for s, _ in factors]
    graph = made(uai(states, factors), tmp_path)
    ended, beliefs = [], []
    for damping in (0.0, 0.4, 0.6):
        params = {"scheduler": "fifo", "max_steps": 400, "damping": damping}
        values, published = solved(BP, graph, tmp_path / str(damping), **params)
        ended.append(values.stats["ended"])
        beliefs.append(np.array(marginals(published)))
    assert ended == ["steps", "empty", "empty"]
    assert np.abs(beliefs[1] - beliefs[2]).max() < 1e-6 < np.abs(beliefs[0] - beliefs[1]).max()


SMALL = "MARKOV 2  2 3  2  1 0  2 0 1  2 1 2  6 1 1 1 1 1 1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes 2", r"no model in the UAI format .got 'nodes'.*Begin the file with MARKOV or BAYES"),
        (SMALL.replace("2 1 2 ", "2 1 x "), "a word where a number is expected .got 'x'"),
        (SMALL.replace("6 1", "5 1"), r"table of factor 1: a table has .* 6 = 2 · 3 .got '5'.*Correct the length"),
        (SMALL.replace("2 1 2 ", "2 1 -2 "), "table of factor 0, entry 1: an entry is a finite .*got '-2'.*Correct it"),
        (SMALL.replace("2 1 2 ", "2 nan 2 "), "table of factor 0, entry 0: an entry is a finite number .*got 'nan'"),
        (SMALL.replace("2 1 2 ", "2 0 0 "), "table of factor 0: no entry is above 0"),
        (SMALL.replace("1 0 ", "1 7 "), r"scope of factor 0: no such variable .got '7'.*Give 0 to 1"),
        (SMALL.replace("2 0 1 ", "2 1 1 "), r"scope of factor 1: a factor names a variable twice .got '1 1'"),
        (SMALL[:-4], r"table of factor 1: the file ends too early .got '4 of 6 numbers'.*Copy or complete it"),
        ("MARKOV 2  2", r"states of the variables: the file ends too early .got '1 of 2 numbers'"),
        ("BAYES 2  2 2.5", r"states of the variables: no whole number in the range .got '2.5'.*Give 1 to"),
        (SMALL + " 3", "numbers after the end .got '1 numbers'"),
        (SMALL.replace("2 1 2 ", "2 1 0 "), r"variable 0: no state .* above 0 .got 'observed in state 1'"),
    ],
)
def test_what_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"(?s)model.uai.*{words}"):
        made(text, tmp_path, "1 0 1")


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ("1 2 0", r"observation 0: no such variable .got '2'.*Give 0 to 1"),
        ("1 1 3", r"observation 0, variable 1: no such state .got '3'.*Give 0 to 2"),
        ("2 1 0 1 2", "variable 1: a variable is observed in two states .got '0 and 2'"),
        ("2 1 0", "observation 1: the file ends too early"),
        ("2 1 0 0 1 0 1", "numbers after the end"),
        ("2 1 0 0 1 0", "several samples of evidence"),
    ],
)
def test_evidence_that_is_refused(evidence: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"(?s)model.evid.*{words}"):
        made(SMALL, tmp_path, evidence)


def test_evidence_of_both_forms_and_doubts(tmp_path: Path) -> None:
    log = io.StringIO()
    text = SMALL.replace("MARKOV", "\ufeffc by hand\nc\nBAYES # 2 variables\n")  # a byte order mark, as Windows writes
    plain, older = made(text, tmp_path / "a", "1 1 2", log), made(text, tmp_path / "b", "1\n1 1 2", log)
    assert "table of factor 0: its entries are no conditional distribution" in log.getvalue()
    assert plain.array("table.npy").tolist() == older.array("table.npy").tolist() == [0.5, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1]


def test_tables_that_change_fastest_in_the_first_variable(tmp_path: Path) -> None:
    """As pgmpy 1.1.2 writes Bayesian networks, which then are no conditional distributions as the format has them."""
    text = "BAYES\n3\n2 2 3\n3\n1 0\n1 1\n3 0 1 2\n\n2 0.2 0.8\n2 0.5 0.5\n12 "
    rng = np.random.default_rng(5)
    table = rng.dirichlet(np.ones(3), (2, 2))
    right, turned = (" ".join(map(str, each.ravel())) for each in (table, table.transpose()))
    graphs = [made(text + each, tmp_path / name) for name, each in (("right", right), ("turned", turned))]
    assert np.abs(graphs[0].array("table.npy") - graphs[1].array("table.npy")).max() < 1e-15
    assert ["pgmpy" in str(graph.stats) for graph in graphs] == [False, True]


def test_gibbs_is_close_where_nothing_is_set(tmp_path: Path) -> None:
    states, factors = grid(3, seed=4, strength=1.0)
    _, published = solved(GIBBS, made(uai(states, factors), tmp_path), tmp_path)
    off = [np.abs(a - b).max() for a, b in zip(marginals(published), exact(factors, range(9)), strict=True)]
    assert max(off) < 0.03


@pytest.mark.parametrize(("params", "kept"), [({}, (10, 2)), ({"max_steps": 8}, (8, 2)), ({"burn_in": 9}, (36, 9))])
def test_draws_that_are_not_counted(params: dict[str, int], kept: tuple[int, int]) -> None:
    assert draws(GibbsParams(**params), 10) == {"max_steps": kept[0], "burn_in": kept[1]}


def test_cycles_that_evidence_opens(tmp_path: Path) -> None:
    states, factors = grid(3, seed=4, strength=1.0)
    found = {text: made(uai(states, factors), tmp_path / text, text) for text in ("", "1 4 2", "2 1 0 3 0")}
    assert {text: graph.stats["cycles"] for text, graph in found.items()} == {"": 4, "1 4 2": 1, "2 1 0 3 0": 1}
    expected = exact([*factors, ((1,), np.eye(3)[0]), ((3,), np.eye(3)[0]), ((4,), np.eye(3)[2])], range(9))
    graph = made(uai(states, factors), tmp_path / "all", "3 1 0 3 0 4 2")
    assert graph.stats["cycles"] == 0
    assert np.abs(np.array(marginals(solved(BP, graph, tmp_path)[1])) - expected).max() < 1e-8


def test_no_factors(tmp_path: Path) -> None:
    published = solved(BP, made("MARKOV 1 3 1 1 0 3 1 2 5", tmp_path), tmp_path)[1]
    assert marginals(published)[0] == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    assert published.stats["log_value"] == pytest.approx(math.log(5))


def test_evidence_that_a_factor_excludes(tmp_path: Path) -> None:
    only = np.zeros((3, 3, 3))
    only[0, 0, 0] = 1.0
    graph = made(uai([3, 3, 3], [((0, 1, 2), only)]), tmp_path, "3 0 1 1 1 2 1")
    with pytest.raises(UserError, match=r"no assignment is possible.*got 'found at factor 0 of the graph'"):
        solved(BP, graph, tmp_path)


@pytest.mark.parametrize("stage", [BP, GIBBS])
def test_an_impossible_model(stage: Any, tmp_path: Path) -> None:
    """Three variables that must differ, of which two states are left."""
    different = 1.0 - np.eye(3)
    factors: Factors = [((0, 1), different), ((1, 2), different), ((0, 2), different)]
    factors += [((v,), np.array([1.0, 1.0, 0.0])) for v in range(3)]
    graph = made(uai([3, 3, 3], [*factors, ((0,), np.array([1.0, 0, 0]))]), tmp_path)
    with pytest.raises(UserError, match=r"no assignment is possible|still not found an assignment"):
        solved(stage, graph, tmp_path)


@pytest.mark.parametrize("name", ["bp", "gibbs"])
def test_a_lattice_or_factors(name: str, tmp_path: Path) -> None:
    found = load_superworkflow(name)
    params = {prefix: model() for prefix, model in found.models().items()}
    (tmp_path / "x").write_text(SMALL)
    source = Source.of(tmp_path / "x")

    def nodes(*sources: str) -> list[str]:
        return list(found.build(params, dict.fromkeys(sources, source)).nodes)

    assert nodes("lattice") == ["grid", "colour", name, "publish_lattice"]
    assert nodes("factors", "evidence") == ["factor_graph", "colour", name, "publish_factors"]
    for sources, words in (((), "neither"), (("lattice", "factors"), "both"), (("lattice", "evidence"), "evidence is")):
        with pytest.raises(UserError, match=words):
            nodes(*sources)
