"""Questions about a bundle of embeddings, asked from Python; a served model answers the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.model_bundle import facts_of

if TYPE_CHECKING:
    import pandas as pd


def neighbors(bundle: Dataset, node: Any, k: int = 10) -> pd.DataFrame:
    """The k nodes whose embeddings are the most similar to a node's: columns `node` and `score`, best first.

    Args:
        bundle: dataset of stage `publish`.
        node: its name, as text or number.
        k: most rows.

    Raises:
        UserError: there is no such node, or k is below 1.
    """
    import pandas

    from superworkflow.tasks.publish.serving.embeddings import EmbeddingModel

    facts, _ = facts_of(bundle, "publish")
    files = [bundle.local(name) for name in bundle.files()]
    question = pandas.DataFrame({"node": [node]})
    try:
        answers = EmbeddingModel(files[0].parent, facts).predict(question, {"task": "neighbors", "k": k})
    except ValueError as error:
        raise UserError(str(error), where="neighbors") from None
    answer = answers.iloc[0]
    if answer["error"]:
        raise UserError(answer["error"], where="neighbors", value=node)
    return pandas.DataFrame({"node": answer["neighbors"], "score": answer["scores"]})
