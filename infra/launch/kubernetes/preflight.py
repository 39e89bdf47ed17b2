"""Checks before a run on Kubernetes that the cluster can do what the profile asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import LEAST, Placement, Profile
from superworkflow.infra.contract.resources import Group, Resources, format_bytes
from superworkflow.infra.engines import engine, engines
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes.api import ApiError, Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.engines.base import engine_on_cluster
from superworkflow.infra.launch.kubernetes.job_admin import remove_job
from superworkflow.infra.launch.kubernetes.job_follower import JobFollower
from superworkflow.infra.launch.kubernetes.job_manifest import job_manifest
from superworkflow.infra.launch.kubernetes.permissions import Check, own_right
from superworkflow.infra.launch.kubernetes.pod_spec import node_selector, quantities
from superworkflow.infra.launch.kubernetes.quantities import quantity, shown
from superworkflow.infra.launch.kubernetes.quotas import quota_check
from superworkflow.infra.storage.location import Location

RIGHTS = (
    ("batch", "jobs", "", ("create", "get", "list", "patch", "delete")),
    ("", "pods", "", ("get", "list", "watch", "delete")),
    ("", "pods", "log", ("get",)),
    ("", "events", "", ("list",)),
)
"""Permissions that a launcher needs in its namespace: API group, resource, subresource, verbs."""


async def preflight(api: KubernetesApi, profile: Profile, store: str) -> list[Check]:
    """Check everything that a run needs; a small Job for each image starts it and writes to the store from inside.

    Args:
        api: the cluster.
        profile: what a run would use.
        store: URI of the store.
    """
    settings = profile.kubernetes
    version = await api.get("/version") or {}
    checks = [Check("cluster", True, f"{api.server}, Kubernetes {version.get('gitVersion', '?')}, {api.namespace}")]
    checks += await asyncio.gather(*(own_right(api, *right) for right in RIGHTS))
    for name in dict.fromkeys(each.engine for each in _placements(profile).values() if _groups(each)):
        checks += await engine_on_cluster(name).checks(api, settings)
    checks += await _sizes(api, profile)
    checks += await _quotas(api, profile)
    where = Location.of(store)
    if where.local_path is not None and not settings.covers(where.uri):
        detail = "this folder is not visible to pods; use s3://bucket/prefix, or name it in kubernetes.volumes"
        return [*checks, Check("store", False, f"{where.uri}: {detail}")]
    idle = idle_images(profile)
    named = dict.fromkeys([*settings.images.values(), *(p.image for p in _placements(profile).values() if p.image)])
    images = [image for image in named if image not in idle]
    if not named:
        checks.append(Check("images", False, "the profile names none under kubernetes.images"))
    return [*checks, *await asyncio.gather(*(_image(api, settings, image, where.uri) for image in images))]


def idle_images(profile: Profile) -> set[str]:
    """Images that the profile names and that none of its stages runs: for GPUs, other engines and deployed flows."""
    placements, images = _placements(profile).values(), profile.kubernetes.images
    idle = {"flow"}
    if not any(placement.resources.gpu.count for placement in placements):
        idle |= {kind for kind in images if kind.endswith("-cuda")}
    used_engines = {placement.engine for placement in placements}
    idle |= {each.image for each in engines() if each.image and each.name not in used_engines}
    used = {image for kind, image in images.items() if kind not in idle} | {each.image for each in placements}
    return {images[kind] for kind in idle if kind in images} - used


def _groups(placement: Placement) -> dict[str, Group]:
    return engine(placement.engine).groups(placement.resources)


def _placements(profile: Profile) -> dict[str, Placement]:
    return {"default": profile.default, **profile.stages}


async def _sizes(api: KubernetesApi, profile: Profile) -> list[Check]:
    try:
        nodes = await api.items("/api/v1/nodes")
    except ApiError as error:
        return [Check("nodes", None, f"not permitted to list them ({error.status}), so sizes were not compared")]
    checks = []
    for name, placement in _placements(profile).items():
        settings = placement.on(profile.kubernetes)
        if placement.auto and engine(placement.engine).sized_by_estimate:
            checks.append(_largest(nodes, name, placement, settings))
            continue
        lacking = lacks(nodes, placement.resources, settings)
        size = f"{placement.resources.cpu:g} CPU, {format_bytes(placement.resources.memory)}"
        if gpu := placement.resources.gpu.count:
            size += f", {gpu} GPU"
        checks.append(Check(f"size: {name}", lacking is None, lacking or size))
        for role, group in _groups(placement).items():
            lacking = lacks_group(nodes, group, settings)
            size = f"{group.largest} × {group.cpu:g} CPU, {format_bytes(group.memory)}"
            checks.append(Check(f"size: {role}s of {name}", lacking is None, lacking or size))
    return checks


def lacks_group(nodes: Sequence[Json], group: Group, settings: KubernetesSettings) -> str | None:
    """Why the members of a group could not all run at once, were the cluster empty; None when they could."""
    if (lacking := lacks(nodes, group.each, settings)) is not None:
        return lacking
    needs, fit = _needs(group.each, settings), 0
    for node in _selected(nodes, node_selector(settings, group.each.gpu)):
        has = node["status"].get("allocatable", {})
        fit += int(min(quantity(has.get(name, "0")) / need for name, need in needs.items()))
    if fit < group.largest:
        return f"only {fit} of {group.largest} fit at once: {group.cpu:g} CPU, {format_bytes(group.memory)} each"
    return None


def _needs(resources: Resources, settings: KubernetesSettings) -> dict[str, float]:
    """Requirements of a node, by Kubernetes' names."""
    return {name: quantity(text) for name, text in quantities(settings, resources)["requests"].items()}


def _selected(nodes: Sequence[Json], labels: Mapping[str, str]) -> list[Json]:
    return [node for node in nodes if labels.items() <= (node["metadata"].get("labels") or {}).items()]


def _largest(nodes: Sequence[Json], name: str, placement: Placement, settings: KubernetesSettings) -> Check:
    """Check of sizes that follow from the graph: would the largest possible one fit?"""
    caps = {"cpu": settings.cpu_cap, "memory": settings.memory_cap}
    largest = placement.resources.model_copy(update={kind: caps[kind] for kind in placement.auto})
    lacking = lacks(nodes, largest, settings)
    if lacking is None:
        return Check(f"size: {name}", True, "chosen from the graph's size; the caps fit")
    if least_lacking := lacks(nodes, _smallest(placement), settings):
        return Check(f"size: {name}", False, least_lacking)
    detail = "chosen from the graph's size, see `plan`; at the profile's caps it would fit no node"
    return Check(f"size: {name}", None, f"{detail}: {lacking}")


def _smallest(placement: Placement) -> Resources:
    """Resources of a stage, with the minimum of those that are chosen from the graph's size."""
    return placement.resources.model_copy(update={kind: LEAST[kind] for kind in placement.auto})


async def _quotas(api: KubernetesApi, profile: Profile) -> list[Check]:
    """Checks of the pods of each placement against the namespace's quotas and limit ranges."""
    core = f"/api/v1/namespaces/{api.namespace}"
    try:
        quotas, ranges = await api.items(f"{core}/resourcequotas"), await api.items(f"{core}/limitranges")
    except ApiError as error:
        return [Check("quotas", None, f"not permitted to list them ({error.status}), so sizes were not compared")]
    checks = []
    for name, placement in _placements(profile).items() if quotas or ranges else ():
        pods = [(1, _smallest(placement)), *((group.largest, group.each) for group in _groups(placement).values())]
        checks.append(quota_check(f"quotas: {name}", quotas, ranges, pods, placement.on(profile.kubernetes)))
    return checks


def lacks(nodes: Sequence[Json], resources: Resources, settings: KubernetesSettings) -> str | None:
    """Why no node could ever take a stage of this size, were it empty; None when one could."""
    wanted = node_selector(settings, resources.gpu)
    selected = _selected(nodes, wanted)
    if not selected:
        return f"no node has the labels {wanted}" if wanted else "the cluster has no node"
    needs = _needs(resources, settings)
    best: dict[str, float] = {}
    for node in selected:
        has = {name: quantity(node["status"].get("allocatable", {}).get(name, "0")) for name in needs}
        if all(has[name] >= need for name, need in needs.items()):
            return None
        best = {name: max(best.get(name, 0.0), value) for name, value in has.items()}
    short = [f"{name} {shown(name, needs[name])} of {shown(name, best[name])}" for name in needs
             if needs[name] > best[name]]  # fmt: skip
    return f"no node is large enough: {', '.join(short) or 'no single node has all of it'}"


async def _image(api: KubernetesApi, settings: KubernetesSettings, image: str, store: str) -> Check:
    quick = settings.model_copy(
        update={
            "deadline_s": 120,
            "schedule_patience_s": min(30.0, settings.schedule_patience_s),
            "start_patience_s": min(60.0, settings.start_patience_s),
        }
    )
    manifest = probe_manifest(quick, image, store)
    name = manifest["metadata"]["name"]
    try:
        await api.create(api.jobs, manifest)
        ended = await JobFollower(api, quick, name, "check", lambda event: None).follow()
    except SuperworkflowError as error:
        return Check(f"image: {image}", False, str(error))
    finally:
        await remove_job(api, name)
    if ended.final is not None and ended.final["event"] == "error":
        return Check(f"image: {image}", False, str(ended.final["message"]))
    if ended.diagnosis is not None:
        return Check(f"image: {image}", False, f"{ended.diagnosis.summary}. {ended.diagnosis.resolution}")
    started = ended.figures.get("start_s", 0.0)
    return Check(f"image: {image}", True, f"starts in {started:.1f} s and writes to the store {store}")


def probe_manifest(settings: KubernetesSettings, image: str, store: str) -> Json:
    """The Job that starts an image as a stage's would be, and writes to the store."""
    resources = Resources(cpu=0.1, memory=512 << 20)
    call = StageCall("check", "check", {}, {}, f"{store}/check/none", Placement(image=image, resources=resources))
    manifest = job_manifest(call, settings, resources, launcher="check")
    pod = manifest["spec"]["template"]["spec"]
    pod["containers"][0]["args"] = ["probe", "--store", store]
    for found in engines():
        of_engine = found.image and image == settings.images.get(found.image)
        if of_engine and (account := engine_on_cluster(found.name).account(settings)):
            pod["serviceAccountName"] = account
    return manifest
