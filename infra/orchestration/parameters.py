"""The parameters of a superworkflow's flow: one for each source, one group for each stage, and where it runs.

A run of the command line, a trial of a sweep and a deployment all pass these. Prefect's form shows them with their
descriptions and ranges, and refuses values out of range before anything starts. It sorts by `position` and can fold
nothing; but of alternatives it shows the one that is chosen alone. So a group that is rarely used is either `null`, its
defaults, or its fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from prefect.utilities.callables import ParameterSchema, generate_parameter_schema
from pydantic import BaseModel

from superworkflow.infra.config.request import DEFAULT_STORE, Request, build_request
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.registration import REGISTRATION, Registration
from superworkflow.infra.contract.superworkflow import Superworkflow

_WHERE: dict[str, tuple[Any, Any, str]] = {
    "profile": (str, "laptop", "Engine, image and resources of each stage: a name, or the URI of a file."),
    "store": (str, DEFAULT_STORE, "Root of all datasets: a folder, or s3://bucket/prefix."),
    "prices": (str | None, None, "Price table: a name, or the URI of a file; the newest if not given."),
}
_NOT_FOR_PEOPLE = ("search", "affects_result")
"""Keys of a field's JSON schema that only this project's programs read."""


def flow_signature(superworkflow: Superworkflow) -> inspect.Signature:
    """Signature of the flow's function.

    Raises:
        ValueError: two parameters of the same name, which is a mistake in the superworkflow.
    """
    fields: list[tuple[str, Any, Any]] = []
    for name in superworkflow.sources:
        optional = name in superworkflow.optional
        fields.append((name, str | None if optional else str, None if optional else inspect.Parameter.empty))
    fields += [(name, kind, default) for name, (kind, default, _) in _WHERE.items()]
    if superworkflow.registered:
        fields.append((REGISTRATION, Registration, Registration()))
    fields += [(prefix, model, model()) for prefix, model in superworkflow.models().items()]
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [inspect.Parameter(name, kind, annotation=annotation, default=default) for name, annotation, default in fields]
    )


def flow_schema(superworkflow: Superworkflow) -> ParameterSchema:
    """Schema of the flow's parameters, as Prefect's form and its validation read it."""
    helps = {stage.name: f"Parameters of the stage {stage.name}." for stage in superworkflow.stages}
    helps |= {
        prefix: f"Parameters of the stage {stage.name} at {prefix}." for prefix, stage in superworkflow.prefixes.items()
    }
    helps[superworkflow.name] = "Options of the pipeline itself."
    helps |= superworkflow.sources
    helps |= {name: text for name, (_, _, text) in _WHERE.items()}
    helps[REGISTRATION] = "Under which name models are registered, and what it takes for one to be promoted."
    schema = generate_parameter_schema(flow_signature(superworkflow), helps)
    models: dict[str, type[BaseModel]] = {**superworkflow.models()}
    if superworkflow.registered:
        models[REGISTRATION] = Registration
    for prefix, model in models.items():
        entry = schema.properties[prefix]
        entry.pop("default", None)  # each field has its own
        definition = schema.definitions[entry["$ref"].rpartition("/")[2]]
        if definition["title"] == model.__name__:  # else the first of those that share the model has named it
            definition["title"] = prefix
        definition.pop("description", None)
        ordered = sorted(definition["properties"].items(), key=lambda field: not _is_searched(model, field[0]))
        for place, (name, each) in enumerate(ordered):
            each |= {"title": name, "position": place}  # the name as on the command line
            for word in _NOT_FOR_PEOPLE:
                each.pop(word, None)
    rare = [name for name, model in models.items() if name != superworkflow.name and not _searched(model)]
    often = dict.fromkeys([superworkflow.name, *models])
    shown = [*superworkflow.sources, *(name for name in often if name in models and name not in rare), *_WHERE, *rare]
    for place, name in enumerate(shown):
        schema.properties[name]["position"] = place
    for name in rare:
        entry = schema.properties[name]
        entry |= {"anyOf": [{"type": "null", "title": "defaults"}, {"$ref": entry.pop("$ref")}], "default": None}
    return schema


def _searched(model: type[BaseModel]) -> bool:
    return any(_is_searched(model, name) for name in model.model_fields)


def _is_searched(model: type[BaseModel], name: str) -> bool:
    """True if a sweep tries values of a field: those are what people change."""
    extra = model.model_fields[name].json_schema_extra if name in model.model_fields else None
    return isinstance(extra, dict) and "search" in extra


def flow_parameters(request: Request) -> dict[str, Any]:
    """The parameters that ask for this request, as plain values."""
    return {
        **{name: source.uri for name, source in request.sources.items()},
        **{prefix: model.model_dump(mode="json") for prefix, model in request.params.items()},
        "profile": request.profile.name,
        "store": request.store.uri,
        "prices": request.prices.name,
        **({REGISTRATION: request.registration.model_dump(mode="json")} if request.superworkflow.registered else {}),
    }


def request_of(superworkflow: Superworkflow, given: Mapping[str, Any]) -> Request:
    """The request that a flow's parameters ask for.

    Raises:
        UserError: the first thing that is wrong.
    """
    where = {name: default if given.get(name) is None else given[name] for name, (_, default, _) in _WHERE.items()}
    return build_request(
        superworkflow,
        sources={name: given[name] for name in superworkflow.sources if given.get(name)},
        parameters={prefix: _plain(given[prefix]) for prefix in superworkflow.models() if given.get(prefix)},
        registration=registration_of(given),
        deployed=True,
        **where,
    )


def registration_of(given: Mapping[str, Any]) -> Registration:
    """Registration that a flow's parameters ask for.

    Raises:
        UserError: the first thing that is wrong.
    """
    return parse_params(Registration, _plain(given.get(REGISTRATION) or {}), REGISTRATION)


def differing(superworkflow: Superworkflow, given: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """Names of those parameters, of two sets of a flow's parameters, that can change its datasets or its promotion.

    Raises:
        UserError: one of the sets is wrong.
    """
    first, second = (_comparable(superworkflow, each) for each in (given, own))
    return [name for name in first if first[name] != second[name]]


def _comparable(superworkflow: Superworkflow, given: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {name: given.get(name) or None for name in superworkflow.sources}
    for prefix, model in superworkflow.models().items():
        settings = parse_params(model, _plain(given.get(prefix) or {}), prefix)
        values |= {f"{prefix}.{name}": value for name, value in settings.model_dump(mode="json").items()}
    registration = registration_of(given)
    return values | {f"{REGISTRATION}.{name}": value for name, value in registration.model_dump(mode="json").items()}


def _plain(value: Any) -> Mapping[str, Any]:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
