"""Launchers: where a stage runs."""

from __future__ import annotations

from superworkflow.infra.launch.base import Launcher
from superworkflow.infra.launch.process import ProcessLauncher
from superworkflow.infra.profile import Profile


def make_launcher(profile: Profile) -> Launcher:
    """The launcher that a profile names."""
    if profile.launcher == "kubernetes":
        from superworkflow.infra.kubernetes.launcher import KubernetesLauncher  # its client takes a second to import

        return KubernetesLauncher(profile.kubernetes)
    return ProcessLauncher()
