"""Request of a run: one superworkflow with its sources, parameters, profile, store and prices, all validated."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import needs_package, require_extra
from superworkflow.infra.config.config_files import parse_assignments, read_yaml, resolve
from superworkflow.infra.config.gpus import check_gpus
from superworkflow.infra.config.kubernetes import no_image
from superworkflow.infra.config.prices import PriceTable, load_prices
from superworkflow.infra.config.profile import Profile, load_profile
from superworkflow.infra.config.profile_names import ProfileNames, check_placements
from superworkflow.infra.contract.diagram import Diagram, Given
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.registration import Registration, check_gates, check_limits
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.engines import engine, image_kind
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.digest import json_sha256
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.store import Store
from superworkflow.infra.storage.table_access import reach_of
from superworkflow.infra.storage.warehouse.address import TableAddress

DEFAULT_STORE = "superworkflow-store"
STORE_VARIABLE = "SUPERWORKFLOW_STORE"
"""A store other than the default one, for every command."""


def default_store() -> str:
    """The store where none is given."""
    return os.environ.get(STORE_VARIABLE) or DEFAULT_STORE


@dataclass(frozen=True)
class Request:
    """A validated request; `diagram` names every dataset it will need, `registration` what becomes of its models.

    `origins` are the addresses of those sources that were read from databases and lakehouses.
    """

    superworkflow: Superworkflow
    sources: Mapping[str, Given]
    params: Mapping[str, StageParams]
    diagram: Diagram
    store: Store
    profile: Profile
    prices: PriceTable
    registration: Registration = field(default_factory=Registration)
    origins: Mapping[str, str] = field(default_factory=dict)

    def missing_stages(self) -> list[str]:
        """Installed stages of the datasets that are not in the store yet, in the diagram's order."""
        return [
            node.stage.name
            for node in self.diagram.nodes.values()
            if node.code is None and not self.store.has(node.stage.name, node.digest)
        ]

    def given(self, datasets: Mapping[str, Dataset]) -> Request:
        """A copy of the request with these datasets as further sources."""
        sources = {**self.sources, **datasets}
        return replace(self, sources=sources, diagram=self.superworkflow.build(self.params, sources))

    def is_complete(self) -> bool:
        """True if every dataset is in the store."""
        return all(self.store.has(node.stage.name, node.digest) for node in self.diagram.nodes.values())

    def inputs_digest(self) -> str:
        """Digest of all that its datasets, and the promotion of its models, rest on."""
        nodes = {name: node.digest for name, node in self.diagram.nodes.items()}
        identity = {"nodes": nodes, "registration": self.registration.model_dump(mode="json")}
        return json_sha256(identity)

    def flat_params(self) -> dict[str, Any]:
        """Parameters that the diagram uses, and those of the superworkflow, by dotted name."""
        nodes = self.diagram.nodes.values()
        used = {node.prefix for node in nodes} | {self.superworkflow.name}
        made = {**self.params, **{node.prefix: node.params for node in nodes if not node.stage.params_of}}
        return {
            f"{prefix}.{name}": value
            for prefix, model in made.items()
            if prefix in used
            for name, value in model.model_dump(mode="json").items()
        }

    def changed_params(self) -> list[str]:
        """Dotted names of those that are not the defaults."""
        defaults = {
            f"{prefix}.{name}": value
            for prefix, model in self.superworkflow.models().items()
            for name, value in model.model_construct().model_dump(mode="json", warnings=False).items()
        }
        flat = self.flat_params()
        return [name for name, value in flat.items() if name not in defaults or value != defaults[name]]


def build_request(
    superworkflow: Superworkflow,
    *,
    sources: Mapping[str, str],
    config: str | None = None,
    assignments: Sequence[str] = (),
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    profile: str = "laptop",
    store: str = DEFAULT_STORE,
    prices: str | None = None,
    rehash: bool = False,
    registered: Callable[[], ProfileNames] | None = None,
    registration: Registration | None = None,
    tables_from: Sequence[str] = (),
    deployed: bool = False,
    as_of: str = "",
) -> Request:
    """Validate all that a user gave, cheapest checks first; nothing is written but snapshots of tables.

    Args:
        superworkflow: which pipeline.
        sources: path or URI of each source or dataset by name, or address of a table
            (`infra.storage.warehouse.address`).
        config: path of a YAML configuration file.
        assignments: `prefix.parameter=value` texts, stronger than the file.
        parameters: values by prefix and parameter, stronger than the file and weaker than `assignments`.
        profile: name or path of a profile.
        store: URI of the store.
        prices: name or path of a price table; the profile's, else the newest, when None.
        rehash: read the sources anew, whatever sums of them were kept.
        registered: returns the names of all superworkflows that profiles may use; without it they are not checked.
        registration: what becomes of its models; nothing by default.
        tables_from: prefixes below which any description may name tables.
        deployed: sources come from a deployment's caller, not from a user of this machine.
        as_of: version or time at which tables of lakehouses are read.

    Raises:
        UserError: the first thing that is wrong.
    """
    settings = parameters_of(superworkflow, config=config, assignments=assignments, parameters=parameters)
    if registration is not None:
        check_gates(registration.gates, superworkflow.metrics)
        check_limits(registration.max_drift, superworkflow.drift_names)
    chosen = load_profile(profile, superworkflow.variants)
    table = load_prices(prices or chosen.prices)
    check_placements(superworkflow, chosen, profile, registered)
    uris, origins = read_tables({name: uri for name, uri in sources.items() if name not in superworkflow.datasets},
                                store, rehash, as_of, deployed)  # fmt: skip
    opened: dict[str, Given] = {}
    for name, uri in {**sources, **uris}.items():
        if name in superworkflow.datasets:
            opened[name] = Dataset.open(uri)
        else:
            reach = reach_of(uri, tables_from, chosen=not deployed, store=store)
            opened[name] = Source.of(uri, rehash=rehash, reach=reach)
    diagram = superworkflow.build(settings, opened)
    for node in diagram.nodes.values():
        name = chosen.placement(node.name, node.stage.name).engine
        node.stage.check_engine(name, f"profile {chosen.name}: {chosen.path(node.name, node.stage.name)}.engine")
    return Request(
        superworkflow=superworkflow, sources=opened, params=settings, diagram=diagram, store=Store(store),
        profile=chosen, prices=table, registration=registration or Registration(), origins=origins,
    )  # fmt: skip


def read_tables(
    sources: Mapping[str, str], store: str, rehash: bool = False, as_of: str = "", deployed: bool = False
) -> tuple[dict[str, str], dict[str, str]]:
    """Read sources that are tables of databases and lakehouses into the store.

    Args:
        sources: URI or address of each by name.
        store: where snapshots are kept.
        rehash: read tables again that seem unchanged.
        as_of: version or time at which tables of lakehouses are read.
        deployed: addresses come from the caller of a deployment.

    Returns:
        URIs of all sources, and origins of those that were read.

    Raises:
        UserError: a table cannot be read.
    """
    addresses = {name: found for name, uri in sources.items() if (found := TableAddress.parse(uri)) is not None}
    if not addresses and not as_of:
        return dict(sources), {}
    from superworkflow.infra.storage.warehouse.snapshots import TableSnapshots

    with TableSnapshots(store, rehash, as_of) as snapshots:
        taken = snapshots.take({name: replace(each, deployed=deployed) for name, each in addresses.items()})
    uris = {name: each.uri for name, each in taken.items()}
    return {**sources, **uris}, {name: each.origin for name, each in taken.items()}


def check_machine(request: Request) -> None:
    """Refuse what a stage can only fail with, before any stage starts.

    Raises:
        UserError: the profile names no image for a stage that runs in a pod; of one that runs here, a package or an
            extra is not installed, the profile gives a stage GPUs that are not there, or as the stage says.
    """
    profile = request.profile
    for node in request.diagram.nodes.values():
        placement = profile.placement(node.name, node.stage.name)
        name = placement.engine
        try:
            engine(name).check(
                placement.resources, f"profile {profile.name}: {profile.path(node.name, node.stage.name)}"
            )
            if profile.launcher != "process":
                kind = image_kind(node.stage, name)
                if not (placement.image or profile.kubernetes.image_for(kind, placement.resources.gpu.count)):
                    raise no_image(node.name, kind)
                continue
            for package in node.stage.needs:
                if importlib.util.find_spec(package) is None:
                    raise needs_package(package, where=f"stage {node.name}")
            for extra in dict.fromkeys([image_kind(node.stage, name), *engine(name).packages.values()]):
                require_extra(extra)
            check_gpus(placement, f"profile {profile.name}: {profile.path(node.name, node.stage.name)}")
            node.stage.check_machine(node.params)
        except UserError:
            if request.store.find(node.stage.name, node.digest) is None:
                raise


def parameters_of(
    superworkflow: Superworkflow,
    *,
    config: str | None = None,
    assignments: Sequence[str] = (),
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, StageParams]:
    """Validated parameters by prefix, of what `build_request` takes.

    Raises:
        UserError: the first thing that is wrong.
    """
    values = dict(parse_assignments(assignments, superworkflow.models()))
    for prefix, entries in (parameters or {}).items():
        values[prefix] = {**entries, **values.get(prefix, {})}
    return resolve(superworkflow.models(), read_yaml(config) if config else {}, values, config or "")
