"""Registered models in MLflow: which version is in use, which one challenges it, and who decided so, when and why.

| where | what |
| --- | --- |
| alias `current` | the champion; promotion and rollback move it, nothing else does |
| alias `challenger` | the newest model that a run has registered and that is not the champion |
| tags of a version | its datasets, its data, its quality, what was decided of it, each move of `current` to it |
| tag `superworkflow.hold` of the model | a rollback, which holds until a person promotes |
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.registration import MODEL_NAME
from superworkflow.infra.process.identity import user_name
from superworkflow.infra.storage.safe_names import is_digest
from superworkflow.infra.tracking.decision import Decision
from superworkflow.infra.tracking.metric_keys import metric_key, quality_keys, read_keys
from superworkflow.infra.tracking.model_versions import CHALLENGER, CURRENT, Move, Version
from superworkflow.infra.tracking.search_pages import all_pages
from superworkflow.infra.tracking.tags import (
    DATA_TAG,
    DATASETS_TAG,
    DIGEST_TAG,
    read_datasets,
    read_mapping,
    read_texts,
)

HOLD_TAG = "superworkflow.hold"
QUALITY_TAG = "superworkflow.quality"
DECISION_TAG = "superworkflow.decision"
MOVE_TAG = "superworkflow.moved."
"""Prefix of the tags of moves; the time follows."""

Moved = Literal["moved", "held", "changed"]


class ModelRegistry:
    """The registered models of one tracking store.

    Args:
        uri: tracking URI.

    What MLflow refuses is raised as a UserError.
    """

    def __init__(self, uri: str):
        self.uri = uri
        self._client = MlflowClient(uri, registry_uri=uri)

    def listed(self, name: str | None = None) -> dict[str, list[Version]]:
        """Versions of one model, newest first, or of all that runs have registered.

        Raises:
            UserError: there is no such model.
        """
        if name is not None:
            return {name: self.versions(name)}
        found = {each: self.versions(each) for each in self.names()}
        return {each: versions for each, versions in found.items() if any(version.digest for version in versions)}

    def names(self) -> list[str]:
        """Names of all registered models that can be asked for here."""
        with _errors_explained(self.uri):
            found = all_pages(lambda token: self._client.search_registered_models(page_token=token))
            return sorted(each.name for each in found if MODEL_NAME.fullmatch(each.name))

    def versions(self, name: str) -> list[Version]:
        """All versions, newest first.

        Raises:
            UserError: there is no such model.
        """
        with _errors_explained(name):
            filters = f"name = '{self._known(name)}'"
            found = list(all_pages(lambda token: self._client.search_model_versions(filters, page_token=token)))
            aliases = self._client.get_registered_model(name).aliases
        return sorted((_version(each, aliases) for each in found), key=lambda each: -each.version)

    def version(self, name: str, number: int) -> Version:
        """One version.

        Raises:
            UserError: there is no such model or version.
        """
        with _errors_explained(f"{name} version {number}"):
            found = self._client.get_model_version(self._known(name), str(number))
            return _version(found, self._client.get_registered_model(name).aliases)

    def champion(self, name: str) -> Version | None:
        """The version in use; None where there is none yet."""
        return self._by_alias(name, CURRENT)

    def challenger(self, name: str) -> Version | None:
        """The version that challenges it, if one does."""
        return self._by_alias(name, CHALLENGER)

    def hold(self, name: str) -> Move | None:
        """The rollback that holds, if one does."""
        with _errors_explained(name):
            return _move(self._client.get_registered_model(self._known(name)).tags.get(HOLD_TAG, ""))

    def challenge(self, version: Version) -> None:
        """Let a version be the challenger."""
        with _errors_explained(version.name):
            self._client.set_registered_model_alias(version.name, CHALLENGER, str(version.version))

    def note(self, decision: Decision, quality: Mapping[str, float]) -> None:
        """Keep with a version what was decided of it, and its headline figures, where MLflow's pages show them too."""
        name, number = decision.name, str(decision.version)
        with _errors_explained(name):
            for key, value in ((DECISION_TAG, decision.document()), (QUALITY_TAG, dict(quality))):
                self._client.set_model_version_tag(name, number, key, json.dumps(value))
            version = self._client.get_model_version(name, number)
            self._client.update_model_version(name, number, _description(decision, quality, _version(version, {})))
            source = version.source or ""
            if version.run_id and source.startswith("models:/"):
                self._log_quality(version.run_id, source.removeprefix("models:/"), quality)

    def _log_quality(self, run_id: str, model_id: str, quality: Mapping[str, float]) -> None:
        logged = {each.key for each in self._client.get_logged_model(model_id).metrics or ()}
        for key, figure in quality_keys(quality).items():
            if metric_key(key) not in logged and math.isfinite(figure):
                self._client.log_metric(run_id, metric_key(key), figure, model_id=model_id)

    def recorded(self, version: Version) -> dict[str, float]:
        """Figures that the run of a version recorded; empty where that is gone."""
        try:
            return read_keys(self._client.get_run(version.run_id).data.metrics, ())[0]
        except MlflowException:
            return {}

    def promote_instead(self, version: Version, champion: int | None, who: str, why: str) -> Moved:
        """Move `current` for a run, from the version that it was compared with.

        Args:
            version: to be the champion.
            champion: which `current` must be at still; None for none.
            who: see `Move`.
            why: see `Move`.

        Returns:
            `moved`; `held` where a rollback holds; `changed` where `current` has moved to another version.
        """
        if self.hold(version.name) is not None:
            return "held"
        now = self.champion(version.name)
        if (now.version if now else None) != champion:
            return "changed"
        self._move(version, champion, "promoted", who, why)
        if (held := self.hold(version.name)) is not None:  # set in between: the person's decision stands
            with _errors_explained(version.name):
                self._client.set_registered_model_alias(version.name, CURRENT, str(held.version or champion))
            return "held"
        return "moved"

    def promote(self, name: str, number: int | None, why: str, who: str = "") -> Move:
        """Move `current` for a person, which ends a hold.

        Args:
            name: of the model.
            number: of the version; the challenger's when None.
            why: see `Move`.
            who: by default the user of this process.

        Raises:
            UserError: there is no such version, or none challenges the champion.
        """
        before = self.champion(name)
        found = self.challenger(name) if number is None else self.version(name, number)
        if found is None:
            raise UserError("no version challenges the champion", where=name, remedy="Name the version to promote")
        move = self._move(found, before.version if before else None, "promoted", who or user_name(), why)
        with _errors_explained(name):
            if HOLD_TAG in self._client.get_registered_model(name).tags:
                self._client.delete_registered_model_tag(name, HOLD_TAG)
        return move

    def roll_back(self, name: str, number: int | None, why: str, who: str = "") -> Move:
        """Move `current` back for a person, and hold it there until a person promotes.

        Args:
            name: of the model.
            number: of the version; when None the one that was the champion before the present one was promoted.
            why: see `Move`.
            who: by default the user of this process.

        Raises:
            UserError: no champion, no earlier one, or no such version.
        """
        now = self.champion(name)
        if now is None:
            raise UserError("no version is in use", where=name, remedy="`superworkflow models` lists the versions")
        number = number or rollback_target(now)
        if number is None or number == now.version:
            raise UserError(
                f"version {now.version} is in use, and there is nothing before it to return to", where=name,
                remedy="Name the version to return to: `superworkflow models` lists them",
            )  # fmt: skip
        return self._move(self.version(name, number), now.version, "rolled back", who or user_name(), why, hold=True)

    def _move(
        self, version: Version, previous: int | None, kind: str, who: str, why: str, *, hold: bool = False
    ) -> Move:
        """Record the move, then make it: a hold keeps runs from moving the alias before it has moved."""
        name, now = version.name, datetime.now(UTC)
        when = now.isoformat(timespec="seconds")
        move = Move(kind, version.version, previous, who, when, why, version.run_id, version.data)
        text = json.dumps(asdict(move))
        with _errors_explained(name):
            if hold:
                self._client.set_registered_model_tag(name, HOLD_TAG, text)
            self._client.set_model_version_tag(name, str(version.version), f"{MOVE_TAG}{now:%Y%m%dT%H%M%S.%fZ}", text)
            self._client.set_registered_model_alias(name, CURRENT, str(version.version))
            aliases = self._client.get_registered_model(name).aliases
            if str(aliases.get(CHALLENGER)) == str(version.version):
                self._client.delete_registered_model_alias(name, CHALLENGER)
        return move

    def _by_alias(self, name: str, alias: str) -> Version | None:
        with _errors_explained(name):
            try:
                aliases = self._client.get_registered_model(self._known(name)).aliases
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                return None
            if alias not in aliases:
                return None
            return _version(self._client.get_model_version(name, str(aliases[alias])), aliases)

    @staticmethod
    def _known(name: str) -> str:
        """A name that can stand in a filter."""
        if not MODEL_NAME.fullmatch(name):
            raise UserError("not a name that a model can have", where="model", value=name)
        return name


def rollback_target(champion: Version) -> int | None:
    """The version that was the champion before this one was promoted, to which a rollback returns."""
    # Promoting what is in use already, to end a hold, is no change to return from.
    changes = [each.previous for each in champion.moves if each.kind == "promoted"]
    return next((each for each in reversed(changes) if each != champion.version), None)


def _description(decision: Decision, quality: Mapping[str, float], version: Version) -> str:
    """Description of a version, in Markdown."""
    lines = [", ".join(f"`{name}` **{value:.4f}**" for name, value in quality.items()), decision.why]
    lines += [f"- {name}: `{digest[:12]}`" for name, digest in version.data.items()]
    return "\n\n".join([*filter(None, lines[:2]), "\n".join(lines[2:])]).strip()


@contextmanager
def _errors_explained(where: str) -> Iterator[None]:
    try:
        yield
    except MlflowException as error:
        missing = error.error_code == "RESOURCE_DOES_NOT_EXIST"
        raise UserError(
            "no such model or version" if missing else f"MLflow's model registry refuses: {error.message}", where=where,
            remedy="`superworkflow models` lists them" if missing else "Check that the tracking server can be written",
        ) from None  # fmt: skip


def _version(found: ModelVersion, aliases: Mapping[str, Any]) -> Version:
    tags = found.tags
    digest = tags.get(DIGEST_TAG, "")
    moves = [_move(tags[key]) for key in sorted(tags) if key.startswith(MOVE_TAG)]
    return Version(
        name=found.name, version=int(found.version),
        aliases=tuple(sorted(alias for alias, number in aliases.items() if str(number) == str(found.version))),
        run_id=found.run_id or "", digest=digest if is_digest(digest) else "",
        created=datetime.fromtimestamp((found.creation_timestamp or 0) / 1000, UTC),
        datasets=read_datasets(tags.get(DATASETS_TAG, "")),
        data={name: text for name, text in read_texts(tags.get(DATA_TAG, "")).items() if _HEX.fullmatch(text)},
        quality={
            name: float(value)
            for name, value in read_mapping(tags.get(QUALITY_TAG, "")).items()
            if isinstance(value, int | float)
        },
        decision=read_mapping(tags.get(DECISION_TAG, "")), moves=tuple(move for move in moves if move is not None),
    )  # fmt: skip


_HEX = re.compile(r"[0-9a-f]{16,64}")


def _move(text: str) -> Move | None:
    """The move in a tag. One that cannot be read is still one where it is there: a damaged hold holds."""
    if not text:
        return None
    found = read_mapping(text)

    def number(name: str) -> int | None:
        return found[name] if isinstance(found.get(name), int) else None

    words = {name: str(found.get(name, "?"))[:1000] for name in ("kind", "who", "when", "why")}
    given = found.get("data")
    data = {str(key): str(value) for key, value in given.items()} if isinstance(given, dict) else {}
    return Move(version=number("version") or 0, previous=number("previous"), run_id=str(found.get("run_id", "")),
                data=data, **words)  # fmt: skip
