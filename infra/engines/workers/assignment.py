"""Assignment of the members of an elastic role to the ranks that give them tasks themselves.

A rank says how many members it wants and where it listens (`served_members`); the coordinator has as many come, as far
as the role allows, and names a rank for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from superworkflow.infra.engines.workers.channel import SERVE, Message
from superworkflow.infra.engines.workers.elastic_role import ElasticRole


class Wish(BaseModel, frozen=True, extra="forbid", strict=True):
    """Number of members that a rank wants, 0 for none any more, and those that hang."""

    kind: Literal["serve"]
    role: str = Field(max_length=63)
    address: str = Field(max_length=300)
    count: int = Field(ge=0)
    hosts: list[str] = []  # pydantic copies it
    processes: list[int] = []


class Assignment:
    """Members of a role and ranks.

    Args:
        role: the role.
        send: sends to a member.
    """

    def __init__(self, role: ElasticRole, send: Callable[[bytes, Mapping[str, Any]], bool]):
        self._role, self._send, self._wishes = role, send, dict[int, Wish]()

    def take(self, rank: int, message: Message) -> None:
        """Take what a rank wishes; anything else is dropped."""
        try:
            wish = Wish.model_validate(dict(message.header))
        except ValidationError:
            return
        self._wishes.pop(rank, None)
        if wish.count:
            self._wishes[rank] = wish
            self._role.scale(max(1, min(self._role.most, sum(each.count for each in self._wishes.values()))))
        if hanging := [*zip(wish.hosts, wish.processes, strict=False)]:
            self._role.replace(hanging)

    def clear(self) -> None:
        """Forget all wishes: these ranks have ended."""
        self._wishes.clear()

    def look(self) -> None:
        """Have members serve ranks as they wish."""
        members = self._role.staying
        wanted = {wish.address: wish.count for _, wish in sorted(self._wishes.items())}
        for member, address in zip(members, assigned(wanted, [each.serves for each in members]), strict=True):
            if member.serves != address and self._send(member.address, {"kind": SERVE, "address": address}):
                member.serves = address


def assigned(wanted: Mapping[str, int], serving: Sequence[str]) -> list[str]:
    """Addresses that members are to serve, with as few changes as there may be.

    Each address gets a share of the members in proportion to its wish, by largest remainders.

    Args:
        wanted: members that each address wants, at least 1.
        serving: address that each member serves, empty for none.

    Returns:
        The same for each member from now on; those that nobody wants stay where they are if they can.
    """
    total = sum(wanted.values())
    there = min(len(serving), total)
    shares = {address: there * count // total for address, count in wanted.items()}
    left = sorted(wanted, key=lambda address: -(there * wanted[address] % total))
    for address in left[: there - sum(shares.values())]:
        shares[address] += 1
    found: list[str | None] = []
    for address in serving:
        stays = shares.get(address, 0) > 0
        found.append(address if stays else None)
        if stays:
            shares[address] -= 1
    free = [address for address, count in shares.items() for _ in range(count)]
    for number, address in enumerate(serving):
        if found[number] is None:
            found[number] = free.pop(0) if free else address if address in wanted else ""
    return [address or "" for address in found]
