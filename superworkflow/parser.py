"""Parser of the command line: `--help` texts, and suggestions for unknown words.

It is light: `superworkflow --help` imports no more than this.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from superworkflow.infra.contract.params import StageParams


class Parser(argparse.ArgumentParser):
    """Argument parser that suggests the option that was meant.

    Attributes:
        given: the arguments after the command.
        chosen: the parser of the named command, which has its options.
    """

    given: Sequence[str] = ()
    chosen: Parser | None = None

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse the whole command line."""
        return super().parse_args(_one_value_each(args, "--set"), namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2, the usage, and suggestions."""
        if self.chosen is not None:
            self.chosen.error(message)
        from superworkflow.infra.base.suggest import nearest

        options = [option for option in self._option_string_actions if option.startswith("--")]
        hints = {}
        for text in self.given:
            name = text.partition("=")[0]
            if name.startswith("--") and len(name) > 2 and not any(each.startswith(name) for each in options):
                hint = nearest(name, options)
                if hint.endswith("?"):
                    hints[name] = hint
        if hints:
            message += ". " + " ".join(f"{name}: {hint}" if len(hints) > 1 else hint for name, hint in hints.items())
        super().error(message)


def _one_value_each(given: Sequence[str], option: str) -> list[str]:
    """Repeat an option before each of its values, so that it does not take a name that follows them.

    A value after the first is one that looks like an assignment: `--set train.rate=1 train.epochs=2 NAME`.
    """
    words: list[str] = []
    wanted = follows = False  # the option's first value; another value
    for text in given:
        if follows and not text.startswith("-") and ("=" in text or "." in text):
            words += [option, text]
            continue
        wanted, follows = text == option, wanted or text.startswith(f"{option}=")
        words.append(text)
    return words


def asks_for_help(given: Sequence[str]) -> bool:
    """True if help is requested; texts that take time to build are left out otherwise."""
    return "-h" in given or any(len(text) > 2 and "--help".startswith(text) for text in given)


def describe_parameters(
    parser: argparse.ArgumentParser, title: str, models: Mapping[str, type[StageParams]], dotted: bool = True
) -> None:
    """Put parameters, with their values and defaults, below the options of `--help`; a group for each model.

    Args:
        parser: of the command.
        title: heading of the parameters.
        models: parameter models by prefix.
        dotted: put the prefix before each name.
    """
    from superworkflow.infra.contract.params_help import describe_params

    groups = [
        describe_params(model, f"{prefix}." if dotted else "", _width())
        for prefix, model in models.items()
        if model.model_fields
    ]
    _append(parser, f"{title}:\n" + "\n\n".join(groups))


def describe_rows(parser: argparse.ArgumentParser, title: str, rows: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Put names with their paragraphs below the options of `--help`."""
    from superworkflow.infra.contract.params_help import describe

    _append(parser, f"{title}:\n{describe(rows, _width())}")


def _append(parser: argparse.ArgumentParser, text: str) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"{parser.epilog}\n\n{text}" if parser.epilog else text


def _width() -> int:
    return shutil.get_terminal_size().columns - 2
