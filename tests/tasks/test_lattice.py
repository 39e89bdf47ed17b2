"""Lattices: their graphs, belief propagation and Gibbs sampling on them, and what is refused."""

import dataclasses
import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image
from scipy.ndimage import gaussian_filter
from scipy.stats import chisquare

from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Resources
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.bp import STAGE as BP
from superworkflow.tasks.bp.program import PROGRAM, BpParams
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.gibbs import STAGE as GIBBS_STAGE
from superworkflow.tasks.gibbs.program import PROGRAM as GIBBS
from superworkflow.tasks.gibbs.program import GibbsParams
from superworkflow.tasks.grid import STAGE as GRID
from superworkflow.tasks.grid.run import grid_rows, size_of
from superworkflow.tasks.lib.vertex.run import ChromaticEngine, Coloured
from superworkflow.tasks.publish_lattice import STAGE as PUBLISH
from tests.tasks.index_helpers import run_stage
from tests.tasks.lib.vertex.graphs import coloured


def volume(side: int, dimensions: int = 3, labels: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Blurred noise cut at quantiles, and the same with 30% of the vertices drawn anew."""
    rng = np.random.default_rng(1)
    blurred = gaussian_filter(rng.normal(size=(side,) * dimensions), side / 12, mode="wrap")
    truth = np.digitize(blurred, np.quantile(blurred, np.arange(1, labels) / labels)).astype(np.int8)
    return truth, np.where(rng.random(truth.shape) < 0.3, rng.integers(0, labels, truth.shape), truth).astype(np.int8)


def grid(observed: np.ndarray, labels: int) -> Coloured:
    indptr, indices = grid_rows(observed.shape)
    matrix = sp.csr_array((np.ones(len(indices)), indices, indptr))
    return dataclasses.replace(coloured(matrix, 1), given={"observed": observed.reshape(-1)}, sizes={"labels": labels})


@pytest.mark.parametrize("shape", [(1, 2), (3, 4), (5, 1), (2, 3, 4), (1, 1, 3), (4, 4, 1)])
def test_neighbours_are_one_apart(shape: tuple[int, ...]) -> None:
    indptr, indices = grid_rows(shape)
    places = list(itertools.product(*map(range, shape)))
    for vertex, place in enumerate(places):
        near = [n for n, other in enumerate(places) if sum(abs(a - b) for a, b in zip(place, other, strict=True)) == 1]
        assert indices[indptr[vertex] : indptr[vertex + 1]].tolist() == near


@pytest.mark.parametrize("max_product", [False, True])
def test_exact_on_a_chain(max_product: bool) -> None:
    """A lattice of one row is a tree, where beliefs are the marginals, or max-marginals."""
    rng = np.random.default_rng(2)
    observed = rng.integers(0, 3, (1, 7))
    params = BpParams(precision=1e-6, noise=0.5, smoothing=2.5, max_product=max_product)
    found = ChromaticEngine(PROGRAM, params, grid(observed, 3)).run().fields["belief"]
    expected = np.zeros((7, 3))
    for labelling in itertools.product(range(3), repeat=7):
        weight = float(np.prod([0.5 / 3 + 0.5 * (x == y) for x, y in zip(labelling, observed[0], strict=True)]))
        weight *= 2.5 ** sum(a == b for a, b in itertools.pairwise(labelling))
        for vertex, label in enumerate(labelling):
            before = expected[vertex, label]
            expected[vertex, label] = max(before, weight) if max_product else before + weight
    expected /= expected.sum(axis=1, keepdims=True)
    assert np.abs(found - expected).max() < 1e-5


def test_denoises_a_volume_through_its_stages(tmp_path: Path) -> None:
    truth, noisy = volume(36, labels=3)
    np.save(tmp_path / "noisy.npy", noisy * 10 + 3)
    graph = run_stage(GRID, {}, {"lattice": str(tmp_path / "noisy.npy")}, tmp_path / "lattice")
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "colour")
    assert colours.stats["colours"] == 2

    def denoised(cpu: int, **params: object) -> tuple[np.ndarray, Dataset]:
        folder = tmp_path / f"{cpu}-{len(params)}"
        inputs = {"graph": graph.uri, "colours": colours.uri}
        values = run_stage(BP, params, inputs, folder / "bp", cpu, io.StringIO())
        made = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, folder / "made")
        return made.array("label.npy"), values

    labels, values = denoised(2)
    assert labels.shape == truth.shape
    assert (noisy != truth).mean() == pytest.approx(0.2, abs=0.01)
    assert (labels != truth * 10 + 3).mean() < 0.1
    swept, all_of_them = denoised(1, scheduler="sweep", execution="synchronous", max_steps=40)
    assert values.stats["updates"] < all_of_them.stats["updates"] / 5
    assert (swept != labels).mean() < 0.005
    assert denoised(1)[0].tobytes() == labels.tobytes()


def test_damping_leads_to_the_same_beliefs() -> None:
    _, noisy = volume(24, dimensions=2, labels=3)
    graph = grid(noisy, 3)
    plain, damped = (
        ChromaticEngine(PROGRAM, BpParams(precision=1e-5, damping=damping), graph).run().fields["belief"]
        for damping in (0.0, 0.4)
    )
    assert np.abs(plain - damped).max() < 1e-3


def exact(observed: np.ndarray, labels: int, noise: float, smoothing: float) -> np.ndarray:
    """Marginals of a grid of few columns, row by row over all labellings of a row."""
    rows = np.array(list(itertools.product(range(labels), repeat=observed.shape[1])))
    inside = smoothing ** (rows[:, 1:] == rows[:, :-1]).sum(axis=1)
    between = smoothing ** (rows[:, None] == rows[None]).sum(axis=2)
    seen = [inside * np.prod(noise / labels + (1 - noise) * (rows == row), axis=1) for row in observed]
    down, up = [seen[0]], [np.ones(len(rows))]
    for weight in seen[1:]:
        down.append(weight * (between @ down[-1]))
    for weight in seen[:0:-1]:
        up.append(between @ (weight * up[-1]))
    joint = [a * b for a, b in zip(down, up[::-1], strict=True)]
    marginals = np.array([[[each[rows[:, c] == x].sum() for x in range(labels)] for c in range(rows.shape[1])]
                          for each in joint])  # fmt: skip
    return marginals / marginals.sum(axis=2, keepdims=True)


def test_gibbs_draws_from_the_exact_marginals() -> None:
    """As many 4×4 grids as samples, not joined, so that the draws are independent."""
    observed = np.random.default_rng(4).integers(0, 3, (4, 4))
    copies, labels = 5_000, 3
    indptr, indices = grid_rows((4, 4))
    one = sp.csr_array((np.ones(len(indices)), indices, indptr))
    graph = dataclasses.replace(
        coloured(sp.csr_array(sp.kron(sp.eye_array(copies), one)), 1),
        given={"observed": np.tile(observed.ravel(), copies)}, sizes={"labels": labels},
    )  # fmt: skip
    params = GibbsParams(noise=0.6, smoothing=2.0, max_steps=40, burn_in=39, seed=5)
    drawn = ChromaticEngine(GIBBS, params, graph).run().fields["drawn"].reshape(copies, 16)
    expected = exact(observed, labels, 0.6, 2.0).reshape(16, labels)
    values = [chisquare(np.bincount(drawn[:, v], minlength=labels), copies * expected[v]).pvalue for v in range(16)]
    assert min(values) > 1e-3 / 16
    wrong = exact(observed, labels, 0.6, 2.6).reshape(16, labels)
    others = [chisquare(np.bincount(drawn[:, v], minlength=labels), copies * wrong[v]).pvalue for v in range(16)]
    assert min(others) < 1e-6


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros(9, int), r"of 2 or 3 dimensions, of integers .got 'int64\[9\]'"),
        (np.eye(3), r"of integers .got 'float64\[3, 3\]'"),
        (np.zeros((3, 3), int), "2 to 256 distinct values .got 1"),
    ],
)
def test_what_is_refused(tmp_path: Path, values: np.ndarray, words: str) -> None:
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(UserError, match=words):
        run_stage(GRID, {}, {"lattice": str(tmp_path / "x.npy")}, tmp_path / "lattice")


def test_a_file_that_is_no_array(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_text("1 2 3\n")
    with pytest.raises(UserError, match="no array in NumPy's format"):
        run_stage(GRID, {}, {"lattice": str(tmp_path / "x.npy")}, tmp_path / "lattice")


def png(greys: np.ndarray, path: Path, mode: str = "L") -> str:
    Image.fromarray(greys).convert(mode).save(path)
    return str(path)


def test_a_picture_is_cut_into_levels_and_denoised(tmp_path: Path) -> None:
    truth, noisy = volume(48, dimensions=2, labels=3)
    rng = np.random.default_rng(7)
    greys = (noisy * 86 + rng.integers(0, 80, noisy.shape)).astype(np.uint8)
    lattice = png(greys, tmp_path / "noisy.png")
    assert size_of(Source.of(lattice), 0) == {"vertices": truth.size}
    graph = run_stage(GRID, {"levels": 3}, {"lattice": lattice}, tmp_path / "lattice")
    assert graph.array("observed.npy").tolist() == noisy.ravel().tolist()
    means = [greys[noisy == label].mean() for label in range(3)]
    assert np.abs(graph.array("levels.npy") - means).max() <= 0.5
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "colour")
    values = run_stage(BP, {}, {"graph": graph.uri, "colours": colours.uri}, tmp_path / "bp")
    made = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, tmp_path / "made")
    picture = np.asarray(Image.open(tmp_path / "made/label.png"))
    assert picture.tolist() == made.array("label.npy").tolist()
    wrong = (np.searchsorted(graph.array("levels.npy"), picture) != truth).mean()
    assert wrong < (noisy != truth).mean() / 2


def test_modes_of_pictures(tmp_path: Path) -> None:
    greys = np.array([[0, 255, 64], [255, 64, 0]], np.uint8)
    log = io.StringIO()
    for mode in ("L", "RGBA", "I;16"):
        deep = greys.astype(np.uint16) * 256 if mode == "I;16" else greys
        lattice = png(deep, tmp_path / f"{mode}.png", mode)
        graph = run_stage(GRID, {}, {"lattice": lattice}, tmp_path / mode, log=log)
        assert graph.array("levels.npy")[graph.array("observed.npy")].tolist() == greys.ravel().tolist()
    assert log.getvalue().count("its greys alone are used") == 1


def test_a_damaged_picture(tmp_path: Path) -> None:
    lattice = Path(png(np.random.default_rng(0).integers(0, 256, (20, 20), np.uint8), tmp_path / "x.png"))
    lattice.write_bytes(lattice.read_bytes()[:200])
    with pytest.raises(UserError, match=r"x\.png: the picture cannot be read"):
        run_stage(GRID, {}, {"lattice": str(lattice)}, tmp_path / "lattice")


@pytest.mark.parametrize("name", ["bp", "gibbs"])
def test_superworkflows(name: str) -> None:
    found = load_superworkflow(name)
    stages = ["grid", "factor_graph", "colour", name, "publish_lattice", "publish_factors"]
    assert [stage.name for stage in found.stages] == stages


def test_pictures_of_16_bits_keep_the_bits_in_use(tmp_path: Path) -> None:
    """Labels from 0 on stay, and greys of 12 bits are not cut to one."""
    labels = np.random.default_rng(0).integers(0, 3, (6, 7)).astype(np.uint16)
    for name, values, levels in (("labels", labels, [0, 1, 2]), ("scan", labels * 2000, [0, 125, 250])):
        Image.fromarray(values).save(tmp_path / f"{name}.png")
        made = run_stage(GRID, {}, {"lattice": str(tmp_path / f"{name}.png")}, tmp_path / name)
        assert made.array("levels.npy").tolist() == levels
        np.testing.assert_array_equal(made.array("observed.npy"), labels.ravel())


def test_an_array_of_colours_is_doubted(tmp_path: Path) -> None:
    log, path = io.StringIO(), tmp_path / "colours.npy"
    np.save(path, np.random.default_rng(0).integers(0, 9, (8, 9, 3)).astype(np.uint8))
    run_stage(GRID, {}, {"lattice": str(path)}, tmp_path / "grid", 1, log)
    assert "looks like an image of 3 channels, and is read as a volume" in " ".join(log.getvalue().split())
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0 JFIF")
    with pytest.raises(UserError, match=r"photo\.jpg: no array in NumPy's format, and no PNG .got 'another format'"):
        run_stage(GRID, {}, {"lattice": str(tmp_path / "photo.jpg")}, tmp_path / "none")


@pytest.mark.parametrize("stage", [BP, GIBBS_STAGE])
def test_labels_too_many_to_be_smoothed(stage: Any, tmp_path: Path) -> None:
    for labels, doubted in ((8, False), (200, True)):
        np.save(tmp_path / f"{labels}.npy", np.arange(labels * 4).reshape(labels, 4) % labels)
        graph = run_stage(GRID, {}, {"lattice": str(tmp_path / f"{labels}.npy")}, tmp_path / f"grid{labels}")
        colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / f"colour{labels}")
        made = run_stage(stage, {}, {"graph": graph.uri, "colours": colours.uri}, tmp_path / f"made{labels}")
        assert ("little is smoothed" in str(made.stats)) == doubted


def test_arrays_of_fractions_and_of_one_value_are_refused(tmp_path: Path) -> None:
    for values, remedy in ((np.eye(3), r"Round it, such as np\.rint"), (np.ones((3, 3), int), "whose values differ")):
        np.save(tmp_path / "x.npy", values)
        with pytest.raises(UserError, match=remedy):
            run_stage(GRID, {}, {"lattice": str(tmp_path / "x.npy")}, tmp_path / "grid")


@pytest.mark.parametrize(("graph", "default"), [({"labels": 3}, 200), ({"factors": 9, "states": 3}, 10_000)])
def test_plans_count_all_draws(graph: dict[str, int], default: int) -> None:
    """A run does not end before its last one."""

    def work_s(**given: int) -> float:
        stats = {"graph": {"vertices": 10**6, "edges": 2 * 10**6, **graph}}
        found = GIBBS_STAGE.estimate(GibbsParams(**given), stats, Resources(cpu=1))
        return found.cpu_s - found.start_s

    assert work_s(max_steps=5 * default) == pytest.approx(5 * work_s())
    assert work_s() == pytest.approx(default / 10 * work_s(max_steps=10))
    assert work_s(burn_in=default) == pytest.approx(4 * work_s())
