"""The restricted Pod Security Standard, as far as a pod's spec can break it.

https://kubernetes.io/docs/concepts/security/pod-security-standards/, as of Kubernetes 1.34. Windows pods are left out.
"""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
SELINUX = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
PROFILES = {"RuntimeDefault", "Localhost"}


def violations(spec: Json) -> list[str]:
    """Violations of the standard in a pod's spec."""
    return [*_of_pod(spec), *(fault for container in _containers(spec) for fault in _of_container(spec, container))]


def _of_pod(spec: Json) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield name
    for volume in spec.get("volumes") or ():
        for kind in volume.keys() - {"name"} - VOLUMES:
            yield f"volume {volume['name']}: {kind}"
    for sysctl in _context(spec).get("sysctls") or ():
        if sysctl["name"] not in SYSCTLS:
            yield f"sysctl {sysctl['name']}"
    yield from _shared("pod", _context(spec))


def _of_container(spec: Json, container: Json) -> Iterator[str]:
    name, own, pod = container.get("name"), _context(container), _context(spec)
    if own.get("privileged"):
        yield f"{name}: privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation"
    capabilities = own.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or ()):
        yield f"{name}: capabilities are not dropped"
    if set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities are added"
    if not own.get("runAsNonRoot", pod.get("runAsNonRoot")):
        yield f"{name}: runAsNonRoot"
    if (own.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type") not in PROFILES:
        yield f"{name}: seccompProfile"
    if own.get("procMount", "Default") != "Default":
        yield f"{name}: procMount"
    if any(port.get("hostPort") for port in container.get("ports") or ()):
        yield f"{name}: hostPort"
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if ((container.get(probe) or {}).get("httpGet") or {}).get("host"):
            yield f"{name}: {probe} to another host"
    yield from _shared(name, own)


def _shared(where: Any, context: Json) -> Iterator[str]:
    """Violations in a security context of a pod or a container."""
    if context.get("runAsNonRoot") is False:
        yield f"{where}: runAsNonRoot is false"
    if context.get("runAsUser") == 0:
        yield f"{where}: runAsUser 0"
    if (context.get("seccompProfile") or {}).get("type", "RuntimeDefault") not in PROFILES:
        yield f"{where}: seccompProfile"
    if (context.get("appArmorProfile") or {}).get("type", "RuntimeDefault") not in PROFILES:
        yield f"{where}: appArmorProfile"
    linux = context.get("seLinuxOptions") or {}
    if linux.get("type") not in SELINUX or linux.get("user") or linux.get("role"):
        yield f"{where}: seLinuxOptions"
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield f"{where}: hostProcess"


def _containers(spec: Json) -> list[Json]:
    return [c for kind in ("initContainers", "containers", "ephemeralContainers") for c in spec.get(kind) or ()]


def _context(spec: Json) -> Json:
    return spec.get("securityContext") or {}
