"""Parameters as people read them in `--help`: what each means, which values it takes, and its default."""

from __future__ import annotations

import functools
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from superworkflow.infra.contract.params import StageParams

_TYPES = {"integer": "integer", "number": "number", "string": "text", "null": "null"}
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
_NAME_WIDTH = 26


def describe_params(model: type[StageParams], prefix: str, width: int) -> str:
    """The parameters of one stage, or of a superworkflow itself.

    Args:
        model: the parameter model.
        prefix: shown before each name, such as `train.`.
        width: columns to fill.
    """
    rows = [(f"{prefix}{name}", [f"{values}; {default}", text]) for name, values, default, text in param_rows(model)]
    return describe(rows, width)


def param_rows(model: type[StageParams]) -> Iterator[tuple[str, str, str, str]]:
    """Name, values, default and description of each parameter."""
    schema = model.model_json_schema()
    for name, entry in schema["properties"].items():
        yield name, values_text(_resolved(entry, schema)), _default(entry), str(entry.get("description", ""))


def describe(rows: Iterable[tuple[str, Sequence[str]]], width: int) -> str:
    """Names with their paragraphs in two columns; a long name stands on a line of its own."""
    lines: list[str] = []
    indent = " " * _NAME_WIDTH
    wrap = functools.partial(
        textwrap.wrap, width=max(width - _NAME_WIDTH, 20), break_long_words=False, break_on_hyphens=False
    )
    for name, paragraphs in rows:
        wrapped = [line for paragraph in paragraphs for line in wrap(paragraph)]
        head = f"  {name}"
        if wrapped and len(head) + 2 <= _NAME_WIDTH:
            head = f"{head:{_NAME_WIDTH}}{wrapped.pop(0)}"
        lines += [head, *(indent + line for line in wrapped)]
    return "\n".join(lines)


def _resolved(entry: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry itself, or the shared definition that it refers to."""
    reference = entry.get("$ref")
    return schema["$defs"][reference.rpartition("/")[2]] if reference else entry


def values_text(entry: Mapping[str, Any]) -> str:
    """Values that a JSON schema allows, in words: `integer, at least 1`."""
    *first, last = _alternatives(entry)
    if not first:
        return last
    comma = "," if any("," in each for each in first) else ""
    return f"{', '.join(first)}{comma} or {last}"


def _alternatives(entry: Mapping[str, Any]) -> list[str]:
    if options := entry.get("anyOf"):
        return [each for option in options for each in _alternatives(option)]
    if "enum" in entry:
        return list(map(str, entry["enum"]))
    if "const" in entry:
        return [str(entry["const"])]
    kind = entry.get("type")
    if kind == "boolean":
        return ["true", "false"]
    if kind == "array":
        least = f" {entry['minItems']} or more" if "minItems" in entry else ""
        return [f"list of{least}: {values_text(entry.get('items', {}))}"]
    words = [_TYPES.get(str(kind), "any value")]
    words += [f"{word} {_number(entry[key])}" for key, word in _BOUNDS.items() if key in entry]
    if "multipleOf" in entry:
        words.append(f"a multiple of {_number(entry['multipleOf'])}")
    return [", ".join(words)]


def _number(value: float) -> str:
    power = int(value).bit_length() - 1
    if power > 30 and value == 2**power:
        return f"2**{power}"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _default(entry: Mapping[str, Any]) -> str:
    if "default" not in entry:
        return "required"
    value = entry["default"]
    return f"default {value if isinstance(value, str) else json.dumps(value)}"
