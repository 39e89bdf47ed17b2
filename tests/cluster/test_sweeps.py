"""Trials of a sweep that begin at the same time, on a cluster with its store in a bucket, as a user starts them."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
import yaml

from superworkflow.__main__ import main
from superworkflow.infra.launch.kubernetes.billing_ledger import FOLDER
from superworkflow.infra.storage.location import Location
from tests import warm
from tests.cluster.conftest import Settings

TRIALS = int(os.environ.get("SUPERWORKFLOW_TEST_TRIALS", "2"))
"""All at once; with more, at most four."""
_MOST_S = 280 * TRIALS
SHARED, OWN = ("heterograph", "node_labels", "aggregate", "baselines"), ("train", "infer", "score")


@pytest.mark.slow
@pytest.mark.timeout(_MOST_S + 60)
def test_what_trials_have_in_common_is_computed_once(
    settings: Settings, bucket: str, tmp_path: Path, prefect_api: str
) -> None:
    made, store = tmp_path / "made", f"{bucket}/store"
    size = ["--nodes", "2000", "--edges", "20000", "--width", "16", "--communities", "10"]
    assert main(["generate", "--model", "communities", *size, "--out", str(made)]) == 0
    there = {name: os.environ[name] for name in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")}
    values = {
        "launcher": "kubernetes", "kubernetes": settings(env_secrets=["s3"], env=there).model_dump(),
        "default": {"resources": {"cpu": 0.2, "memory": "1Gi"}},
    }  # fmt: skip
    profile = tmp_path / "cluster.yaml"
    profile.write_text(yaml.safe_dump(values))
    arguments = [
        "sweep", "gnn", "--edges", str(made / "edges.parquet"), "--features", str(made / "features.parquet"),
        "--labels", str(made / "labels.csv"), "--set", "train.model=sage", "train.epochs=3", "train.hidden=16",
        "--trials", str(TRIALS), "--parallel", str(min(TRIALS, 4)), "--pruner", "none", "--study", "together", "--json",
        "--profile", str(profile), "--store", store, "--storage", f"sqlite:///{tmp_path}/study.db",
    ]  # fmt: skip
    environment = {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    done = warm.run(arguments, timeout=_MOST_S, env=os.environ | environment)
    assert done.returncode == 0, done.stderr[-4000:]

    document = json.loads(done.stdout)
    once = dict.fromkeys(SHARED, 1) | dict.fromkeys(OWN, TRIALS)
    assert document["counts"] == {"complete": TRIALS}
    assert document["computed"] == once
    states = Counter((name, each["state"]) for trial in document["trials"] for name, each in trial["stages"].items())
    found = {(name, "cached"): TRIALS - 1 for name in SHARED}
    assert states == {(name, "ran"): count for name, count in once.items()} | found
    # Who finds a stage at work waits for it without a Job of its own.
    jobs = Counter(
        path.split("/")[0] for path in Location.of(f"{store}/{FOLDER}").walk_files() if path.endswith(".json")
    )
    assert jobs == once
    trials = [each for trial in document["trials"] for each in trial["stages"].values()]
    assert all((each["cost_usd"] > 0) == (each["state"] == "ran") for each in trials)
