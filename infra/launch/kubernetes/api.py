"""The few calls of the Kubernetes API that stages need, as JSON objects, patient with a server that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.storage.retry import RetryState, Unreachable

Json = dict[str, Any]

REQUEST_SECONDS = 10.0
TAKEN_SECONDS = 60.0
"""Seconds for which a name may stay taken before it is used again: foreground deletion waits for owned objects."""
QUIET_SECONDS = 30.0
"""Seconds of silence after which a stream is opened again: its connection may be dead without either side noticing."""

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TRANSIENT = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class ApiError(SuperworkflowError):
    """The API refused a request."""

    def __init__(self, status: int, message: str):
        self.status = status
        super().__init__(f"Kubernetes answered {status}: {message}")


class KubernetesApi:
    """One namespace of a cluster. All coroutines belong to one event loop.

    Args:
        client: open client.
        namespace: where everything happens.
        patience_s: seconds for which a request is repeated while the API does not answer.
    """

    def __init__(self, client: ApiClient, namespace: str, patience_s: float):
        self._client, self.namespace, self._patience = client, namespace, patience_s
        self.jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self.events = f"/api/v1/namespaces/{namespace}/events"

    @classmethod
    async def connect(cls, settings: KubernetesSettings) -> KubernetesApi:
        """Open a client with the credentials that the settings name, the pod's own, or those of KUBECONFIG.

        Raises:
            UserError: there are none, or they cannot be read.
        """
        if settings.credentials is not None:
            client, namespace = await _client_of_block(settings.credentials), "default"
        else:
            client, namespace = await _own_client()
        return cls(client, settings.namespace or namespace, settings.unreachable_patience_s)

    @property
    def server(self) -> str:
        """Address of the API."""
        return str(self._client.configuration.host)

    async def close(self) -> None:
        await self._client.close()

    async def get(self, path: str, **query: str) -> Json | None:
        """An object or a list; None when there is none."""
        return await self._patiently("GET", path, query, missing_ok=True)

    async def items(self, path: str, **query: str) -> list[Json]:
        """Items of a list."""
        found = await self.get(path, **query)
        return cast("list[Json]", (found or {}).get("items") or [])

    async def create(self, path: str, body: Json, **query: str) -> Json:
        """Create an object by its name; one that a lost answer hid is found again.

        One of that name that is being deleted, or that is not ours by its labels and owners, is waited for.

        Raises:
            ApiError: refused, or the name was still taken after `TAKEN_SECONDS`.
        """
        name, until = body.get("metadata", {}).get("name"), time.monotonic() + TAKEN_SECONDS
        while True:
            try:
                created = await self._patiently("POST", path, query, body)
                assert created is not None
                return created
            except ApiError as error:
                if error.status != 409 or name is None:
                    raise
                found = await self.get(f"{path}/{name}")
                if found is not None and "deletionTimestamp" not in found["metadata"] and _is_that(found, body):
                    return found
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(0.2)

    async def change(self, path: str, operations: list[Json]) -> bool:
        """Change an object by a JSON patch (RFC 6902); False when one of its tests failed, or there is no object."""
        try:
            return await self._patiently("PATCH", path, {}, operations, missing_ok=True) is not None
        except ApiError as error:
            if error.status == 422:
                return False
            raise

    async def delete(self, path: str, *, version: str | None = None, **query: str) -> bool:
        """Delete an object after what it owns; one that is not there is no error.

        A Job that is deleted before its pods may be given another pod by a controller that does not know yet.

        Args:
            path: of the object.
            version: its `resourceVersion`; when it has another one by now it is left, and the answer is False.
            query: more of the query, such as `gracePeriodSeconds`.
        """
        options: Json = {"propagationPolicy": "Foreground", **query}
        only: Json | None = None
        if version is not None:  # with a body the query counts for nothing
            only, options = options | {"preconditions": {"resourceVersion": version}}, {}
        try:
            await self._patiently("DELETE", path, options, only, missing_ok=True)
        except ApiError as error:
            if error.status != 409 or version is None:
                raise
            return False
        return True

    async def lines(self, path: str, **query: str) -> AsyncIterator[str]:
        """Lines of a streamed answer, until the server ends it.

        Raises:
            ApiError: refused. Connection errors come as they are.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_SECONDS, sock_read=QUIET_SECONDS)
        response = await self._send("GET", path, query, None, timeout)
        try:
            if response.status >= 400:
                raise ApiError(response.status, _message(await response.text()))
            rest = b""
            async for chunk in response.content.iter_any():
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    yield line.decode("utf-8", "replace")
            if rest:
                yield rest.decode("utf-8", "replace")
        finally:
            response.close()

    async def _patiently(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | list[Json] | None = None,
        *,
        missing_ok: bool = False,
    ) -> Json | None:
        tries = RetryState(self._patience)
        while True:
            try:
                response = await self._send(method, path, query, body, aiohttp.ClientTimeout(total=REQUEST_SECONDS))
                async with response:
                    text = await response.text()
                if response.status < 400:
                    return cast("Json", json.loads(text))
                if response.status == 404 and missing_ok:
                    return None
                error: Exception = ApiError(response.status, _message(text))
                if response.status < 500 and response.status != 429:
                    raise error
            except _TRANSIENT as caught:
                error = caught
            if (pause := tries.pause()) is None:
                raise Unreachable(
                    f"{self.server}: Kubernetes does not answer ({type(error).__name__}: {error}). "
                    "Check the cluster, or the network and the credentials to it."
                ) from error
            await asyncio.sleep(pause)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | list[Json] | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        patch = {"Content-Type": "application/json-patch+json"} if method == "PATCH" else {}
        answer = await self._client.call_api(
            path, method, query_params=list(query.items()), header_params={"Accept": "application/json, */*", **patch},
            body=body, auth_settings=["BearerToken"], _preload_content=False, _request_timeout=timeout,
        )  # fmt: skip
        return cast("aiohttp.ClientResponse", answer)


async def _client_of_block(name: str) -> ApiClient:
    """A client with the credentials of a KubernetesCredentials block of Prefect."""
    from prefect_kubernetes.credentials import KubernetesCredentials  # type: ignore[import-untyped]

    try:
        block = await KubernetesCredentials.aload(name)
    except ValueError as error:
        raise UserError(str(error), where="profile: kubernetes.credentials", value=name) from None
    assert isinstance(block, KubernetesCredentials)
    configuration = Configuration()
    async with block.get_client("core", configuration):  # it fills the configuration, and closes its own client
        pass
    return ApiClient(configuration)


async def _own_client() -> tuple[ApiClient, str]:
    configuration = Configuration()
    try:
        if (_ACCOUNT / "token").exists() and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            return ApiClient(configuration), (_ACCOUNT / "namespace").read_text().strip()
        files = os.environ.get("KUBECONFIG")  # the client reads it when it is imported, which may be earlier
        await config.load_kube_config(files, client_configuration=configuration)
        _, context = config.list_kube_config_contexts(files)
        return ApiClient(configuration), ((context or {}).get("context") or {}).get("namespace") or "default"
    except (config.ConfigException, OSError) as error:
        raise UserError(
            f"no Kubernetes cluster is configured: {error}", where="KUBECONFIG",
            remedy="Set KUBECONFIG, or use the profile laptop",
        ) from None  # fmt: skip


def _is_that(found: Json, body: Json) -> bool:
    """True if an object has the labels and owners of one that was to be made."""
    here, wanted = found["metadata"], body["metadata"]
    owners = [{owner["uid"] for owner in each.get("ownerReferences") or ()} for each in (here, wanted)]
    return owners[0] == owners[1] and (wanted.get("labels") or {}).items() <= (here.get("labels") or {}).items()


def _message(text: str) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        return str(json.loads(text)["message"])
    return " ".join(text.split())[:300] or "no reason given"
