"""Ends of runs in the record: failed, cancelled, with their process or without a sign."""

import dataclasses
import json
import subprocess
import sys
import time

import pytest
from mlflow import MlflowClient

from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.process.heartbeat import BEAT, GRACE_SECONDS, OWNER
from superworkflow.infra.tracking.dead_runs import close_dead_runs, give_sign
from superworkflow.infra.tracking.history import find_run
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker
from superworkflow.infra.tracking.records import RunRecord, StageRecord
from superworkflow.infra.tracking.tags import SUPERWORKFLOW_TAG
from tests.infra.tracking.tracked import staged


def test_failed_run(shared_uri: str) -> None:
    tracker = MlflowTracker(shared_uri)
    tracker.begin("fails", "toy", {}, {})
    tracker.fail("stage walk failed: killed")
    run = find_run(shared_uri, "fails")
    assert run.status == "FAILED"
    assert MlflowClient(shared_uri).get_run(run.run_id).data.tags["superworkflow.error"] == "stage walk failed: killed"


def _failed(reason: str) -> StageRecord:
    attempts = ({"memory_bytes": 1 << 30, "seconds": 5.0, "cost_usd": 0.05, "reason": reason, "uid": ""},)
    record = staged("walk", 5)
    return dataclasses.replace(record, state="failed", rows=0, attempts=attempts, error="stage walk failed: no more.")


@pytest.mark.parametrize(("reason", "status"), [("out of memory", "FAILED"), ("cancelled", "KILLED")])
def test_failed_stage_and_what_it_cost(shared_uri: str, reason: str, status: str) -> None:
    tracker = MlflowTracker(shared_uri)
    run = RunRecord(tracker.begin(f"ends {reason}", "toy", {}, {}), "flow", "/store", "fails", "toy")
    run.stages += [staged("index", 3), _failed(reason)]
    for stage in run.stages:
        tracker.stage(stage)
    run.close(load_prices(), 9.0)
    (tracker.fail if status == "FAILED" else tracker.stop)("stage walk failed", run)
    found = find_run(shared_uri, run.run_id)
    assert found.status == status
    note = MlflowClient(shared_uri).get_run(run.run_id).data.tags["mlflow.note.content"]
    assert note.startswith("**stage walk failed**\n\n")
    assert "| walk | failed | 5.0 s |" in note
    assert found.totals["cost_usd"] == pytest.approx(0.03 + 0.05)
    assert found.totals["stages_failed"] == 1
    assert found.stages["walk"] == {
        "seconds": 5.0,
        "cost_usd": 0.05,
        "cached": 0.0,
        "peak_memory_bytes": 1 << 20,
    }
    client = MlflowClient(shared_uri)
    experiment = client.get_run(run.run_id).info.experiment_id
    (walk,) = client.search_runs(
        [experiment], f"tags.mlflow.parentRunId = '{run.run_id}' and tags.`superworkflow.stage` = 'walk'"
    )
    assert walk.info.status == status
    assert walk.data.tags["superworkflow.error"] == "stage walk failed: no more."
    assert json.loads(walk.data.tags["superworkflow.attempts"])[0]["cost_usd"] == 0.05
    assert walk.data.params["resources.memory"]


DIES = """
import os, sys
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker
tracker = MlflowTracker(sys.argv[1])
run = tracker.begin("dies", "toy", {}, {})
client, experiment = tracker.handle()
client.create_run(experiment, run_name="index", tags={"mlflow.parentRunId": run, "superworkflow.stage": "index"})
os._exit(9)
"""


def test_run_of_a_dead_process_is_closed_and_that_of_a_living_one_is_not(shared_uri: str) -> None:
    living = MlflowTracker(shared_uri)
    own = living.begin("lives", "toy", {}, {})
    assert subprocess.run([sys.executable, "-c", DIES, shared_uri], timeout=200).returncode == 9
    dead = find_run(shared_uri, "dies")  # looking for it closes it
    client = MlflowClient(shared_uri)
    assert dead.status == "FAILED"
    assert client.get_run(dead.run_id).data.tags["superworkflow.error"] == "its process died"
    experiment = client.get_run(own).info.experiment_id
    (stage,) = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{dead.run_id}'")
    assert stage.info.status == "FAILED"
    assert all(info.end_time >= info.start_time for info in (stage.info, client.get_run(dead.run_id).info))
    assert find_run(shared_uri, "lives").status == "RUNNING"
    living.stop("interrupted")
    assert find_run(shared_uri, "lives").status == "KILLED"


def test_run_of_another_machine_is_closed_when_it_has_given_no_sign_for_long(shared_uri: str) -> None:
    client, experiment = MlflowTracker(shared_uri).handle()

    def begun(name: str, seconds_ago: float) -> str:
        last = int(time.time() - seconds_ago)
        tags = {OWNER: "elsewhere/1/2/3", BEAT: str(last), SUPERWORKFLOW_TAG: "toy"}
        return str(client.create_run(experiment, (last - 60) * 1000, tags, name).info.run_id)

    fresh, old = begun("fresh", GRACE_SECONDS / 2), begun("old", GRACE_SECONDS * 2)
    assert close_dead_runs(client, experiment) == [old]
    assert client.get_run(fresh).info.status == "RUNNING"
    closed = client.get_run(old)
    assert closed.info.status == "FAILED"
    assert closed.info.end_time == int(closed.data.tags[BEAT]) * 1000, "it ended with its last sign"
    give_sign(client, old)  # it was only cut off
    assert client.get_run(old).info.status == "RUNNING"
    assert "superworkflow.error" not in client.get_run(old).data.tags
