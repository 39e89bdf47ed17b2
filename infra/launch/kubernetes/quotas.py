"""Quotas and limit ranges of a namespace against the pods that a profile asks for: pure functions of API objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.kubernetes.api import Json
from superworkflow.infra.launch.kubernetes.permissions import Check
from superworkflow.infra.launch.kubernetes.pod_spec import quantities
from superworkflow.infra.launch.kubernetes.quantities import quantity, shown

_OTHER_PODS = {"Terminating", "BestEffort", "PriorityClass", "CrossNamespacePodAffinity"}
"""Scopes of quotas that may not count a stage's pods: they have requests, and no deadline of their own."""

Pods = Sequence[tuple[int, Resources]]
"""Numbers and sizes of the pods of one stage: its own, and the most members of each group."""


def quota_check(
    name: str, quotas: Sequence[Json], ranges: Sequence[Json], pods: Pods, settings: KubernetesSettings
) -> Check:
    """Check that a stage's pods are admitted; `ok` is None where they would wait until other pods end.

    Args:
        name: name of the check.
        quotas: `ResourceQuota` objects of the namespace.
        ranges: its `LimitRange` objects.
        pods: pods that the stage has at once.
        settings: the profile's `kubernetes` part.
    """
    refused = list(dict.fromkeys(each for _, size in pods for each in _out_of_range(ranges, size, settings)))
    wanted = _totals(ranges, pods, settings)
    queued = []
    for quota in quotas:
        if _scopes(quota) & _OTHER_PODS:
            continue
        title = f"quota {quota['metadata']['name']}"
        status = quota.get("status") or {}
        for key, text in (quota.get("spec") or {}).get("hard", {}).items():
            resource = key if key in wanted else f"requests.{key}"
            if key == "limits.cpu" and not wanted.get(key):
                refused.append(f"{title} requires a CPU limit: set `kubernetes.cpu_limit`, such as 1")
            elif wanted.get(resource, 0) > quantity(text):
                refused.append(f"{key} {shown(key, wanted[resource])} of {shown(key, quantity(text))} in {title}")
            elif (free := quantity(text) - quantity((status.get("used") or {}).get(key, 0))) < wanted.get(resource, 0):
                queued.append(f"{key} {shown(key, wanted[resource])} of {shown(key, free)} free in {title}")
    if refused:
        return Check(name, False, "; ".join(refused))
    if queued:
        return Check(name, None, f"would wait for other Jobs: {'; '.join(queued)}")
    return Check(name, True, ", ".join(each["metadata"]["name"] for each in (*quotas, *ranges)))


def _scopes(quota: Json) -> set[str]:
    spec = quota.get("spec") or {}
    selected = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return {*(spec.get("scopes") or ()), *(each.get("scopeName") for each in selected)}


def _container_ranges(ranges: Sequence[Json]) -> Iterator[tuple[str, Json]]:
    """Name of the object and one of its entries for containers or pods, which have one container here."""
    for each in ranges:
        for entry in (each.get("spec") or {}).get("limits") or ():
            if entry.get("type") in ("Container", "Pod"):
                yield f"limit range {each['metadata']['name']}", entry


def _sizes(ranges: Sequence[Json], size: Resources, settings: KubernetesSettings) -> tuple[Json, Json]:
    """Requests and limits of a pod after the defaults of limit ranges."""
    own = quantities(settings, size)
    requests, limits = dict(own["requests"]), dict(own["limits"])
    for _, entry in _container_ranges(ranges):
        limits = {**(entry.get("default") or {}), **limits}
        requests = {**(entry.get("defaultRequest") or {}), **requests}
    return requests, limits


def _totals(ranges: Sequence[Json], pods: Pods, settings: KubernetesSettings) -> dict[str, float]:
    """Amounts that the pods take together, by the names that quotas have for them."""
    totals: dict[str, float] = defaultdict(float)
    for count, size in pods:
        requests, limits = _sizes(ranges, size, settings)
        totals["pods"] += count
        totals["count/pods"] += count
        for prefix, amounts in (("requests", requests), ("limits", limits)):
            for resource, value in amounts.items():
                totals[f"{prefix}.{resource}"] += count * quantity(value)
    totals["count/jobs.batch"] = 1
    return totals


def _out_of_range(ranges: Sequence[Json], size: Resources, settings: KubernetesSettings) -> Iterator[str]:
    """Reasons for which a limit range refuses a pod."""
    requests, limits = _sizes(ranges, size, settings)
    for title, entry in _container_ranges(ranges):
        for resource, text in requests.items():
            request = quantity(text)
            limit = quantity(limits[resource]) if resource in limits else None
            if limit is not None and limit < request:
                remedy = ": set `kubernetes.cpu_limit`, such as 1" if resource == "cpu" else ""
                yield f"{title} limits {resource} to {shown(resource, limit)}, below {shown(resource, request)}{remedy}"
                continue
            most, least = (entry.get(kind) or {} for kind in ("max", "min"))
            if resource in most and (limit is None or limit > quantity(most[resource])):
                has = "without a limit" if limit is None else shown(resource, limit)
                yield f"{resource} {has}, above the {shown(resource, quantity(most[resource]))} of {title}"
            if resource in least and request < quantity(least[resource]):
                fewest = shown(resource, quantity(least[resource]))
                yield f"{resource} {shown(resource, request)}, below the {fewest} of {title}"
            ratio = quantity((entry.get("maxLimitRequestRatio") or {}).get(resource, 0))
            if ratio and (limit is None or limit > ratio * request):
                yield f"{resource}: {title} wants a limit of at most {ratio:g} times the request"
