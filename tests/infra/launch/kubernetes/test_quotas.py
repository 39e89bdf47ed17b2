"""Quotas and limit ranges against the pods of a stage."""

from typing import Any

import pytest

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.kubernetes.quotas import quota_check

SIZE = Resources(cpu=2, memory=4 << 30)
SMALL = Resources(cpu=1, memory=1 << 30)


def _quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}, "status": {"used": used or {}}}


def _range(**entry: Any) -> dict[str, Any]:
    return {"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Container", **entry}]}}


@pytest.mark.parametrize(
    ("hard", "used", "ok", "words"),
    [
        ({"cpu": "4", "requests.memory": "8Gi", "pods": "3"}, {}, True, "q"),
        ({"requests.cpu": "3999m"}, {}, False, "requests.cpu 4 of 3.999 in quota q"),
        ({"memory": "5Gi"}, {}, False, "memory 6.0 GiB of 5.0 GiB in quota q"),
        ({"limits.memory": "8Gi"}, {"limits.memory": "3Gi"}, None, "limits.memory 6.0 GiB of 5.0 GiB free"),
        ({"pods": "2"}, {}, False, "pods 3 of 2"),
        ({"count/jobs.batch": "1"}, {"count/jobs.batch": "1"}, None, "count/jobs.batch 1 of 0 free"),
        ({"limits.cpu": "100"}, {}, False, "set `kubernetes.cpu_limit`"),
        ({"requests.storage": "1Gi", "services": "0"}, {}, True, ""),
    ],
)
def test_quota(hard: dict[str, str], used: dict[str, str], ok: bool | None, words: str) -> None:
    """A stage and two members need 4 vCPUs and 6 GiB in all."""
    check = quota_check("n", [_quota(hard, used)], [], [(1, SIZE), (2, SMALL)], KubernetesSettings())
    assert (check.ok, words in check.detail) == (ok, True), check.detail


def test_cpu_limits_count_where_the_profile_sets_them() -> None:
    settings = KubernetesSettings(cpu_limit=1.5)
    assert quota_check("n", [_quota({"limits.cpu": "3"})], [], [(1, SIZE)], settings).ok
    assert quota_check("n", [_quota({"limits.cpu": "2.9"})], [], [(1, SIZE)], settings).ok is False


def test_quotas_of_other_pods_do_not_count() -> None:
    other = [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
    for spec in ({"scopes": ["Terminating"]}, {"scopeSelector": {"matchExpressions": other}}):
        assert quota_check("n", [_quota({"pods": "0"}, **spec)], [], [(1, SIZE)], KubernetesSettings()).ok
    assert (
        quota_check("n", [_quota({"pods": "0"}, scopes=["NotBestEffort"])], [], [(1, SIZE)], KubernetesSettings()).ok
        is False
    )


@pytest.mark.parametrize(
    ("entry", "settings", "ok", "words"),
    [
        ({"max": {"cpu": "2", "memory": "4Gi"}, "default": {"cpu": "2"}}, {}, True, "r"),
        ({"max": {"memory": "3Gi"}}, {}, False, "memory 4.0 GiB, above the 3.0 GiB of limit range r"),
        ({"max": {"cpu": "3"}}, {"cpu_limit": 2}, False, "cpu 4, above the 3 of limit range r"),
        ({"max": {"cpu": "3"}}, {}, False, "cpu without a limit, above the 3"),
        ({"min": {"cpu": "3"}}, {}, False, "cpu 2, below the 3 of limit range r"),
        ({"default": {"cpu": "1"}}, {}, False, "limits cpu to 1, below 2: set `kubernetes.cpu_limit`"),
        ({"default": {"cpu": "1"}}, {"cpu_limit": 1}, True, ""),
        ({"maxLimitRequestRatio": {"cpu": "1"}}, {"cpu_limit": 2}, False, "at most 1 times the request"),
    ],
)
def test_limit_range(entry: dict[str, Any], settings: dict[str, Any], ok: bool, words: str) -> None:
    check = quota_check("n", [], [_range(**entry)], [(1, SIZE)], KubernetesSettings.model_validate(settings))
    assert (check.ok, words in check.detail) == (ok, True), check.detail


def test_default_limits_satisfy_a_quota_of_limits() -> None:
    quota = _quota({"limits.cpu": "4"})
    assert quota_check("n", [quota], [_range(default={"cpu": "3"})], [(1, SIZE)], KubernetesSettings()).ok
