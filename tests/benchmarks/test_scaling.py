"""The arithmetic of curves by size."""

import json
from pathlib import Path

import pytest

from tests.benchmarks import engine_curve
from tests.benchmarks.measure import Measured
from tests.benchmarks.scaling import _document, _point, picture, spread, table
from tests.benchmarks.stages import StageResult


def result(folder: Path, wall_s: float, tokens: int) -> StageResult:
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"stats": {"tokens": tokens}}))
    return StageResult(Measured(wall_s, 2 * wall_s, 1 << 30, ""), folder)


def test_start_is_subtracted_and_the_whole_job_computed(tmp_path: Path) -> None:
    """11 s of which 1 is the start, for 2 of 10 walks: 10 s of work become 50."""
    few = _point("embed", "token", 1000, 2, result(tmp_path / "few", 11.0, 160_000), (1.0, 2.0))
    assert few.ns == pytest.approx(10 / 160_000 * 1e9)
    assert few.cpu_ns == pytest.approx(20 / 160_000 * 1e9)
    assert few.full_s == pytest.approx(51)
    whole = _point("embed", "token", 1000, 10, result(tmp_path / "whole", 41.0, 800_000), (1.0, 2.0))
    assert whole.full_s == 41
    index = _point("index", "edge", 1000, 2, result(tmp_path / "index", 4.0, 0), (1.0, 2.0))
    assert (index.units, index.ns, index.full_s) == (30_000, pytest.approx(1e5), 4.0)
    points = [few, whole, index]
    assert spread(points, "embed") == pytest.approx(1.25)
    assert spread(points, "walk") is None
    assert "51 s (from 2)" in table(points)
    assert json.loads(json.dumps(_document(points, "bench")))["spread"]["embed"] == 1.25
    picture(points, tmp_path / "curve.png", "caption")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_point_that_did_not_end_is_shown_as_such(tmp_path: Path) -> None:
    points = [
        engine_curve.Point(100, 600, "in process", 1.5, 2.0, 0.1),
        engine_curve.Point(100, 600, engine_curve.PEER, 120, 120, 0.1, ended=False),
    ]
    assert "| 100 | 600 | 2 s (1.5 s) | does not end |" in engine_curve.table(points)
    engine_curve.picture(points, tmp_path / "curve.png", "caption")
    assert (tmp_path / "curve.png").stat().st_size > 1000
