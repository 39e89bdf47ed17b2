"""Notifications for runs that need attention: an automation of Prefect's server calls a webhook or another block.

The server watches the runs, so notifications are sent even where no process of the run is left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from uuid import UUID

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.actions import ActionTypes, CallWebhook, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound
from prefect.types import SecretDict
from pydantic import SecretStr

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.orchestration.deployed_run import REJECTED_TAG
from superworkflow.infra.orchestration.server import page

STATES = ("Failed", "Crashed", "TimedOut", "Late")
"""States that send a notification; a run whose model was rejected is `Failed`, and said to be `Rejected`."""
EVENTS = ("superworkflow.budget.near-budget", "superworkflow.budget.paused-by-budget")
"""Events of budgets that send one as well; see `infra.orchestration.budget`."""
NO_TARGET = "none"
"""In place of a target: removes the notifications."""

_ENDED = "event.event.split('.')[-1]"
_STATE = f"('Rejected' if {_ENDED} == 'Failed' and '{REJECTED_TAG}' in flow_run.tags else {_ENDED})"
_MESSAGE = "(event.payload.message or flow_run.state.message)"
_URL = "(page ~ flow_run.id|string)"
_TEXT = f"{{{{ deployment.name }}}}: {{{{ flow_run.name }}}} is {{{{ {_STATE} }}}}"
_SUBJECT = f"{{{{ deployment.name }}}}: {{{{ {_STATE} }}}}"
_BODY = f"{_TEXT}{{% if {_MESSAGE} %}}: {{{{ {_MESSAGE} }}}}{{% endif %}}\n{{{{ {_URL} }}}}"
_FIELDS = {
    "text": f"deployment.name ~ ': ' ~ flow_run.name ~ ' is ' ~ {_STATE} ~ ': ' ~ ({_MESSAGE} or '') ~ ' ' ~ {_URL}",
    "state": _STATE,
    "deployment": "deployment.name",
    "flow_run": "flow_run.name",
    "flow_run_id": "flow_run.id|string",
    "message": _MESSAGE,
    "url": _URL,
}
"""JSON body of a webhook; chat servers' incoming webhooks read its `text`."""
_PAYLOAD = "{" + ", ".join(f'"{name}": {{{{ ({value})|tojson }}}}' for name, value in _FIELDS.items()) + "}"
_BLOCK = re.compile(r"([a-z0-9-]+)/([a-z0-9-]+)")


def check_targets(targets: Sequence[str]) -> None:
    """Refuse what names neither a webhook nor a block.

    Raises:
        UserError: the first that does not; a URL is not repeated, since it may hold a secret.
    """
    for target in targets:
        if target == NO_TARGET and len(targets) > 1:
            raise UserError("not together with others", where="--notify", value=NO_TARGET)
        if not (target == NO_TARGET or target.startswith(("http://", "https://")) or _BLOCK.fullmatch(target)):
            raise UserError(
                "neither a URL nor a block", where="--notify", value=target if "://" not in target else None,
                remedy="Give the URL of a webhook, or TYPE/NAME of a block on Prefect's server: slack-webhook/team",
            )  # fmt: skip


def set_notifications(
    client: SyncPrefectClient, title: str, deployments: Sequence[UUID], targets: Sequence[str]
) -> None:
    """Create, replace or remove the automation that sends a deployment's notifications.

    Args:
        client: of the server.
        title: of the deployment, `SUPERWORKFLOW/NAME`.
        deployments: ids of the deployments whose runs are watched.
        targets: URLs of webhooks, for each of which a block is made, and blocks that are there; none to remove it.

    Raises:
        UserError: there is no such block.
    """
    name = f"superworkflow {title}"
    actions = [_action(client, target, _slug(f"{name}-{number}")) for number, target in enumerate(targets, 1)]
    trigger = EventTrigger(
        expect={*(f"prefect.flow-run.{state}" for state in STATES), *EVENTS},
        match={"prefect.resource.id": "prefect.flow-run.*"}, match_related=of_deployments(deployments),
        for_each={"prefect.resource.id"}, posture=Posture.Reactive, threshold=1,
    )  # fmt: skip
    description = f"Notifies of runs that are {', '.join(STATES[:-1])} or {STATES[-1]}."
    automation = AutomationCore(
        name=name, description=description, tags=["superworkflow"], trigger=trigger, actions=actions
    )
    replace_automation(client, automation, keep=bool(actions))


def of_deployments(deployments: Sequence[UUID]) -> ResourceSpecification:
    """Filter of events: runs of these deployments."""
    return ResourceSpecification.model_validate(
        {
            "prefect.resource.role": "deployment",
            "prefect.resource.id": [f"prefect.deployment.{each}" for each in deployments],
        }
    )


def replace_automation(client: SyncPrefectClient, automation: AutomationCore, *, keep: bool) -> None:
    """Replace the automations of this name by this one, or by none."""
    for old in client.read_automations_by_name(automation.name):
        client.delete_automation(old.id)
    if keep:
        client.create_automation(automation)


def _action(client: SyncPrefectClient, target: str, slug: str) -> ActionTypes:
    match = _BLOCK.fullmatch(target)
    # The server itself may not know the address at which people open its pages.
    where = f"{{% set page = {json.dumps(page('runs/flow-run/'))} %}}"
    if match is None:
        headers = SecretDict({"Content-Type": "application/json"})
        block = Webhook(url=SecretStr(target), headers=headers).save(slug, overwrite=True)
        assert isinstance(block, UUID)  # its own type says that it may be awaited
        return CallWebhook(block_document_id=block, payload=where + _PAYLOAD)
    kind, name = match.groups()
    try:
        found = client.read_block_document_by_name(name, kind).id
    except ObjectNotFound:
        raise UserError(
            "Prefect's server has no such block", where="--notify", value=target,
            remedy="Make it on the page Blocks, or give the URL of a webhook",
        ) from None  # fmt: skip
    if kind == "webhook":
        return CallWebhook(block_document_id=found, payload=where + _PAYLOAD)
    return SendNotification(block_document_id=found, subject=_SUBJECT, body=where + _BODY)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
