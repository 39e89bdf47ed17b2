"""Labels that are numbers to predict, or may be: the rules by which they are recognised."""

from __future__ import annotations

import math
from collections.abc import Sequence

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning

MANY, SOME = 50, 10
"""Kinds of labels above which decimals, and from which whole numbers, are doubted as classes."""


def number_of(text: str) -> float | None:
    """Number that a text is, also infinite; None for other texts."""
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        return None
    return None if math.isnan(value) else value


def check_classes(names: Sequence[str], nodes: int, where: str) -> None:
    """Refuse labels with decimals of many different values.

    Args:
        names: the different labels.
        nodes: number of labelled nodes.
        where: the labels, for people.

    Raises:
        UserError: they are numbers to predict, or classes that need to be called so.
    """
    numbers = [number_of(name) for name in names]
    decimals = [name for name, value in zip(names, numbers, strict=True) if value is not None and value % 1]
    if None in numbers or not decimals or (len(names) <= MANY and 2 * len(names) <= nodes):
        return
    raise UserError(
        "labels are numbers with decimals, not classes", where=where,
        value=f"{len(names)} different ones of {nodes} nodes, such as {decimals[0]}",
        remedy="Set train.task=regression to predict numbers, or train.task=classification if each is a class",
    )  # fmt: skip


def class_doubts(names: Sequence[str], nodes: int, where: str) -> list[InputWarning]:
    """Warning of classes that may be numbers to predict: with decimals, or `SOME` whole ones, such as ratings of 80 to
    100, that are not all from 0 or 1 on; see `check_classes`."""
    numbers = [number_of(name) for name in names]
    values = [value for value in numbers if value is not None]
    if len(values) < len(names):
        return []
    are_codes = min(values) in (0, 1) and max(values) - min(values) == len(values) - 1
    if (len(values) < SOME or are_codes) and not any(value % 1 for value in values):
        return []
    return [InputWarning("labels are numbers, and taken for names of classes", where,
                         f"{len(names)} different ones of {nodes} nodes, such as {names[0]} and {names[-1]}",
                         "Set train.task=regression to predict numbers, or train.task=classification")]  # fmt: skip
