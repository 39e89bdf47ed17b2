"""Names: one public class of a name in the whole product."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("infra", "tasks", "flows", "sweeps", "dashboards", "superworkflow")


def _twice(modules: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names of public classes that several modules define, given pairs of a module and its text."""
    places = defaultdict(list)
    for module, text in modules:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1}


def test_no_two_public_classes_of_one_name() -> None:
    files = [
        path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if package != "superworkflow" or path.relative_to(ROOT / package).parts[0] not in PACKAGES
    ]
    assert len(files) > 400
    assert _twice((path.relative_to(ROOT).as_posix(), path.read_text()) for path in files) == {}


def test_the_check_sees_a_name_that_is_taken() -> None:
    modules = [("a", "class Batch: ...\nclass _Own: ..."), ("b", "class Batch: ...\nclass _Own: ...")]
    assert _twice(modules) == {"Batch": ["a", "b"]}
