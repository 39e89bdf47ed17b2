"""`--servers`: variables of a file, read as a shell does."""

import os
import subprocess
from pathlib import Path

import pytest

from superworkflow.__main__ import main
from superworkflow.infra.base.dotenv import read_environment, servers_file
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import DEFAULT_STORE, default_store

SPECIAL = 'pa$$w@rd: #/%25"x&\\'


def test_as_a_shell_sources_it(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(f"# why\n\nA='{SPECIAL}'\nexport B=\"two words\"\nC=plain  # three\nD=\n")
    found = read_environment(file)
    assert found == {"A": SPECIAL, "B": "two words", "C": "plain", "D": ""}
    shown = subprocess.run(["sh", "-c", '. "$0"; printf "%s|%s|%s|%s" "$A" "$B" "$C" "$D"', file], capture_output=True)
    assert shown.stdout.decode() == "|".join(found.values())


@pytest.mark.parametrize("line", ["A", "A=a b", "A='secret", "1A=secret", "=secret", "A B=secret"])
def test_bad_lines_are_named_without_their_text(tmp_path: Path, line: str) -> None:
    (tmp_path / "env").write_text(f"A=1\n{line}\n")
    with pytest.raises(UserError, match=r"env:2") as raised:
        read_environment(tmp_path / "env")
    assert "secret" not in str(raised.value)


def test_compose_is_beside_the_nearest_compose_file(tmp_path: Path) -> None:
    (inside := tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "docker-compose.yml").touch()
    with pytest.raises(UserError, match=r"Copy \.env\.example"):
        servers_file("compose", inside)
    (tmp_path / ".env").touch()
    assert servers_file("compose", inside) == tmp_path / ".env"
    assert servers_file("other.env", inside) == Path("other.env")


def test_the_example_names_all_that_compose_asks_for() -> None:
    root = Path(__file__).parents[3]
    example = read_environment(root / ".env.example")
    requested = {
        part.partition(":?")[0] for part in (root / "docker-compose.yml").read_text().split("${")[1:] if ":?" in part
    }
    assert {name for name in requested if name.isupper() or "_" in name} <= set(example)
    assert all(not value for name, value in example.items() if "PASSWORD" in name or "SECRET" in name)


def test_every_command_takes_its_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setattr(os, "environ", os.environ.copy())
    file = tmp_path / "team.env"
    file.write_text(f"SUPERWORKFLOW_STORE={tmp_path}/theirs\nMLFLOW_TRACKING_URI=\n")
    assert default_store() == DEFAULT_STORE
    assert main(["models", f"--servers={file}"]) == 2
    assert f"{tmp_path}/theirs/mlflow" in capsys.readouterr().err
    assert default_store() == f"{tmp_path}/theirs"
    assert main(["runs", "--serv", str(file)]) == 2
    assert "in full" in capsys.readouterr().err
