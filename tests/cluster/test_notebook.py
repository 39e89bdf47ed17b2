"""The notebook of `examples/` that needs a cluster, executed from top to bottom."""

from pathlib import Path

import pytest
import yaml

from tests.cluster.conftest import Settings
from tests.examples.test_notebooks import ON_CLUSTER, execute


@pytest.mark.slow
def test_nightly_retraining(
    settings: Settings, shared_folder: Path, prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shared_folder / "notebook"
    store.mkdir()
    store.chmod(0o777)
    images = dict.fromkeys(("cpu", "torch", "flow"), "localhost/busybox:1")
    values = {
        "launcher": "kubernetes", "concurrency": 2, "kubernetes": settings(images=images).model_dump(),
        "default": {"resources": {"cpu": 0.5, "memory": "1Gi"}},
    }  # fmt: skip
    (tmp_path / "my-cluster.yaml").write_text(yaml.safe_dump(values))
    for name, value in {"SUPERWORKFLOW_STORE": str(store), "PREFECT_API_URL": prefect_api}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    shown = [each.get("text/plain", "") for each in execute(ON_CLUSTER, tmp_path)]
    assert shown[-1] == "True"
    versions = next(each for each in shown if "the audit is over" in each)
    assert "current" in versions.splitlines()[1]  # the newest comes first
