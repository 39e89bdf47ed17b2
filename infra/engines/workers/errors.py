"""The error of worker groups."""

from superworkflow.infra.base.errors import SuperworkflowError


class WorkersFailed(SuperworkflowError):
    """A worker group could not do what it was called for."""
