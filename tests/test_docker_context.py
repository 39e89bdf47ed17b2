"""`.dockerignore`: Docker gets the product's files for images, and none that work has left between them."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dirty_tree import ROOMS, make_dirty_tree, tracked_files

READ_BY_IMAGES = (
    ".py",
    ".typed",
    ".yaml",
    ".json",
    ".properties",
    ".gz",
    ".txt",
    ".html",
    ".css",
    ".js",
    ".svg",
    ".ini",
    ".sh",
)


def _rules(text: str) -> list[tuple[re.Pattern[str], bool, str]]:
    """Each rule's pattern, whether it ignores, and its words."""
    rules = []
    for line in text.splitlines():
        if not (words := line.strip()) or words.startswith("#"):
            continue
        ignores = not words.startswith("!")
        words = words.lstrip("!").strip("/")
        pattern = ""
        for part in re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", words):
            pattern += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part))
        rules.append((re.compile(pattern), ignores, words))
    return rules


def _ignored(path: str, rules: list[tuple[re.Pattern[str], bool, str]]) -> bool:
    """The last rule that matches the path or a folder above it decides."""
    parts = path.split("/")
    above = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    ignored = False
    for pattern, ignores, _ in rules:
        if any(pattern.fullmatch(name) for name in above):
            ignored = ignores
    return ignored


def _context(folder: Path, *, prune: bool) -> Iterator[str]:
    """Files and links that Docker sends. Its older engine prunes: it does not enter an ignored folder unless a `!` rule
    begins with the folder's path; BuildKit looks everywhere."""
    rules = _rules((folder / ".dockerignore").read_text())
    for place, folders, files in os.walk(folder):
        here = Path(place).relative_to(folder)
        for name in list(folders):
            path = (here / name).as_posix()
            wanted = any(not ignores and f"{words}/".startswith(f"{path}/") for _, ignores, words in rules)
            if (folder / path).is_symlink():
                files.append(name)
            elif prune and _ignored(path, rules) and not wanted:
                folders.remove(name)
        yield from (path for name in files if not _ignored(path := (here / name).as_posix(), rules))


@pytest.mark.parametrize("prune", [True, False])
def test_context_of_images_has_the_product_and_nothing_of_the_user(tmp_path: Path, prune: bool) -> None:
    dirt = make_dirty_tree(tmp_path)
    (tmp_path / "mine.py").write_text("TOKEN = 'secret'\n")
    sent = set(_context(tmp_path, prune=prune))
    assert sent & dirt == set()
    tracked = {name for name in tracked_files() if name.split("/")[0] in ("superworkflow", *ROOMS)}
    assert sent <= tracked
    wanted = {name for name in tracked if name.endswith(READ_BY_IMAGES) and not name.endswith("README.md")}
    assert wanted | {f"superworkflow/{room}" for room in ROOMS} <= sent
