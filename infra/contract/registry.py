"""Registry of stages or superworkflows: modules of a package, plus entry points of installed packages."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any, Generic, TypeVar

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.storage.safe_names import is_word

T = TypeVar("T")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Definitions of one kind.

    Args:
        what: noun for one of them, for messages.
        kind: their type.
        room: package whose modules define one each.
        path: folders of that package.
        attribute: name of the definition in its module.
        group: of the entry points, each with the name of what it defines and `module` or `module:attribute`.
        others: modules of the package that define none.
    """

    what: str
    kind: type[Any]
    room: str
    path: Sequence[str]
    attribute: str
    group: str
    others: tuple[str, ...] = ()

    def shipped(self) -> list[str]:
        """Names of those that come with this project; nothing is imported."""
        found = (module.name for module in pkgutil.iter_modules(self.path))
        return sorted(name for name in found if not name.startswith("_") and name not in self.others)

    def names(self) -> list[str]:
        """All names; nothing is imported."""
        return sorted({*self.shipped(), *(each.name for each in self._points())})

    def origins(self, name: str) -> list[str]:
        """Packages that define this name, for people."""
        found = ["superworkflow itself"] if name in self.shipped() else []
        return found + [_origin(each) for each in self._points(name)]

    def load(self, name: str) -> T:
        """The definition of this name.

        Raises:
            UserError: there is none, there are several, or its module cannot be imported.
        """
        shipped, points = name in self.shipped(), self._points(name)
        if not (shipped or points):
            raise UserError(f"no such {self.what}", where=name, remedy=nearest(name, self.names()))
        if shipped + len(points) > 1:
            raise UserError(
                f"this {self.what} is defined by {' and by '.join(self.origins(name))}", where=name,
                remedy="Give one of them another name, or uninstall one package",
            )  # fmt: skip
        return self.load_shipped(name) if shipped else self._of_point(points[0])

    def load_shipped(self, name: str) -> T:
        """The definition of a name that is known to be one of `shipped`."""
        return self._checked(importlib.import_module(f"{self.room}.{name}"), name, self.room)

    def _of_point(self, point: EntryPoint) -> T:
        where = f"{self.what} {point.name} of {_origin(point)}"
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:
            raise UserError(
                f"cannot be imported: {type(error).__name__}: {error}", where=where, value=point.value,
                remedy="Repair or uninstall that package; what others define is not affected",
            ) from error  # fmt: skip
        if not is_word(point.name):
            raise UserError("not a name", where=where, value=point.name,
                            remedy="Give a word of small letters, digits and _")  # fmt: skip
        return self._checked(loaded, point.name, where)

    def _checked(self, found: Any, name: str, where: str) -> T:
        if isinstance(found, ModuleType):
            found = getattr(found, self.attribute, None)
        if not isinstance(found, self.kind):
            raise UserError(f"is no {self.what}", where=where, value=type(found).__name__,
                            remedy=f"Name a module with a {self.attribute}, or `module:name`")  # fmt: skip
        if found.name != name:
            raise UserError(f"defines a {self.what} of another name", where=where, value=found.name,
                            remedy="Give both the same name")  # fmt: skip
        return found  # type: ignore[no-any-return]

    def _points(self, name: str | None = None) -> list[EntryPoint]:
        return [each for each in _entry_points(self.group, tuple(sys.path)) if name in (None, each.name)]


@functools.cache
def _entry_points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Entry points of a group with such a path; the same one found twice is one."""
    found = {(each.name, each.value): each for each in importlib.metadata.entry_points(group=group)}
    return tuple(sorted(found.values(), key=lambda each: (each.name, each.value)))


def _origin(point: EntryPoint) -> str:
    package = point.dist
    return f"package {package.name} {package.version}" if package is not None else f"an unnamed package ({point.value})"
