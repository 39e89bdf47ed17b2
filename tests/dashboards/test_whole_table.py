"""Tables on the terminal: every figure is there at any width."""

import io

import pytest
from rich.console import Console

from superworkflow.dashboards.whole_table import TableColumn, print_whole

_NAMES = ("trial", "evaluate.macro_f1@0.5", "paid", *(f"walk.parameter_{number}" for number in range(8)))
COLUMNS = [*(TableColumn(name, right=True) for name in _NAMES), TableColumn("rest", drop=1)]
ROWS = [[str(row), "0.98123", "$0.00123", *(f"{row}.12345" for _ in range(8)), "least"] for row in range(10, 16)]


def _printed(width: int) -> str:
    out = io.StringIO()
    print_whole(Console(file=out, width=width), COLUMNS, ROWS, "last trials")
    return out.getvalue()


@pytest.mark.parametrize("width", [200, 120, 80, 40])
def test_no_figure_is_cut(width: int) -> None:
    text = _printed(width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for row in ROWS:
        assert text.count(row[3]) == 8
    assert text.count("0.98123") == text.count("$0.00123") == len(ROWS)


def test_what_may_be_missing_is_missing_first() -> None:
    assert "least" in _printed(200)
    assert "least" not in _printed(115)
    assert len(_printed(115).splitlines()) < len(_printed(80).splitlines()), "rows are columns then"
