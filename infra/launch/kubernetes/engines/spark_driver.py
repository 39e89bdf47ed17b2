"""A stage's Job as the driver of a Spark cluster of its own.

The stage's pod is the driver in client mode. It asks the cluster for its executors, which belong to its pod and so end
with it. Their pods come from a template that travels with the driver's own pod, in an annotation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Group, format_bytes
from superworkflow.infra.launch.kubernetes.pod_group import MEMBER_OF, ROLE
from superworkflow.infra.launch.kubernetes.pod_spec import (
    container_spec,
    cpu_quantity,
    environment,
    pod_spec,
    volumes_and_mounts,
)
from superworkflow.infra.launch.kubernetes.pod_status import CONTAINER

Json = dict[str, Any]

ROLE_NAME = "executor"

LEAST_HEAP = 480 << 20
"""Bytes of heap below which Spark refuses to start: 450 MiB, and what Java does not count of a heap."""
LEAST_MEMORY = 768 << 20
"""Bytes of memory below which a Java process and one Python worker do not fit an executor."""
HEAP_SHARE = 0.4
"""Share of an executor's memory for Java's heap. Its Python workers get a half (`python_memory` of `session`), and
Java's memory outside of the heap gets the rest."""

POD_VERBS = ("create", "get", "list", "watch", "patch", "delete")
"""Permissions of the drivers' account on pods in its namespace; it needs no others."""

_FOLDER = "/etc/superworkflow"
_TEMPLATE, _USERS = "executor.json", "passwd"
_ANNOTATIONS = {_TEMPLATE: "superworkflow/executor-pod", _USERS: "superworkflow/passwd"}


def make_driver(
    manifest: Json, settings: KubernetesSettings, executors: Group, image: str, labels: Mapping[str, str]
) -> None:
    """Make the pod of a Job a driver: its account and token, Spark's settings, and the template of its executors.

    Args:
        manifest: the Job, changed in place.
        settings: the profile's `kubernetes` part.
        executors: how many, and how large each.
        image: image of the stage, which its executors run as well.
        labels: of the stage's pods, which its executors get as well.

    Raises:
        UserError: no account for drivers is named, or the executors are too small for Spark.
    """
    if settings.spark_service_account is None:
        raise UserError(
            "a Spark stage needs a service account that may create pods",
            where="profile: kubernetes.spark_service_account",
            remedy="Name one: infra/kubernetes/rbac.yaml creates superworkflow-spark",
        )  # fmt: skip
    job, template = manifest["metadata"]["name"], manifest["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    pod |= {"serviceAccountName": settings.spark_service_account, "automountServiceAccountToken": True}
    executor = executor_template(settings, {**labels, MEMBER_OF: job, ROLE: ROLE_NAME})
    _show(template, settings, {_TEMPLATE: json.dumps(executor)})
    container["workingDir"] = "/tmp"
    container["env"] += [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in (
            ("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace"), ("POD_IP", "status.podIP"),
        )
    ]  # fmt: skip
    spark = json.dumps(spark_settings(settings, executors, image, job))
    container["env"].append({"name": "SUPERWORKFLOW_SPARK_CONF", "value": spark})


def spark_settings(settings: KubernetesSettings, executors: Group, image: str, job: str) -> dict[str, str]:
    """Spark's configuration of a driver in a pod; `$(NAME)` is filled in by Kubernetes.

    Raises:
        UserError: the executors are too small.
    """
    cores = max(1, int(executors.cpu))
    heap, overhead = memory_split(executors.memory)
    limit = cpu_quantity(executors.cpu * settings.cpu_limit) if settings.cpu_limit else None
    return {
        "spark.master": "k8s://https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)",
        "spark.kubernetes.namespace": "$(POD_NAMESPACE)",
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.driver.host": "$(POD_IP)",  # by address: a name would need the cluster's DNS and a service
        "spark.authenticate": "true",
        **allocation_settings(executors),
        "spark.executor.cores": str(cores),
        "spark.executor.memory": f"{heap >> 20}m",
        "spark.executor.memoryOverhead": f"{overhead >> 20}m",
        "spark.default.parallelism": str(2 * cores * executors.largest),
        "spark.sql.shuffle.partitions": str(2 * cores * executors.largest),
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.container.image.pullPolicy": settings.image_pull_policy,
        "spark.kubernetes.executor.request.cores": cpu_quantity(executors.cpu),
        **({"spark.kubernetes.executor.limit.cores": limit} if limit else {}),
        "spark.kubernetes.executor.podNamePrefix": job,
        "spark.kubernetes.executor.podTemplateFile": f"{_FOLDER}/{_TEMPLATE}",
        "spark.kubernetes.executor.podTemplateContainerName": CONTAINER,
        # The launcher reads an ended executor's exit status and usage, and deletes it.
        "spark.kubernetes.executor.deleteOnTermination": "false",
        # What the driver then need not have the right to.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }


def allocation_settings(executors: Group) -> dict[str, str]:
    """Spark's settings of how many executors there are.

    Elastic ones are `count` at first and at least. While tasks have waited for a second, more are asked for, twice as
    many each time, up to `largest`; one that is idle for a minute ends, unless it holds what a shuffle has written:
    nobody else would have that.
    """
    count = str(executors.count)
    if not executors.elastic:
        return {"spark.dynamicAllocation.enabled": "false", "spark.executor.instances": count}
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": count,
        "spark.dynamicAllocation.initialExecutors": count,
        "spark.dynamicAllocation.maxExecutors": str(executors.largest),
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
        "spark.dynamicAllocation.executorIdleTimeout": "60s",
    }


def memory_split(memory: int) -> tuple[int, int]:
    """Bytes of Java's heap and of its overhead within an executor's memory, in whole MiB.

    The work is done by Python with NumPy and Arrow; Java only moves rows. So the heap gets two fifths, or the least
    with which Spark starts. Half is what stages count on for their Python workers (`session`), and a tenth
    is for Java's own code, threads and buffers. The workers have no limit of their own
    (`spark.executor.pyspark.memory`): that one is on address space, and a mapped graph would count as memory in use.

    Raises:
        UserError: too little for Spark.
    """
    if memory < LEAST_MEMORY:
        raise UserError(
            "too little memory for a Spark executor", where="profile: resources.executors.memory",
            value=format_bytes(memory), remedy=f"Give each executor {format_bytes(LEAST_MEMORY)} or more",
        )  # fmt: skip
    heap = max(LEAST_HEAP, int(HEAP_SHARE * memory)) >> 20
    return heap << 20, ((memory >> 20) - heap) << 20


def executor_template(settings: KubernetesSettings, labels: Mapping[str, str]) -> Json:
    """Pod of an executor but for what Spark fills in: image, size, environment of Spark, and its own command.

    Spark gives the container the argument `executor`, which is a command of ours.
    """
    volumes, mounts = volumes_and_mounts(settings)
    # One thread for each of its Python processes, of which there is one a core; Numba sees the cores of the whole node.
    variables = {"NUMBA_NUM_THREADS": "1", **environment(settings, threads=1)}
    container = container_spec(settings, variables, mounts)
    container |= {"name": CONTAINER, "workingDir": "/tmp"}
    template: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": dict(labels), "annotations": dict(settings.annotations)},
        "spec": pod_spec(settings, container, volumes),
    }
    _show(template, settings, {})
    return template


def _show(pod: Json, settings: KubernetesSettings, files: Mapping[str, str]) -> None:
    """Show files in a pod, and a user database: Java refuses to run as a user without a name, which any image lacks."""
    shown = {_USERS: f"stage:x:{settings.user}:{settings.user}::/tmp:/bin/sh\n", **files}
    pod["metadata"].setdefault("annotations", {}).update({_ANNOTATIONS[name]: text for name, text in shown.items()})
    items = [
        {"path": name, "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{_ANNOTATIONS[name]}']"}}
        for name in shown
    ]
    pod["spec"]["volumes"].append({"name": "superworkflow", "downwardAPI": {"items": items}})
    pod["spec"]["containers"][0]["volumeMounts"] += [
        {"name": "superworkflow", "mountPath": _FOLDER, "readOnly": True},
        {"name": "superworkflow", "mountPath": "/etc/passwd", "subPath": _USERS, "readOnly": True},
    ]
