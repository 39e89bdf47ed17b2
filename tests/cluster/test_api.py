"""Objects of the cluster that are made, changed and deleted while others do the same."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from superworkflow.infra.launch.kubernetes import api as api_module
from superworkflow.infra.launch.kubernetes.api import ApiError, Json, KubernetesApi
from tests.cluster.conftest import NAMESPACE, Cluster

PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
HELD = {"finalizers": ["superworkflow/test"]}
"""Keeps an object that is being deleted, as foreground deletion does while something that it owns is there."""


def _body(**metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made-anew", **metadata}}


@pytest.fixture(autouse=True)
def removed(cluster: Cluster) -> Iterator[None]:
    async def remove(api: KubernetesApi) -> None:
        await _let_go(api)
        await api.delete(f"{PATH}/made-anew")

    yield
    cluster.do(remove)


async def _let_go(api: KubernetesApi) -> None:
    await api.change(f"{PATH}/made-anew", [{"op": "add", "path": "/metadata/finalizers", "value": []}])


def _owner(uid: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": uid}


def test_one_that_is_being_deleted_is_made_anew(cluster: Cluster) -> None:
    async def work(api: KubernetesApi) -> tuple[Json, Json, Json | None]:
        first = await api.create(PATH, _body(**HELD))
        await api.delete(f"{PATH}/made-anew")
        making = asyncio.create_task(api.create(PATH, _body()))
        await asyncio.sleep(1)
        assert not making.done()
        await _let_go(api)
        made = await making
        return first, made, await api.get(f"{PATH}/made-anew")

    first, made, there = cluster.do(work)
    assert made["metadata"]["uid"] != first["metadata"]["uid"]
    assert there is not None
    assert there["metadata"]["uid"] == made["metadata"]["uid"]
    assert "deletionTimestamp" not in made["metadata"]


@pytest.mark.parametrize("differs", ["labels", "ownerReferences"])
def test_one_of_another_owner_is_waited_for(cluster: Cluster, differs: str) -> None:
    async def work(api: KubernetesApi) -> tuple[Json, Json]:
        default = await api.get("/api/v1/namespaces/default")
        assert default is not None
        owned: dict[str, Any] = {
            "labels": {"superworkflow/launcher": "another"},
            "ownerReferences": [_owner(default["metadata"]["uid"])],
        }
        first = await api.create(PATH, _body(**{differs: owned[differs]}))
        making = asyncio.create_task(api.create(PATH, _body(labels={"superworkflow/launcher": "this"})))
        await asyncio.sleep(1)
        assert not making.done()
        await api.delete(f"{PATH}/made-anew")
        return first, await making

    first, made = cluster.do(work)
    assert made["metadata"]["uid"] != first["metadata"]["uid"]
    assert made["metadata"]["labels"] == {"superworkflow/launcher": "this"}


def test_a_name_that_stays_taken_is_an_error(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "TAKEN_SECONDS", 1.0)

    async def work(api: KubernetesApi) -> None:
        await api.create(PATH, _body(**HELD))
        await api.delete(f"{PATH}/made-anew")
        with pytest.raises(ApiError, match=r"409: .*already exists"):
            await api.create(PATH, _body())

    cluster.do(work)


def test_one_whose_creation_was_not_answered_is_found_again(cluster: Cluster) -> None:
    async def work(api: KubernetesApi) -> tuple[Json, Json]:
        body = _body(labels={"superworkflow/launcher": "this"})
        return await api.create(PATH, body), await api.create(PATH, body)

    first, second = cluster.do(work)
    assert first["metadata"]["uid"] == second["metadata"]["uid"]


def test_changes_that_depend_on_what_is_there(cluster: Cluster) -> None:
    async def work(api: KubernetesApi) -> None:
        path, label = f"{PATH}/made-anew", "/metadata/labels/a"
        change: list[Json] = [{"op": "test", "path": label, "value": "1"}, {"op": "add", "path": label, "value": "2"}]
        assert not await api.change(path, change)  # there is none
        made = await api.create(PATH, _body(labels={"a": "1"}))
        assert await api.change(path, change)
        assert not await api.change(path, change)
        assert not await api.delete(path, version=made["metadata"]["resourceVersion"])
        now = await api.get(path)
        assert now is not None
        assert now["metadata"]["labels"] == {"a": "2"}
        assert await api.delete(path, version=now["metadata"]["resourceVersion"])
        while await api.get(path) is not None:
            await asyncio.sleep(0.1)
        assert await api.delete(path, version=now["metadata"]["resourceVersion"])

    cluster.do(work)
