"""The second superworkflow's fits as worker groups."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.second.conftest import Second

WORKERS = "{cpu: 0.5, memory: 1Gi, workers: {count: 3, cpu: 1, memory: 1Gi}}"


@pytest.mark.slow
def test_workers_make_the_same_datasets(second: Second, tmp_path: Path) -> None:
    second("run", "--no-tracking")
    profile = tmp_path / "group.yaml"
    profile.write_text(f"stages: {{fit: {{engine: workers, resources: {WORKERS}}}}}")
    group = replace(second, store=tmp_path / "store")
    assert "3 × worker" in group("plan", "--profile", str(profile)).out
    ran = group("run", "--no-tracking", "--json", "--profile", str(profile)).document
    for stage in ("fit", "curved", "choose"):
        there = Path(next(each["output"] for each in ran["stages"] if each["name"] == stage))
        here = second.store / there.relative_to(group.store)
        ours, theirs = (json.loads((folder / "manifest.json").read_text()) for folder in (here, there))
        assert ours["files"] == theirs["files"]
        assert ours["engine"] != theirs["engine"] or stage == "choose"
