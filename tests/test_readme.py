"""Commands of the README exist: with their options, make targets and files."""

import re
import shlex
from pathlib import Path

import pytest

from superworkflow.__main__ import build_parser
from superworkflow.infra.config.profile import load_profile

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in TEXT.splitlines() if re.match(r"\s{4}(\.venv/bin/)?superworkflow ", line)]


def test_commands_are_found() -> None:
    assert {command.split()[1] for command in COMMANDS} >= {"run", "check", "sweep"}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_understood(command: str) -> None:
    given = shlex.split(command, comments=True)[1:]
    options = build_parser(given).parse_args(given)
    assert options.command == given[0]


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^\s{4}|`)make ([a-z]+)", TEXT, re.MULTILINE))
    assert named
    assert named <= targets


def test_linked_files_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", TEXT) if "://" not in link]
    paths = [path for path in re.findall(r"`([a-z_]+/[\w./-]+)`", TEXT) if not path.startswith("s3")]
    for path in links + paths:
        assert (ROOT / path).exists(), path


def test_the_profile_of_the_diagram_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "profile.yaml").write_text(example)
    profile = load_profile(str(tmp_path / "profile.yaml"))
    assert profile.placement("walk", "walk").engine == "spark"
    assert profile.placement("embed", "embed").engine == "in-process"
