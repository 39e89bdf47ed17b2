"""The bar of a stage in Prefect's UI, on a server."""

import pytest
from prefect import flow, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

from superworkflow.infra.orchestration import progress_artifact
from superworkflow.infra.orchestration.progress_artifact import ProgressArtifact


def test_bar_of_a_node_whose_name_has_two_words(prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_artifact, "SECONDS_BETWEEN", 0.0)

    @flow
    def run() -> None:
        bar = ProgressArtifact("publish_predictions")
        assert bar.update(1, 4)
        assert bar.update(3, 4)

    with temporary_settings({PREFECT_API_URL: prefect_api, PREFECT_LOGGING_TO_API_ENABLED: False}):
        run()
        with get_client(sync_client=True) as client:
            key = ArtifactFilter(key=ArtifactFilterKey(any_=["publish-predictions"]))
            (found,) = client.read_artifacts(artifact_filter=key)
    assert (found.type, found.data) == ("progress", 75.0)
