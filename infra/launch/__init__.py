"""Launchers: where a stage runs."""

from __future__ import annotations

from superworkflow.infra.config.profile import Profile
from superworkflow.infra.config.request import Request
from superworkflow.infra.launch.base import Launcher
from superworkflow.infra.launch.local.launcher import ProcessLauncher


def make_launcher(profile: Profile) -> Launcher:
    """The launcher that a profile names."""
    if profile.launcher == "kubernetes":
        from superworkflow.infra.launch.kubernetes.launcher import (
            KubernetesLauncher,  # its client takes a second to import
        )

        return KubernetesLauncher(profile.kubernetes)
    return ProcessLauncher()


def prepare_launcher(launcher: Launcher, request: Request) -> None:
    """Have a launcher prepare for the stages of a request whose datasets are missing."""
    if not request.is_complete():
        launcher.prepare(request.missing_stages(), request.store.uri)
