"""Import strings that are checked without importing what they name."""

import sys
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import check_import, imported, module_file

TEXT = """
from os.path import join as there
import json

raise RuntimeError("imported")

def draw(): ...

CARD = draw
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that none of the tests may import."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sw_named.py").write_text(TEXT)
    (tmp_path / "sw_broken.py").write_text("def draw(:\n")
    (tmp_path / "sw_unclear.py").write_text("from sw_named import *\n")
    return tmp_path


@pytest.mark.parametrize("name", ["sw_named", "sw_named:draw", "sw_named:there", "sw_named:CARD", "sw_unclear:draw"])
def test_what_is_there(folder: Path, name: str) -> None:
    check_import(name, "here")
    assert module_file("sw_named") == folder / "sw_named.py"
    assert "sw_named" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sw_absent:draw", "here: no such module .got 'sw_absent'"),
        ("", "here: no such module"),
        ("..x", "here: no such module"),
        ("sys:path", "here: no such module"),
        ("sw_named:drew", r"here: module sw_named does not define this .got 'drew'.. Did you mean draw\?"),
        ("sw_broken:draw", "sw_broken.py:1: not valid Python"),
    ],
)
def test_what_is_not(folder: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_import(name, "here")


def test_imported() -> None:
    assert imported("os.path:join") is __import__("os").path.join
