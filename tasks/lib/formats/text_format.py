"""Protocol buffers' text format, by protobuf's own reader and writer, with kinds of messages that are described here.

The reader keeps no places, so that each message has a field `line`, which is set after it has been read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest

_LINE, _LINE_NUMBER = "line", 1000
_TOKEN = re.compile(
    r"""\#[^\n]*|(?P<newline>\n)|(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<word>\w+)|(?P<mark>[{}<>])""",
    re.VERBOSE,
)
_BAD_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?![0-7xuUabfnrtv\\'\"])")
_PREFIX = r"(?:\d+:\d+ : |': )"
_NO_FIELD = re.compile(_PREFIX + r'Message type "(\w+)" has no field named "(.*)"\.$')
_TWICE = re.compile(_PREFIX + r'Message type "\w+" should not have multiple "(\w+)" fields\.$')
_NO_VALUE = re.compile(_PREFIX + r'Enum type "(\w+)" has no value (?:named|with number) (.*)\.$')


def message_class(root: str, messages: Mapping[str, str], enums: Mapping[str, Sequence[str]]) -> Callable[..., Any]:
    """Make the class of a kind of messages.

    Args:
        root: its name.
        messages: fields of each kind in the order in which they are written, such as ``name: string, dims: dim*``,
            where a star is for a repeated one. Errors name a kind by its words.
        enums: names of the values, numbered from 0.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{root}.proto", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": kinds.TYPE_STRING, "int64": kinds.TYPE_INT64, "bool": kinds.TYPE_BOOL}
    for name, values in enums.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for name, fields in messages.items():
        added = file.message_type.add(name=name).field
        for number, (field, kind) in enumerate((each.split(": ") for each in fields.split(", ")), 1):
            plain = kind.removesuffix("*")
            added.add(
                name=field, number=number, label=kinds.LABEL_OPTIONAL if plain == kind else kinds.LABEL_REPEATED,
                type=scalars.get(plain, kinds.TYPE_ENUM if plain in enums else kinds.TYPE_MESSAGE),
                type_name=None if plain in scalars else f".{plain}",
            )  # fmt: skip
        added.add(name=_LINE, number=_LINE_NUMBER, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_INT32)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made: Callable[..., Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName(root))
    return made


def parse(text: str, where: str, message: Any, owner: Callable[[], str] = str) -> None:
    """Read a message from text.

    Args:
        text: of the message.
        where: names it in errors.
        message: an empty one, which is filled; `line` of each message in it is that of its opening bracket.
        owner: names what has been read last, for the error of an enum's unknown value; it follows the line.

    Raises:
        UserError: names the line at which it is not such a message in text format.
    """
    text = text.removeprefix("\ufeff")
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise _fault(error, where, message.DESCRIPTOR.file, owner) from None
    _set_lines(text, where, message)


def written(message: Any) -> str:
    """A message as text in UTF-8, single quotes plain, since only double ones are used around strings."""
    text: str = text_format.MessageToString(message, as_utf8=True)
    return text.replace("\\'", "'")


def _fault(error: text_format.ParseError, where: str, file: Any, owner: Callable[[], str]) -> UserError:
    text, where = str(error), f"{where}:{error.GetLine() or 1}"
    if found := _NO_FIELD.search(text):
        names = [each for each in file.message_types_by_name[found[1]].fields_by_name if each != _LINE]
        what = f"a {found[1].replace('_', ' ')} has no such field"
        return UserError(what, where=where, value=found[2], remedy=f"It has: {', '.join(names)}")
    if found := _TWICE.search(text):
        return UserError("the field occurs twice", where=where, value=found[1], remedy="Give it once")
    if found := _NO_VALUE.search(text):
        names = list(file.enum_types_by_name[found[1]].values_by_name)
        what = f"unknown {found[1].replace('_', ' ')}"
        return UserError(what, where=where + owner(), value=found[2], remedy=nearest(found[2], names))
    if "Couldn't parse string" in text:
        return _bad_string(where, text.rpartition(": ")[2])
    what = f"not protocol buffers' text format: {text.rpartition(chr(39) + ': ')[2]}"
    return UserError(what, where=where, remedy="Correct the syntax")


def _bad_string(where: str, value: str) -> UserError:
    what = "a string has a bad escape, or is not UTF-8"
    return UserError(what, where=where, value=value[:100], remedy="Correct the syntax")


def _set_lines(text: str, where: str, message: Any) -> None:
    """Set `line` of all messages that were read from a text."""
    line, word = 1, ""
    stack = [(message, Counter[str](), word)]
    message.line = line
    for token in _TOKEN.finditer(text):
        if token["newline"]:
            line += 1
        elif token["word"]:
            word = token["word"]
        elif token["string"] and _BAD_ESCAPE.search(token["string"]):  # the reader lets it stand
            raise _bad_string(f"{where}:{line}", token["string"])
        elif token["mark"] in ("{", "<"):
            outer, counts, _ = stack[-1]
            stack[-1] = (outer, counts, word)
            inner = getattr(outer, word)
            if outer.DESCRIPTOR.fields_by_name[word].is_repeated:
                inner = inner[counts[word]]
                counts[word] += 1
            inner.line = line
            stack.append((inner, Counter(), word))
        elif token["mark"]:
            stack.pop()
            word = stack[-1][2]  # the next one of a list has the same
