"""The picture of embeddings: a valid PNG of a sensible size, drawn without warnings, with the right things in it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.tasks.evaluate.picture import LEGEND_LABELS, projection_picture
from tests.dashboards.test_pictures import size

# A connection that another test left open may be collected here: no fault of a picture.
pytestmark = pytest.mark.filterwarnings("error", "ignore::ResourceWarning")


def projection(labels, n=300):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, n)).astype(np.float32)
    return pa.table({"node": [str(i) for i in range(n)], "x": x, "y": y, "label": pa.array(labels, pa.string())})


def test_projection_coloured_by_the_most_frequent_labels(tmp_path, figures):
    labels = [f"label {int(i**0.5)}" for i in range(300)]
    pq.write_table(projection(labels), tmp_path / "projection.parquet")
    projection_picture(tmp_path / "projection.parquet", tmp_path / "p.png")
    width, height = size(tmp_path / "p.png")
    assert 600 <= width <= 2000
    assert 500 <= height <= 2000
    texts = [text.get_text() for text in figures[0].axes[0].get_legend().get_texts()]
    assert len(texts) == LEGEND_LABELS + 1
    assert texts[0] == "label 16  (33)"
    assert texts[-1] == f"{18 - LEGEND_LABELS} other labels"


def test_every_node_is_drawn_once(tmp_path, figures):
    labels = [None if i % 3 == 0 else f"{i % 20}" for i in range(300)]
    projection_picture(projection(labels), tmp_path / "p.png")
    assert sum(len(points.get_offsets()) for points in figures[0].axes[0].collections) == 300


@pytest.mark.parametrize("labels", [[None] * 300, ["a"] * 150 + [None] * 150, [r"$\frac{x", "_b", "日"] * 100])
def test_projection_of_odd_labels(tmp_path, labels):
    projection_picture(projection(labels), tmp_path / "p.png")
    size(tmp_path / "p.png")


def test_projection_of_nothing(tmp_path):
    projection_picture(projection([], n=0), tmp_path / "p.png")
    size(tmp_path / "p.png")
