"""Dask's part of launching a stage on Kubernetes: its pod has the scheduler, the launcher keeps the pods of workers.

All connections between them are encrypted, and only who has the key of the stage's own certificate can open one.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.contract.resources import Group
from superworkflow.infra.engines.dask import (
    ADDRESS_VARIABLE,
    CERTIFICATE_VARIABLE,
    CORES_VARIABLE,
    HOST_VARIABLE,
    KEY_VARIABLE,
    MEMORY_VARIABLE,
)
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.engines.base import OnCluster, StagePods
from superworkflow.infra.launch.kubernetes.kept_pods import KeptPods, keep_members, kept_checks, secret_variable
from superworkflow.infra.launch.kubernetes.permissions import Check
from superworkflow.infra.launch.kubernetes.pod_group import FollowedJob, PodGroup

_SECRETS = (CERTIFICATE_VARIABLE, KEY_VARIABLE)
_DAYS = 365


class DaskWorkerPods(KeptPods):
    """Dask workers: a pod has a process for each of its cores, or one for all."""

    command = "dask-worker"

    @property
    def title(self) -> str:
        return "Dask worker"

    @property
    def threads(self) -> int:
        """See `KeptPods`: stages set them where a process has more."""
        return 1

    def variables(self, own: Json) -> list[Json]:
        values = {
            "NUMBA_NUM_THREADS": "1",  # Numba sees the cores of the whole node
            HOST_VARIABLE: own["status"]["podIP"],
            CORES_VARIABLE: str(self.group.each.threads),
            MEMORY_VARIABLE: str(self.group.memory),
        }
        return [
            *({"name": name, "value": value} for name, value in values.items()),
            *super().variables(own),
            *(secret_variable(self._job.name, name) for name in _SECRETS),
        ]


class DaskOnCluster(OnCluster):
    """The stage's pod has the scheduler; without executors its workers as well, or those of a scheduler elsewhere."""

    def shape(self, manifest: Json, stage: StagePods) -> None:
        if ADDRESS_VARIABLE in stage.settings.env:
            raise UserError(
                "names a scheduler that is there already, and the stage has executors of its own",
                where=f"profile: kubernetes.env.{ADDRESS_VARIABLE}", value=stage.settings.env[ADDRESS_VARIABLE],
                remedy="Remove it, or `resources.executors`",
            )  # fmt: skip
        keep_members(manifest, HOST_VARIABLE, _SECRETS)

    def secret(self) -> Mapping[str, str]:
        return dict(zip(_SECRETS, new_certificate(), strict=True))

    def members(self, job: FollowedJob, groups: Mapping[str, Group]) -> Sequence[PodGroup]:
        return [DaskWorkerPods(job, role, group) for role, group in groups.items()]

    async def checks(self, api: KubernetesApi, settings: KubernetesSettings) -> list[Check]:
        return await kept_checks(api)


def new_certificate() -> tuple[str, str]:
    """A certificate that signs itself, and its key, in PEM: who has both can prove it to others that do."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "superworkflow")])
    day, now = datetime.timedelta(days=1), datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(True, False, False, False, False, True, False, False, False)  # to sign, also certificates
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)  # clocks of nodes may be slow
        .not_valid_after(now + _DAYS * day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )  # fmt: skip
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), text.decode()
