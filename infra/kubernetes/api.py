"""The few calls of the Kubernetes API that stages need, as JSON objects, patient with a server that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration

from infra.errors import SuperworkflowError, UserError
from infra.kubernetes.settings import KubernetesSettings
from infra.patience import Tries, Unreachable

Json = dict[str, Any]

REQUEST_SECONDS = 10.0
QUIET_SECONDS = 30.0
"""A stream without a word for so long is opened again: its connection may be dead without either side knowing."""

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
        self.events = f"/api/v1/namespaces/{namespace}/events"

    @classmethod
    async def connect(cls, settings: KubernetesSettings) -> KubernetesApi:
        """Open a client with the credentials that the settings name, the pod's own, or those of KUBECONFIG.

        Raises:
            UserError: there are none, or they cannot be read.
        """
        if settings.credentials is not None:
            from infra.orchestration.credentials import client_of_block

            client, namespace = await client_of_block(settings.credentials), "default"
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
        """Create an object by its name; one that a lost answer hid is found again."""
        try:
            created = await self._patiently("POST", path, query, body)
        except ApiError as error:
            if error.status != 409 or "name" not in body.get("metadata", {}):
                raise
            created = await self.get(f"{path}/{body['metadata']['name']}")
        assert created is not None
        return created

    async def label(self, path: str, labels: Mapping[str, str]) -> None:
        """Set labels of an object."""
        await self._patiently("PATCH", path, {}, {"metadata": {"labels": dict(labels)}}, missing_ok=True)

    async def delete(self, path: str, **query: str) -> None:
        """Delete an object after what it owns; one that is not there is no error.

        A Job that is deleted before its pods may be given another pod by a controller that does not know yet.
        """
        await self._patiently("DELETE", path, {"propagationPolicy": "Foreground", **query}, missing_ok=True)

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
        self, method: str, path: str, query: Mapping[str, str], body: Json | None = None, *, missing_ok: bool = False
    ) -> Json | None:
        tries = Tries(self._patience)
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
        self, method: str, path: str, query: Mapping[str, str], body: Json | None, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        patch = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        answer = await self._client.call_api(
            path, method, query_params=list(query.items()), header_params={"Accept": "application/json, */*", **patch},
            body=body, auth_settings=["BearerToken"], _preload_content=False, _request_timeout=timeout,
        )  # fmt: skip
        return cast("aiohttp.ClientResponse", answer)


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
            f"no way to a Kubernetes cluster: {error}", where="KUBECONFIG",
            remedy="Set KUBECONFIG, or use the profile laptop",
        ) from None  # fmt: skip


def _message(text: str) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        return str(json.loads(text)["message"])
    return " ".join(text.split())[:300] or "no reason given"
