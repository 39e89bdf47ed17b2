"""Programs whose parameters are learned by a sync whenever messages rest: cosegment and mrf_learning."""

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.optimize import minimize
from scipy.special import logsumexp

from superworkflow.flows import load_superworkflow
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.cosegment import STAGE as COSEGMENT
from superworkflow.tasks.grid import STAGE as GRID
from superworkflow.tasks.lib.vertex.run import ChromaticEngine
from superworkflow.tasks.mrf_learning import STAGE as MRF_LEARNING
from superworkflow.tasks.mrf_learning.program import OF_NEIGHBOURS, PROGRAM, MrfLearningParams
from superworkflow.tasks.publish_lattice import STAGE as PUBLISH
from tests.tasks.index_helpers import run_stage
from tests.tasks.test_lattice import grid, volume


def test_segments_of_a_noisy_volume(tmp_path: Path) -> None:
    """As `bp` that knows the model; the share of outliers is found."""
    truth, noisy = volume(48, labels=3)
    np.save(tmp_path / "noisy.npy", noisy.astype(int) * 100 - 7)
    graph = run_stage(GRID, {}, {"lattice": str(tmp_path / "noisy.npy")}, tmp_path / "grid")
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "colour")
    inputs = {"graph": graph.uri, "colours": colours.uri}
    made = [run_stage(COSEGMENT, {}, inputs, tmp_path / f"{cpu}", cpu, io.StringIO()) for cpu in (1, 2)]
    found = made[0].json("globals.json")
    assert found["means"] == pytest.approx([0, 0.5, 1], abs=0.01)
    assert found["outliers"] == pytest.approx(0.3, abs=0.05)
    arrays = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": made[0].uri}, tmp_path / "published")
    assert (arrays.array("segment.npy") != truth).mean() < 0.05
    for name in made[0].files("*.npy"):
        assert made[0].array(name).tobytes() == made[1].array(name).tobytes(), name
    assert load_superworkflow("cosegment").stages[-1] is PUBLISH


def test_segments_of_greys(tmp_path: Path) -> None:
    """Two Gaussians of other widths, on a lattice with many values."""
    rng = np.random.default_rng(3)
    truth = np.zeros((60, 60), int)
    truth[:, 25:] = 1
    greys = np.where(truth, rng.normal(170, 25, truth.shape), rng.normal(80, 12, truth.shape)).round().astype(int)
    np.save(tmp_path / "greys.npy", greys.clip(0, 255))
    graph = run_stage(GRID, {}, {"lattice": str(tmp_path / "greys.npy")}, tmp_path / "grid")
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "colour")
    made = run_stage(COSEGMENT, {"segments": 2}, {"graph": graph.uri, "colours": colours.uri}, tmp_path / "made")
    found, levels = made.json("globals.json"), graph.array("levels.npy")
    span = levels[-1] - levels[0]
    assert [levels[0] + span * mean for mean in found["means"]] == pytest.approx([80, 170], abs=4)
    assert [span * width for width in found["widths"]] == pytest.approx([12, 25], abs=4)
    assert (made.array("segment-00000.npy").reshape(60, 60) != truth).mean() < 0.005


def test_segments_of_a_picture(tmp_path: Path) -> None:
    """Its greys are not cut into few levels, of which a segment would take one; the segments are a picture too."""
    rng = np.random.default_rng(3)
    truth = np.arange(3).repeat(20)[None].repeat(60, axis=0)
    greys = rng.normal(np.array([60, 120, 180])[truth], 12).round().clip(0, 255).astype(np.uint8)
    Image.fromarray(greys).save(tmp_path / "greys.png")
    read = load_superworkflow("cosegment").stages[0].params().model_dump()
    graph = run_stage(GRID, read, {"lattice": str(tmp_path / "greys.png")}, tmp_path / "grid")
    assert graph.stats["labels"] == len(np.unique(greys)) > 100
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "colour")
    made = run_stage(COSEGMENT, {"segments": 3}, {"graph": graph.uri, "colours": colours.uri}, tmp_path / "made")
    published = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": made.uri}, tmp_path / "published")
    picture = np.asarray(Image.open(tmp_path / "published/segment.png"))
    assert (picture == published.array("segment.npy") * 127).all()
    assert (picture != truth * 127).mean() < 0.02


def expected(shape: tuple[int, int], smoothing: float, weights: list[float]) -> np.ndarray:
    """Expected equal neighbours and labels, for each vertex, over all labellings of a lattice of few vertices."""
    total = np.zeros(1 + len(weights))
    mass = 0.0
    for labelling in itertools.product(range(len(weights)), repeat=shape[0] * shape[1]):
        x = np.array(labelling).reshape(shape)
        equal = (x[1:] == x[:-1]).sum() + (x[:, 1:] == x[:, :-1]).sum()
        chance = smoothing**equal * np.prod(np.array(weights)[x])
        mass += chance
        total += chance * np.array([equal, *np.bincount(x.ravel(), minlength=len(weights))])
    return total / mass / (shape[0] * shape[1])


@pytest.mark.parametrize("seed", range(3))
def test_learned_models_expect_what_was_observed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    observed = np.repeat(rng.permutation(3), [3, 2, 2])[None]
    observed[0, 0] = (observed[0, 0] + 1) % 3
    found = ChromaticEngine(PROGRAM, MrfLearningParams(), grid(observed, 3)).run()
    values = PROGRAM.report(found.globals, None)  # type: ignore[misc]
    exact = expected((1, 7), values["smoothing"], values["weights"])
    assert found.ended == "empty"
    assert exact == pytest.approx(np.array(values["observed"]), abs=1e-4)
    assert values["observed"] == pytest.approx(
        [(observed[0, 1:] == observed[0, :-1]).sum() / 7, *np.bincount(observed[0]) / 7]
    )


def pseudo_likelihood(observed: np.ndarray, labels: int) -> np.ndarray:
    """Smoothing and weights that SciPy finds for a labelling."""
    near, wanted = np.zeros((*observed.shape, labels)), observed.reshape(-1)
    for axis, side in itertools.product((0, 1), (slice(1, None), slice(None, -1))):
        own = [slice(None)] * 2
        own[axis] = side
        other = np.roll(observed, 1 if side.start else -1, axis)
        near[tuple(own)] += np.eye(labels)[other][tuple(own)]
    near = near.reshape(-1, labels)

    def loss(logs: np.ndarray) -> float:
        scores = logs[0] * near + np.concatenate([[0], logs[1:]])
        return float((logsumexp(scores, axis=1) - scores[np.arange(len(wanted)), wanted]).mean())

    found = minimize(loss, np.zeros(labels), method="BFGS", options={"gtol": 1e-9}).x
    return np.exp(np.concatenate([found[:1], [0], found[1:]]))


def test_pseudo_likelihood_is_the_largest() -> None:
    observed, _ = volume(24, dimensions=2, labels=3)
    one, two = (
        ChromaticEngine(OF_NEIGHBOURS, MrfLearningParams(match=1e-8), grid(observed, 3), threads).run()
        for threads in (1, 2)
    )
    values = OF_NEIGHBOURS.report(one.globals, None)  # type: ignore[misc]
    assert one.ended == "empty"
    assert [values["smoothing"], *values["weights"]] == pytest.approx(pseudo_likelihood(observed, 3), rel=1e-4)
    assert one.globals == two.globals
    assert one.fields["belief"].sum(axis=1) == pytest.approx(np.ones(observed.size))


def test_learns_through_stages(tmp_path: Path) -> None:
    truth, _ = volume(12, dimensions=2, labels=2)
    np.save(tmp_path / "truth.npy", truth)
    graph = run_stage(GRID, {}, {"lattice": str(tmp_path / "truth.npy")}, tmp_path / "grid")
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "colour")
    log = io.StringIO()
    params = {"objective": "likelihood", "match": 1e-3, "damping": 0.3, "precision": 1e-5}
    inputs = {"graph": graph.uri, "colours": colours.uri}
    made = run_stage(MRF_LEARNING, params, inputs, tmp_path / "made", 1, log)
    assert made.json("globals.json")["smoothing"] > 2
    assert "Bethe" in log.getvalue()
    pairs = run_stage(MRF_LEARNING, {}, inputs, tmp_path / "pairs", 1, log := io.StringIO())
    assert "warning" not in log.getvalue()
    found = pairs.json("globals.json")
    assert [found["smoothing"], *found["weights"]] == pytest.approx(pseudo_likelihood(truth, 2), rel=1e-2)
