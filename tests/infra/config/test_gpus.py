"""A profile that gives stages GPUs that this machine does not have."""

from pathlib import Path

import pytest

from superworkflow.__main__ import main
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.gpus import check_gpus, visible
from superworkflow.infra.config.profile import Placement

PROFILE = "launcher: process\nstages:\n  publish: {resources: {gpu: {count: 2, type: T4}}}\n"


def test_run_refuses_before_any_stage_and_plan_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the last stage; another launcher's machines are not looked at."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (edges := tmp_path / "edges.csv").write_text("a,b\nb,c\nc,a\n")
    (profile := tmp_path / "mine.yaml").write_text(PROFILE)
    given = ["node2vec", "--edges", str(edges), "--store", str(tmp_path / "store"), "--profile", str(profile)]
    assert main(["run", *given, "--no-tracking"]) == 2
    refused = (
        "profile mine: stages.publish.resources.gpu.count: this machine has no GPU that the stage is to get (got 2)"
    )
    assert refused in capsys.readouterr().err
    assert list((tmp_path / "store").glob("*/*/manifest.json")) == []
    assert main(["plan", *given]) == 0
    assert f"`run` would refuse this: {refused}" in capsys.readouterr().err
    images = "\nkubernetes: {images: {cpu: a/cpu:1, torch: a/torch:1, torch-cuda: a/cuda:1}}\n"
    profile.write_text(PROFILE.replace("process", "kubernetes") + images)
    assert main(["plan", *given]) == 0
    assert "refuse" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listed", "count"),
    [(None, 4), ("", 0), ("2", 1), ("1,0,3", 3), ("0,7,1", 1), ("-1", 0), ("0,0", 1), ("GPU-8f, MIG-2a", 2)],
)
def test_gpus_that_the_environment_leaves(listed: str | None, count: int) -> None:
    assert visible(4, listed) == count


def test_gpus_of_workers_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    each = {"count": 2, "cpu": 1, "memory": "1Gi"}
    roles = {"graph": each, "tensor": {**each, "gpu": {"count": 3}}}
    with pytest.raises(UserError, match=r"stages\.x\.resources\.workers\.tensor\.gpu\.count: .* \(got 6\)"):
        check_gpus(Placement.model_validate({"engine": "workers", "resources": {"workers": roles}}), "stages.x")
    check_gpus(Placement.model_validate({"engine": "workers", "resources": {"workers": {"graph": each}}}), "stages.x")
