"""MLlib's Word2Vec as a kernel of the stage embed: what it makes, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from superworkflow.infra.dataset import Dataset
from superworkflow.infra.errors import UserError
from superworkflow.infra.execute import execute
from superworkflow.infra.progress import Progress
from superworkflow.infra.resources import Resources
from superworkflow.tasks import embed
from tests.spark import needs_spark
from tests.tasks.embedding_inputs import Inputs, community_walks, separation, vectors

SIZE, COMMUNITIES = 10, 6
LABELS = [f"n{i}" for i in range(SIZE * COMMUNITIES)]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    walks = community_walks(COMMUNITIES, SIZE, 1500, 20, 0.02)
    walks[7, 5:] = -1  # one that ended early
    return Inputs(tmp_path_factory.mktemp("mllib"), walks, LABELS, shards=2)


def _embed(inputs: Inputs, name: str, engine: str = "spark", **params: object) -> Dataset:
    given = {"graph": inputs.graph.uri, "walks": inputs.walks.uri, "vocabulary": inputs.vocabulary.uri}
    resources = Resources.model_validate({"cpu": 2, "memory": "1Gi"})
    output = str(inputs.folder / name)
    return execute(embed.STAGE, params, given, output, resources, Progress("embed"), engine).dataset


@needs_spark
def test_mllib_trains_on_the_walks(inputs: Inputs) -> None:
    params = {"kernel": "mllib", "dimensions": 16, "window": 5, "learning_rate": 0.025, "partitions": 2}
    dataset = _embed(inputs, "mllib", **params)
    labels, values = vectors(dataset)
    assert labels == LABELS
    assert separation(values, SIZE) > 0.5
    assert np.abs(values).sum(axis=1).min() > 0  # every vertex was met
    assert dataset.stats["kernel"] == "mllib"
    assert dataset.manifest.engine == "spark"
    one_thread = inputs.embed("numba", dimensions=16, window=5)
    assert dataset.manifest.digest != one_thread.manifest.digest  # others, so by another name


def test_what_does_not_fit_together_is_refused(inputs: Inputs) -> None:
    with pytest.raises(UserError, match=r"trains on Spark only.*engine to spark"):
        _embed(inputs, "a", engine="in-process", kernel="mllib")
    with pytest.raises(UserError, match=r"does not run on Spark.*embed\.kernel=mllib"):
        _embed(inputs, "b")
