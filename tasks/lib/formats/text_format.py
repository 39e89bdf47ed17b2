"""Protocol buffers' text format, read without their compiler: messages of named fields, each with its line.

Which fields a message may have is for its reader to say (`TextMessage.check`). Extensions and `Any` are not read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from superworkflow.infra.base.errors import UserError

MOST_DEPTH = 50
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\v\f]+|\#[^\n]*)|(?P<newline>\n)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>-?[ \t]*(?:0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
        (?![A-Za-z0-9_.]))
    |(?P<word>-?[ \t]*[A-Za-z_][A-Za-z0-9_]*)|(?P<mark>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))
_ENDS = {"{": "}", "<": ">"}


class Token(NamedTuple):
    """A piece of text: string, number, word, mark or, at the end, `end`."""

    kind: str
    text: str
    line: int


class TextMessage:
    """A message: its fields in their order, by name a list of values.

    Args:
        where: the file, for errors.
        line: at which it begins.
    """

    def __init__(self, where: str, line: int = 1):
        self.where, self.line = where, line
        self.fields: dict[str, list[Token | TextMessage]] = {}

    def check(self, names: Collection[str], kind: str) -> None:
        """Refuse fields that such a message does not have.

        Raises:
            UserError: names the first one.
        """
        for name, values in self.fields.items():
            if name not in names:
                line = values[0].line if values else self.line
                raise self.fault(f"a {kind} has no such field", line, name, f"It has: {', '.join(names)}")

    def messages(self, name: str) -> list[TextMessage]:
        """The messages in a repeated field.

        Raises:
            UserError: one is something else.
        """
        messages = []
        for each in self.fields.get(name, []):
            if not isinstance(each, TextMessage):
                raise self._wrong(name, each, "a message { … }")
            messages.append(each)
        return messages

    def message(self, name: str) -> TextMessage | None:
        """The message in a field; None where there is none.

        Raises:
            UserError: there are several, or it is something else.
        """
        self._one(name)
        return next(iter(self.messages(name)), None)

    def texts(self, name: str) -> list[str]:
        """The strings in a repeated field.

        Raises:
            UserError: one is something else, or not UTF-8.
        """
        return [self._text(name, each) for each in self.fields.get(name, [])]

    def text(self, name: str, default: str = "") -> str:
        """The string in a field.

        Raises:
            UserError: there are several, or it is something else.
        """
        value = self._one(name)
        return default if value is None else self._text(name, value)

    def word(self, name: str, default: str = "") -> str:
        """The name of an enum's value, or its number as text.

        Raises:
            UserError: there are several, or it is something else.
        """
        value = self._one(name)
        if value is None:
            return default
        if isinstance(value, Token) and value.kind in ("word", "number"):
            return value.text
        raise self._wrong(name, value, "the name of a value")

    def number(self, name: str, default: int | None = None) -> int | None:
        """The whole number in a field.

        Raises:
            UserError: there are several, or it is something else.
        """
        value = self._one(name)
        if value is None:
            return default
        if isinstance(value, Token) and value.kind == "number":
            text = value.text.replace(" ", "").replace("\t", "")
            digits = text.lstrip("-")
            octal = len(digits) > 1 and digits.isdigit() and digits.startswith("0")
            try:
                return int(text, 8 if octal else 0)
            except ValueError:
                pass
        raise self._wrong(name, value, "a whole number")

    def flag(self, name: str, default: bool = False) -> bool:
        """The truth value in a field.

        Raises:
            UserError: there are several, or it is something else.
        """
        value = self._one(name)
        if value is None:
            return default
        words = {
            "true": True,
            "True": True,
            "t": True,
            "1": True,
            "false": False,
            "False": False,
            "f": False,
            "0": False,
        }
        if isinstance(value, Token) and value.kind in ("word", "number") and value.text in words:
            return words[value.text]
        raise self._wrong(name, value, "true or false")

    def line_of(self, name: str) -> int:
        """Line of a field; that of the message where it has none."""
        values = self.fields.get(name)
        return values[0].line if values else self.line

    def fault(self, what: str, line: int, value: object, remedy: str) -> UserError:
        """The error for something in this message."""
        return UserError(what, where=f"{self.where}:{line}", value=value, remedy=remedy)

    def _one(self, name: str) -> Token | TextMessage | None:
        values = self.fields.get(name, [])
        if len(values) > 1:
            raise self.fault("the field occurs twice", values[1].line, name, "Give it once")
        return values[0] if values else None

    def _text(self, name: str, value: Token | TextMessage) -> str:
        if isinstance(value, TextMessage) or value.kind != "string":
            raise self._wrong(name, value, "a string in quotes")
        return value.text

    def _wrong(self, name: str, value: Token | TextMessage, wanted: str) -> UserError:
        given = "a message" if isinstance(value, TextMessage) else value.text[:100]
        return self.fault(f"{name} is {wanted}", value.line, given, "Correct it")


def parse(text: str, where: str) -> TextMessage:
    """The message in a text.

    Args:
        text: of the message.
        where: its name for people.

    Raises:
        UserError: it is not text format; names the line.
    """
    return _Parser(text, where).message()


def quoted(text: str) -> str:
    """A string as text format has it: UTF-8, with what cannot stand in quotes escaped."""
    plain = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\{ord(found[0]):03o}", plain) + '"'


class _Parser:
    def __init__(self, text: str, where: str):
        self._where = where
        self._tokens = self._scanned(text.removeprefix("\ufeff"))
        self._next = next(self._tokens)

    def message(self) -> TextMessage:
        message = TextMessage(self._where)
        self._fields(message, "", 0)
        return message

    def _scanned(self, text: str) -> Iterator[Token]:
        at, line = 0, 1
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._fault(line, text[at : at + 20].split("\n")[0])
            at, kind = found.end(), found.lastgroup or ""
            if kind == "newline":
                line += 1
            elif kind == "string":
                yield Token(kind, self._unescaped(found[0][1:-1], line), line)
            elif kind != "blank":
                yield Token(kind, found[0], line)
        while True:
            yield Token("end", "the end of the file", line)

    def _unescaped(self, text: str, line: int) -> str:
        def replaced(found: re.Match[bytes]) -> bytes:
            octal, hexadecimal, short, long, letter = found.groups()
            if octal or hexadecimal:
                return bytes([int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)])
            if short or long:
                return chr(int(short or long, 16)).encode()
            return bytes([_LETTERS[letter[0]]])

        try:
            return _ESCAPE.sub(replaced, text.encode()).decode()
        except (KeyError, ValueError, OverflowError):
            raise self._fault(line, text[:100], "a string has a bad escape, or is not UTF-8") from None

    def _take(self) -> Token:
        token, self._next = self._next, next(self._tokens)
        return token

    def _took(self, *marks: str) -> bool:
        if self._next.kind == "mark" and self._next.text in marks:
            self._take()
            return True
        return False

    def _fields(self, message: TextMessage, end: str, depth: int) -> None:
        while True:
            token = self._take()
            if token.kind == "mark" and token.text == end:
                return
            if token.kind == "end" and not end:
                return
            if token.kind != "word" or token.text.startswith("-"):
                raise self._fault(token.line, token.text)
            values = message.fields.setdefault(token.text, [])
            colon = self._took(":")
            if self._took("["):
                while not self._took("]"):
                    values.append(self._value(depth, True))
                    if not self._took(",") and self._next.text != "]":
                        raise self._fault(self._next.line, self._next.text)
            else:
                values.append(self._value(depth, colon))
            self._took(",", ";")

    def _value(self, depth: int, scalar: bool) -> Token | TextMessage:
        token = self._take()
        if token.kind == "mark" and token.text in _ENDS:
            if depth == MOST_DEPTH:
                raise self._fault(token.line, token.text, f"messages are nested more than {MOST_DEPTH} deep")
            message = TextMessage(self._where, token.line)
            self._fields(message, _ENDS[token.text], depth + 1)
            return message
        if not scalar or token.kind in ("mark", "end"):
            raise self._fault(token.line, token.text)
        if token.kind == "string":
            while self._next.kind == "string":  # adjacent ones are one
                token = token._replace(text=token.text + self._take().text)
        return token

    def _fault(self, line: int, value: str, what: str = "not protocol buffers' text format") -> UserError:
        return UserError(what, where=f"{self._where}:{line}", value=value, remedy="Correct the syntax")
