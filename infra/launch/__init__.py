"""Launchers: where a stage runs."""

from __future__ import annotations

from infra.launch.base import Launcher
from infra.launch.process import ProcessLauncher
from infra.profile import Profile


def make_launcher(profile: Profile) -> Launcher:
    """The launcher that a profile names."""
    if profile.launcher == "kubernetes":
        from infra.kubernetes.launcher import KubernetesLauncher  # its client takes a second to import

        return KubernetesLauncher(profile.kubernetes)
    return ProcessLauncher()
