"""The reference pages that are made from the code: `make docs`, or `python -m superworkflow.reference`.

`docs/cli.md` comes from the parsers of the command line; `docs/profiles.md` and the JSON schema that editors read from
the models of profiles. A test fails while one of them is not what this module makes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from superworkflow.__main__ import COMMANDS, build_parser
from superworkflow.arguments import add_request_arguments
from superworkflow.commands.sweep import ACTIONS
from superworkflow.flows import load_superworkflow, superworkflow_names
from superworkflow.infra.config.profile import FOLDER, Profile
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.params_help import param_rows, values_text
from superworkflow.infra.contract.resources import QUANTITY, Resources
from superworkflow.infra.engines import engines
from superworkflow.parser import Parser
from superworkflow.tasks import load_stage, stage_names

ROOT = Path(__file__).parents[1]
SCHEMA = FOLDER / "profile.schema.json"
MARK = "<!-- Below this line the page is made by `make docs`. -->"
NAMED = ("run", "plan", "explain", "sweep", "deploy")
"""Commands whose arguments name a superworkflow and what it runs on."""

Schema = dict[str, Any]


def pages() -> dict[Path, str]:
    """Content of each generated file."""
    profiles = ROOT / "docs" / "profiles.md"
    written = profiles.read_text().partition(MARK)[0] if profiles.is_file() else ""
    return {
        ROOT / "docs" / "cli.md": command_line_page(),
        profiles: f"{written}{MARK}\n\n{profile_tables()}",
        SCHEMA: json.dumps(profile_schema(), indent=1, ensure_ascii=False) + "\n",
    }


def profile_schema() -> Schema:
    """JSON schema of a profile file.

    It differs from the model's own in what loading does before: sizes may be `auto`, the file gives the name, and what
    an entry of `stages` leaves out comes from `default`.
    """
    schema = Profile.model_json_schema()
    definitions: dict[str, Schema] = schema["$defs"]
    for name in ("cpu", "memory"):
        definitions["Resources"]["properties"][name]["anyOf"].append({"const": "auto"})
    for role in dict.fromkeys(role for engine in engines() for role in engine.roles):
        group = definitions["Resources"]["properties"][Resources.path(role)]
        names = " or ".join(f"`{engine.name}`" for engine in engines() if role in engine.roles)
        group["description"] = f"{str(group['description']).rstrip('.')} (engine {names})."
        for several in [each for each in group.get("anyOf", ()) if "patternProperties" in each]:
            several["additionalProperties"] = False
            group["anyOf"].insert(0, *several["patternProperties"].values())  # those of one role need not name it
    del definitions["Placement"]["properties"]["auto"]
    for each in (schema, definitions["Executors"], definitions["Workers"]):
        del each["required"]
    for each in (schema, *definitions.values()):
        for entry in each["properties"].values():
            entry.pop("title", None)  # the key again, in capitals
            if isinstance(entry.get("default"), dict | None):
                entry.pop("default", None)  # those of its own keys say the same, or it is that the key is left out
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def profile_tables() -> str:
    """A table of keys for the profile and for each mapping in it."""
    schema = profile_schema()
    definitions: Mapping[str, Schema] = schema["$defs"]
    parts = [
        ("Profile", "The file", schema),
        ("Placement", "`default`, and each entry of `stages`", definitions["Placement"]),
        ("Resources", "`resources`", definitions["Resources"]),
        ("Gpu", "`resources.gpu`", definitions["Gpu"]),
        ("Executors", "`resources.executors`", definitions["Executors"]),
        ("Workers", "`resources.workers`, or each role in it", definitions["Workers"]),
        ("Endpoint", "`resources.endpoints`, each role", definitions["Endpoint"]),
        ("KubernetesSettings", "`kubernetes`", definitions["KubernetesSettings"]),
        ("Volume", "`kubernetes.volumes`, each", definitions["Volume"]),
        ("Toleration", "`kubernetes.tolerations`, each", definitions["Toleration"]),
    ]
    if missing := set(definitions) - {name for name, _, _ in parts}:
        raise ValueError(f"no table for {sorted(missing)}")
    tables = []
    for _, title, part in parts:
        rows = [
            (f"`{name}`", _kind(entry), _default(name, entry, part), str(entry.get("description", "")))
            for name, entry in part["properties"].items()
        ]
        tables.append(f"## {title}\n\n{_table(('key', 'value', 'default', 'meaning'), rows)}")
    return "\n".join(tables)


def _kind(entry: Schema) -> str:
    """Type of a key of a profile."""
    if "$ref" in entry:
        return "mapping"
    options: list[Schema] = entry.get("anyOf", [])
    if QUANTITY in options:
        return "size" + "".join(f" or `{each['const']}`" for each in options if "const" in each)
    if options:
        kinds = [_kind(each) for each in options if each != {"type": "null"}]
        return " or ".join(f"`{kind}`" if kind in ("all", "auto") else kind for kind in kinds)
    if entry.get("type") == "object":
        return "mapping"
    if entry.get("type") == "array":
        return "list"
    return values_text(entry)


def _default(name: str, entry: Schema, part: Schema) -> str:
    if name in part.get("required", ()):
        return "required"
    value = entry.get("default")
    if value is None or value == "":
        return ""
    if QUANTITY in entry.get("anyOf", []):
        return f"{value >> 30}Gi" if value else "0"
    return f"`{value}`" if isinstance(value, str) else json.dumps(value)


def command_line_page() -> str:
    """The page of the command line."""
    common = Parser(prog="superworkflow")
    add_request_arguments(common, superworkflow_names()[:1])
    chosen = load_superworkflow(superworkflow_names()[0])
    own = {f"--{name}" for name in (*chosen.sources, *chosen.flags)}
    lines = [
        "# Command line", "",
        "Made from the parsers by `make docs`; `superworkflow COMMAND --help` says the same. Exit status: 0 success, "
        "1 a stage failed or a sweep stopped early, 2 bad input, 3 the model of a complete run was rejected, 130 and "
        "143 stopped by SIGINT and SIGTERM.", "",
        _table(("command", "purpose"), [(f"[`{name}`](#{name})", text) for name, text in COMMANDS.items()]),
        "## What to run", "",
        f"{', '.join(f'`{name}`' for name in NAMED[:-1])} and `{NAMED[-1]}` take the name of a superworkflow, its own "
        "options (below), and:", "",
        _arguments(action for action in _actions(common) if not own & set(action.option_strings)),
    ]  # fmt: skip
    shared = {text for action in _actions(common) for text in action.option_strings}
    for command, text in COMMANDS.items():
        lines += [f"## {command}", "", f"{text[0].upper()}{text[1:]}.", ""]
        given = [command, *superworkflow_names()[:1]] if command in NAMED else [command]
        rows = list(_actions(_parser(given)))
        if command in NAMED:
            lines += [f"`superworkflow {command} NAME …` takes [what to run](#what-to-run) and:", ""]
            rows = [each for each in rows if each.option_strings and not shared & set(each.option_strings)]
        lines += [_arguments(rows)]
        if command == "sweep":
            lines += _study_actions()
    for name in superworkflow_names():
        lines += _superworkflow(name)
    lines += ["## Stages", "", "What `superworkflow stage NAME` reads (`--input NAME=URI`); parameters as above.", ""]
    inputs = [
        (f"`{stage}`", f"`{name}`", f"{given.help} ({'optional' if given.optional else 'required'})")
        for stage in stage_names()
        for name, given in load_stage(stage).inputs.items()
    ]
    lines += [_table(("stage", "input", "what"), inputs)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _study_actions() -> list[str]:
    parser = _parser(["sweep", "plot"])
    rows = [each for each in _actions(parser) if each.option_strings]
    actions = [(f"`sweep {name} STUDY`", text) for name, text in ACTIONS.items()]
    note = "`resume` also takes the options of a new sweep from `--trials` on, and `--code FILE` where a file defines"
    note += " the superworkflow. The others take:"
    return [_table(("action", "purpose"), actions), note, "", _arguments(rows)]


def _superworkflow(name: str) -> list[str]:
    chosen = load_superworkflow(name)
    lines = [f"## Superworkflow {name}", "", f"{chosen.help[0].upper()}{chosen.help[1:]}.", ""]
    options = [
        (f"`--{source} {'RUN' if source in chosen.datasets else 'FILE'}`",
         f"{text} ({'optional' if source in chosen.optional else 'required'})")
        for source, text in chosen.sources.items()
    ]  # fmt: skip
    options += [
        (f"`{f'--{flag} {definition.metavar}'.rstrip()}`", f"{definition.help}; `{definition.parameter}`")
        for flag, definition in chosen.flags.items()
    ]
    lines += [_table(("option", "meaning"), options)]
    for prefix, model in chosen.models().items():
        if model.model_fields:
            lines += [f"### {prefix}", "", _parameters(model, prefix)]
    return lines


def _parameters(model: type[StageParams], prefix: str) -> str:
    rows = [
        (f"`{prefix}.{name}`", values, default.removeprefix("default "), text)
        for name, values, default, text in param_rows(model)
    ]
    return _table(("parameter", "values", "default", "meaning"), rows)


def _parser(given: list[str]) -> argparse.ArgumentParser:
    parser = build_parser(given)
    assert isinstance(parser, Parser)
    assert parser.chosen is not None
    return parser.chosen


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Its arguments but `--help`."""
    return (action for action in parser._actions if action.dest != "help" and action.help != argparse.SUPPRESS)


def _arguments(actions: Iterable[argparse.Action]) -> str:
    rows = []
    for action in actions:
        value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
        shown = action.option_strings[-1:] if action.option_strings[1:2] == ["--no-"] else action.option_strings
        text = ", ".join(shown) if action.option_strings else str(value)
        if action.option_strings and action.nargs != 0:
            text += f" {value}"
        need = " (required)" if action.required and action.option_strings else ""
        rows.append((f"`{text}`", str(action.help or "").replace("%%", "%") + need))
    return _table(("argument", "meaning"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    escaped = (tuple(cell.replace("|", "\\|").replace("<", "&lt;") for cell in row) for row in rows)
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in escaped)]
    return "\n".join(f"| {line} |".replace("|  |", "| |") for line in lines) + "\n"


def main() -> None:
    """Write the files."""
    for path, text in pages().items():
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
