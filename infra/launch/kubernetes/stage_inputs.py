"""Inputs that pods can read: files of this machine only where a volume shows them."""

from __future__ import annotations

from dataclasses import replace

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.store import Store
from superworkflow.infra.storage.table_files import is_elsewhere


def make_visible(call: StageCall, settings: KubernetesSettings) -> StageCall:
    """The call with every input at a place that its pod can read; sources of this machine go to the store.

    Raises:
        UserError: the store itself is a folder that pods do not see.
    """
    store = call.place.store
    if store.local_path is not None and not settings.covers(store.uri):
        raise UserError(
            "this folder is not visible to pods", where=store.uri,
            remedy="Use a store such as s3://bucket/prefix, or name the folder in the profile's kubernetes.volumes",
        )  # fmt: skip
    inputs = {name: _visible(uri, call.sources.get(name), store, settings) for name, uri in call.inputs.items()}
    return replace(call, inputs=inputs)


def _visible(uri: str, source: Source | None, store: Location, settings: KubernetesSettings) -> str:
    path = Location.of(uri).local_path
    if source is None:
        is_seen = path is None or settings.covers(str(path)) or not path.is_file()
        return uri if is_seen else Store(store.uri).keep_source(Source.of(uri))
    unseen = [each.location for each in source.members.values() if not _is_seen(each.location, settings)]
    if unseen and path is None:
        raise UserError(
            "pods do not see a table on this machine that a remote description names", where=uri, value=unseen[0].uri,
            remedy="Put the table next to the description, or name its folder in the profile's kubernetes.volumes",
        )  # fmt: skip
    if not unseen:
        return uri
    elsewhere = [each.location for name, each in source.members.items() if is_elsewhere(name)]
    return Store(store.uri).keep_source(source, elsewhere=not all(_is_seen(each, settings) for each in elsewhere))


def _is_seen(place: Location, settings: KubernetesSettings) -> bool:
    return place.local_path is None or settings.covers(place.uri)
