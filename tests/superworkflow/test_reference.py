"""The reference pages: those made from the code are current, and what is written by hand holds."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from superworkflow.__main__ import COMMANDS, main
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.profile import load_profile, profile_names
from superworkflow.reference import NAMED, ROOT, pages, profile_schema

FOLDER = ROOT / "infra" / "profiles"


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_generated_files_are_current(path: Path) -> None:
    assert path.read_text() == pages()[path], "run `make docs`"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_on_the_page(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    own = page.partition(f"\n## {command}\n")[2].partition("\n## ")[0]
    if command in NAMED:
        own += page.partition("## What to run")[2].partition("\n## ")[0] + page.partition("## Superworkflow")[2]
    with pytest.raises(SystemExit):
        main([command, *(["node2vec"] if command in NAMED else []), "--help"])
    usage = capsys.readouterr().out.partition("\n\n")[0]
    options = set(re.findall(r"--[a-z-]+", usage))
    assert options
    assert {option for option in options if not re.search(rf"{option}\b", own)} == set()


def test_every_key_of_a_profile_says_what_it_means() -> None:
    schema = profile_schema()
    for name, part in {"profile": schema, **schema["$defs"]}.items():
        for key, entry in part["properties"].items():
            assert entry.get("description"), f"{name}.{key}"


@pytest.mark.parametrize("name", profile_names())
def test_shipped_profiles_fit_the_schema(name: str) -> None:
    Draft202012Validator(profile_schema()).validate(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))


def _page_example() -> dict[str, Any]:
    found = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "profiles.md").read_text(), re.DOTALL)
    assert found
    example: dict[str, Any] = yaml.safe_load(found[1])
    return example


FAULTS: list[dict[str, Any]] = [
    {"launchr": "process"},
    {"concurrency": 0},
    {"default": {"engine": "flink"}},
    {"default": {"resources": {"memory": "4 gigs"}}},
    {"default": {"resources": {"cpu": "many"}}},
    {"stages": {"walk": {"resources": {"executors": {"count": 0, "cpu": 1, "memory": "1Gi"}}}}},
    {"kubernetes": {"volumes": [{"claim": "shared"}]}},
]


@pytest.mark.parametrize("values", [_page_example(), *FAULTS], ids=str)
def test_schema_and_loading_agree(values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    valid = Draft202012Validator(profile_schema()).is_valid(values)
    assert valid == (values not in FAULTS)
    if valid:
        assert load_profile(str(path)).placement("holdout-walk", "walk").resources.memory == 16 << 30
    else:
        with pytest.raises(UserError):
            load_profile(str(path))


def test_digest_is_computed_as_the_page_of_the_store_says(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,é\n")
    stage = [sys.executable, "-m", "superworkflow", "stage", "index", "--input", "edges=edges.csv", "--output", "made"]
    subprocess.run(stage, cwd=tmp_path, env=os.environ, check=True, capture_output=True, timeout=120)
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "store.md").read_text(), re.DOTALL)
    assert found
    manifest = tmp_path / "made" / "manifest.json"
    command = [sys.executable, "-c", found[1]]
    subprocess.run(command, cwd=manifest.parent, check=True, timeout=60)
    manifest.write_text(manifest.read_text().replace('"vertices": 4', '"vertices": 5'))
    assert subprocess.run(command, cwd=manifest.parent, capture_output=True, timeout=60).returncode
