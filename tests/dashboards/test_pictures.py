"""Pictures: valid PNG of a sensible size, drawn without warnings, with the right things in them."""

import struct
from dataclasses import dataclass

import pytest

from superworkflow.dashboards.pictures import cost_picture

# A connection that another test left open may be collected here: no fault of a picture.
pytestmark = pytest.mark.filterwarnings("error", "ignore::ResourceWarning")


@dataclass
class Row:
    name: str
    state: str
    runtime_s: float
    cost_usd: float
    saved_usd: float = 0.0
    saved_s: float = 0.0


ROWS = [
    Row("index", "cached", 0, 0, 0.0003, 3.1),
    Row("walk", "ran", 8.4, 0.0013),
    Row("embed", "ran", 74.0, 0.0045),
]


def size(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")
    assert len(content) > 3000
    return struct.unpack(">II", content[16:24])


def test_cost_of_stages(tmp_path, figures):
    cost_picture(ROWS, tmp_path / "c.png")
    width, height = size(tmp_path / "c.png")
    assert width > height > 200
    seconds, dollars = figures[0].axes
    assert [label.get_text() for label in seconds.get_yticklabels()] == ["index", "walk", "embed"]
    assert [bar.get_width() for bar in seconds.patches] == [3.1, 8.4, 74.0]
    assert [bool(bar.get_hatch()) for bar in dollars.patches] == [True, False, False]
    assert seconds.get_title(loc="left") == "runtime  1 m 22 s, saved 3.1 s"
    assert dollars.get_title(loc="left") == r"cost  \$0.005800, saved \$0.000300"


def test_the_picture_grows_with_the_rows(tmp_path):
    cost_picture(ROWS, tmp_path / "a.png")
    cost_picture(ROWS * 4, tmp_path / "b.png")
    assert size(tmp_path / "b.png")[1] > size(tmp_path / "a.png")[1]


@pytest.mark.parametrize("rows", [[], [Row("index", "cached", 0, 0)], [Row("free", "ran", 0.0, 0.0)]])
def test_cost_of_nothing(tmp_path, rows):
    cost_picture(rows, tmp_path / "c.png")
    size(tmp_path / "c.png")
