"""Cluster credentials that Prefect keeps."""

from __future__ import annotations

from kubernetes_asyncio.client import ApiClient, Configuration
from prefect_kubernetes.credentials import KubernetesCredentials  # type: ignore[import-untyped]

from superworkflow.infra.base.errors import UserError


async def client_of_block(name: str) -> ApiClient:
    """A client with the credentials of a KubernetesCredentials block; the caller closes it.

    Raises:
        UserError: there is no such block.
    """
    try:
        block = await KubernetesCredentials.aload(name)
    except ValueError as error:
        raise UserError(str(error), where="profile: kubernetes.credentials", value=name) from None
    assert isinstance(block, KubernetesCredentials)
    configuration = Configuration()
    async with block.get_client("core", configuration):  # it fills the configuration, and closes its own client
        pass
    return ApiClient(configuration)
