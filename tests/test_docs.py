"""Documents name files, definitions and pages that exist, and stay short enough to be read."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDES = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*PAGES, ROOT / "CHANGELOG.md"]
SOURCE_PATH = re.compile(r"(?<![\w./-])(?:infra|tasks|flows|superworkflow|sweeps|dashboards|tests)/[\w./-]*\w/?")
LINK = re.compile(r"\]\(([^)\s]+)\)")
DEFINITION = re.compile(r"`([\w/]+\.py)`:\s+`(\w+)`")
GENERATED = {"cli.md", "profiles.md"}
GUIDE_WORDS, CELL_WORDS = 1500, 25
REFERENCES = {*GENERATED, "input.md"}
"""Pages that are looked up rather than read."""


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _prose(text: str) -> str:
    """The text without fenced and indented blocks, whose examples may name files of the reader's."""
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^ {4}(?![\s\d]|`).*$", "", text, flags=re.MULTILINE)


def _anchors(text: str) -> set[str]:
    """Names under which GitHub links the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_named_files_exist(page: Path) -> None:
    """Paths are from the root of the repository; the page of guarantees names tests from `tests/`."""
    named = set(SOURCE_PATH.findall(_prose(page.read_text(encoding="utf-8"))))
    assert {path for path in named if not any((base / path).exists() for base in (ROOT, ROOT / "tests"))} == set()


@pytest.mark.parametrize("page", LINKED, ids=_name)
def test_links_resolve(page: Path) -> None:
    text, broken = page.read_text(encoding="utf-8"), []
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert broken == []


def test_walks_name_definitions_of_their_files() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = DEFINITION.findall(text)
    assert len(named) > 30
    lost = []
    for path, name in named:
        file = ROOT / path
        defined = rf"^\s*(?:async def|def|class) {name}\b"
        if not file.exists() or not re.search(defined, file.read_text(encoding="utf-8"), re.MULTILINE):
            lost.append(f"{path}: {name}")
    assert lost == []


@pytest.mark.parametrize("page", [page for page in GUIDES if page.name not in REFERENCES], ids=_name)
def test_guides_are_short(page: Path) -> None:
    """Rules are in docs/reference, figures in docs/measurements."""
    assert len(page.read_text(encoding="utf-8").split()) <= GUIDE_WORDS


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=_name)
def test_cells_of_tables_are_short(page: Path) -> None:
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert [cell for row in rows for cell in row.split("|") if len(cell.split()) > CELL_WORDS] == []
