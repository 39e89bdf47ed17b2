"""The platform knows no single superworkflow: words of one occur only where they mean something else."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("infra", "sweeps", "dashboards", "superworkflow")
OF_STAGES = ("superworkflow/images/", "superworkflow/loader/")
"""Packages that serve stages: what is compiled and imported while images are built, and a reader of their datasets."""
WORDS = re.compile("node2vec|walk|edges|embedding|word2vec|labels", re.IGNORECASE)
GENERIC = (
    "walk_files", "ast.walk", "os.walk",
    # Kubernetes and Prefect have labels, which a launcher attaches to what it starts.
    "labelSelector", "update_flow_run_labels", "job_labels", "run.labels", "call.labels", "settings.labels",
    "stage.labels",
    "labels: Mapping[str, str]", "labels: dict[str, str]", "labels, annotations = ", "labels = ", "labels=labels",
    "labels.get(", "labels.items()", "dict(labels)", "**labels", ", labels)", '"labels": labels', '"labels":',
    '["labels"]', '"Labels"', "matchLabels", "_labels(", "Labels that a node must have", "carry the labels",
    'get("labels")', "/metadata/labels/", "labels: {title: Labels", "{{ labels }}", "  labels:",
    "More labels of the Jobs", "Labels that the cluster gives",
    "Labels by which a Job is found", "Node labels", "Additional labels of Jobs", "a node with the labels it selects",
    "no node has the labels", "has the labels and owners", "by its labels and owners",
    # Commands that make random graphs and describe tables.
    '"--edges"', "number of edges of er", '("nodes", "edges")', '("nodes", "edges", "scale")', "options.edges",
    'total, "edges"', "tables of nodes and edges", '"a graph needs edges"', "--edges S",
    "for string labels",
)  # fmt: skip
"""Expressions in which the words are not the domain's."""


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    """Place and text of each line of the rooms' own files."""
    for path in sorted(folder.rglob("*")):
        if (
            path.relative_to(ROOT).as_posix().startswith(OF_STAGES)
            or "__pycache__" in path.parts
            or not path.is_file()
            or path.suffix in (".pyc", ".nbi", ".nbc")
        ):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line


def _found(line: str) -> list[str]:
    for each in GENERIC:
        line = line.replace(each, "")
    return WORDS.findall(line)


@pytest.mark.parametrize("room", ROOMS)
def test_no_word_of_a_single_superworkflow(room: str) -> None:
    found = [f"{place}: {line.strip()}" for place, line in _lines(ROOT / room) if _found(line)]
    assert found == []


@pytest.mark.parametrize("line", ["walk: {engine: spark}", "the edges of", "labels of vertices", "labels_of(nodes)"])
def test_the_words_are_seen(line: str) -> None:
    assert _found(line)
