"""The served model of ratings: those that a user would give, and the items that it would rate highest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .embeddings import largest
from .names import Names, answer_column, mapped, name_of

TASKS = ("rating", "recommendations")


class RatingModel:
    """Answers questions about the latent factors of users and items.

    Args:
        folder: holds the files that stage `publish_latent_factors` wrote.
        facts: content of its `bundle.json`.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.facts = facts
        self.users = Names(folder, "user_", "users with ratings")
        self.items = Names(folder, "item_", "items with ratings")
        self._factors = mapped(folder, "user_factors"), mapped(folder, "item_factors")
        self._rated, self._offsets = mapped(folder, "rated"), mapped(folder, "rated_offsets")

    def predict(self, table: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
        """Answer a table of questions; see the package's text.

        Raises:
            ValueError: a column that the task needs is missing, or an option is wrong.
        """
        task, k = options.get("task", TASKS[0]), int(options.get("k", 10))
        if task not in TASKS:
            raise ValueError(f"unknown task {task!r}: give one of {', '.join(TASKS)}")
        if k < 1:
            raise ValueError(f"k is {k}: ask for 1 item or more")
        for column in ("user", "item") if task == "rating" else ("user",):
            if column not in table:
                raise ValueError(f"a request for task {task} needs a column `{column}`")
        users = [name_of(value) for value in table["user"]]
        if task == "rating":
            items = [name_of(value) for value in table["item"]]
            answers, errors = _answered(self.rating, users, items)
            return pd.DataFrame({"user": users, "item": items, "rating": answer_column(answers), "error": errors})
        again = bool(options.get("rated", False))
        answers, errors = _answered(lambda user: self.recommendations(user, k, again), users)
        listed: list[list[list[Any] | None]] = [[each and each[part] for each in answers] for part in range(2)]
        return pd.DataFrame({"user": users, "items": listed[0], "ratings": listed[1], "error": errors})

    def rating(self, user: str, item: str) -> float:
        """Predicted rating, within the range of the ratings that were given.

        Raises:
            ValueError: the user or the item has no ratings.
        """
        rows = self.users.row(user), self.items.row(item)
        left, right = (each[row].astype(np.float64) for each, row in zip(self._factors, rows, strict=True))
        return float(self._within(left @ right))

    def recommendations(self, user: str, k: int, rated: bool) -> tuple[list[str], list[float]]:
        """The k items of highest predicted rating, best first, and these ratings.

        Args:
            user: whose.
            k: most items.
            rated: also those that the user has rated.

        Raises:
            ValueError: the user has no ratings.
        """
        row = self.users.row(user)
        scores = (self._factors[1] @ self._factors[0][row]).astype(np.float32)
        if not rated:
            scores[self._rated[self._offsets[row] : self._offsets[row + 1]]] = -np.inf
        best = largest(scores[None], min(k, len(scores)))[0]
        best = best[~np.isneginf(scores[best])]
        return [self.items[item] for item in best], [float(each) for each in self._within(scores[best])]

    def _within(self, ratings: Any) -> NDArray[Any]:
        within: NDArray[Any] = np.clip(ratings, self.facts["least"], self.facts["most"])
        return within


def _answered(answer: Callable[..., Any], *columns: list[str | None]) -> tuple[list[Any], list[str]]:
    """Answers to questions, None with an error where there is none."""
    answers, errors = [], []
    for values in zip(*columns, strict=True):
        try:
            if None in values:
                raise ValueError("a question lacks its user or item")
            answers.append(answer(*values))
            errors.append("")
        except ValueError as error:
            answers.append(None)
            errors.append(str(error))
    return answers, errors
