"""Prose: docstrings, comments and documentation in the terms of the field; no pronoun or preposition as a variable."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("infra", "tasks", "flows", "sweeps", "dashboards", "superworkflow", "examples", "tests")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs")
SUFFIXES = (".html", ".yaml", ".yml", ".md", ".sh", ".toml")
FIRST_WORDS = ("What", "Whether", "How", "Who", "Whose", "Of", "Where", "Which")
"""First words that make a docstring a question or a fragment: it begins with a noun or a verb instead."""
WORDS = re.compile(
    r"\b(tells?|told|telling|beside|whoever|meanwhile|go(?:es|ing)? on|went on|so many|(no|some)body's|see there)\b",
    re.IGNORECASE,
)
"""Words of a translation: `goes on` is *continues*, `told` is *reported* or *passed*, `beside` is *next to*."""
VARIABLES = ("of", "at", "told", "asked", "known")


def sources() -> list[Path]:
    """Python files of the project, each once: packages below superworkflow/ are links to those of the top level."""
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if folder != "superworkflow" or path.relative_to(ROOT / folder).parts[0] not in FOLDERS
    ]


def pages() -> list[Path]:
    found = [ROOT / "Makefile", ROOT / "docker-compose.yml", ROOT / "pyproject.toml"]
    for name in (*PAGES, *FOLDERS):
        path = ROOT / name
        inside = [path] if path.is_file() else sorted(path.rglob("*"))
        found += [
            each
            for each in inside
            if each.suffix in SUFFIXES
            and (name != "superworkflow" or each.relative_to(path).parts[0] not in FOLDERS)
            and "__pycache__" not in each.parts
        ]
    return found


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each comment and each string: docstrings, messages and help texts too."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def words(source: str) -> Iterator[tuple[int, str]]:
    for line, text in _texts(source):
        for found in WORDS.finditer(text):
            yield line + text.count("\n", 0, found.start()), found.group()


def first_words(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring and (first := re.split(r"\W", docstring, maxsplit=1)[0]) in FIRST_WORDS:
                yield getattr(node, "lineno", 1), first


def variables(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg) and node.arg in VARIABLES:
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VARIABLES:
            yield node.lineno, node.id


def faults(source: str) -> list[tuple[int, str]]:
    """Line and word of each fault of a Python file."""
    return sorted([*words(source), *first_words(source), *variables(source)])


@pytest.mark.parametrize("folder", FOLDERS)
def test_python(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in sources()
        if path.relative_to(ROOT).parts[0] == folder and path != Path(__file__)
        for line, word in faults(path.read_text())
    ]
    assert found == []


def test_pages() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in pages()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in WORDS.finditer(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ('def f():\n    """Whether it fits."""', "Whether"),
        ("x = 1  # as told above", "told"),
        ('print(f"{x} goes on")', "goes on"),
        ("def f(of): ...", "of"),
        ("at = 1", "at"),
        ("for known in (): ...", "known"),
    ],
)
def test_faults_are_seen(source: str, word: str) -> None:
    assert [found for _, found in faults(source)] == [word]


def test_plain_prose_passes() -> None:
    assert faults('"""Rows of a table, in order."""\n\nstart = table.at(3)  # rows continue at the next page\n') == []
