"""Documents of databases, programming languages and other programs, recognised in the first lines, refused by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.other_formats import refused

_DOCUMENTS = (
    (
        r"(--.*\n|/\*.*\n|\s)*(insert\s+into|create\s+table|drop\s+table|copy\s.*\sfrom\s+stdin|set\s+\w+\s*=)",
        "SQL",
        "Load it into a database and export the table as CSV",
    ),
    (r"(create|merge|match)\s*\(", "Cypher", "Load it into Neo4j and export its relationships as CSV"),
    (
        r"@(prefix|base)\s|prefix\s+[\w.-]*:\s*<",
        "Turtle (RDF)",
        "Convert it to N-Triples, with rapper -i turtle or rdflib, and give that file",
    ),
    (r"dl\s+n\s*=|dl\s*$", "UCINET's DL", "Keep the rows below data:"),
    (r"nodedef\s*>", "GDF", "Keep the rows below edgedef>"),
    (r"\*(node|tie)\s+(data|properties)", "VNA", "Keep the rows below *tie data and its line of names"),
    (r"[\w-]+:\s*\n\s*-\s", "YAML", "Export its rows as CSV, with a source and a target column"),
)
"""Beginning of a document, its format, and what to do."""
_ARROW = re.compile(r"[^\s<>]+?\s*(<?[-=]{1,2}>|<[-=]{1,2}|--)\s*[^\s<>]+\s*;?\s*$")
_BRACKETS = re.compile(r"\s*[(\[{][^()\[\]{}:]+[,;][^()\[\]{}:]+[)\]}]\s*[,;]?\s*$")
_RULE = re.compile(r"\s*[|+]?\s*:?-{3,}:?(\s*[|+]\s*:?-{2,}:?)+\s*[|+]?\s*")
_SVMLIGHT = re.compile(r"[-+]?[0-9.]+(\s+[0-9]+:[-+.eE0-9]+)*\s*(#.*)?$")


def refuse_document(lines: Sequence[str], where: str) -> None:
    """Refuse what databases, programming languages and other programs write around their edges.

    Args:
        lines: first lines of the data, without their ends.
        where: name of the file.

    Raises:
        UserError: names the format and what to do.
    """
    path, text = repr(where), "\n".join(lines).lstrip()
    first = next((line for line in lines if line.strip()), "")
    full = [line for line in lines if line.strip()]
    for pattern, name, remedy in _DOCUMENTS:
        if re.match(pattern, text, re.IGNORECASE | re.MULTILINE):
            raise UserError(f"the file is {name}, not an edge list", where=where, remedy=remedy)
    if any(_RULE.fullmatch(line) for line in full[:3]):
        raise refused("a table drawn with lines, as database clients and Markdown have it", where,
                      f"rows = [r.strip().strip('|').split('|') for r in open({path}) if '|' in r and '--' not in r]",
                      "open('edges.csv', 'w').writelines(','.join(c.strip() for c in r) + '\\n' for r in rows)"
                      )  # fmt: skip
    if re.match(r"\[\s*\(", first) or all(_BRACKETS.match(line) for line in full):
        raise refused("edges in brackets", where, "import re",
                      f"rows = re.findall(r'[(\\[{{]\\s*([^][(){{}},]+?)\\s*[,;]\\s*([^][(){{}},]+?)\\s*[])}},]', "
                      f"open({path}).read())",
                      "open('edges.tsv', 'w').writelines(u + '\\t' + v + '\\n' for u, v in rows)"
                      )  # fmt: skip
    if all(_ARROW.match(line) for line in full):
        raise refused("edges with arrows between their ends", where, "import re",
                      f"rows = [re.split(r'\\s*(?:<?[-=]+>|<[-=]+|--)\\s*', r.strip(' ;\\n')) for r in open({path})]",
                      "open('edges.tsv', 'w').writelines('\\t'.join(r) + '\\n' for r in rows if len(r) == 2)"
                      )  # fmt: skip
    if all(_SVMLIGHT.match(line) for line in full) and any(":" in line for line in full):
        raise UserError("the file is svmlight's, which holds features of samples, not an edge list", where=where,
                        remedy="Give a file with a source and a target in each row")  # fmt: skip
    marks = [line.strip() for line in full if line.lstrip()[:1] == "#"]
    if marks == ["#"]:
        raise refused("TGF, whose edges follow a line #", where, f"edges = open({path}).read().split('\\n#')[1]",
                      "open('edges.txt', 'w').write(edges)")  # fmt: skip
    if len(marks) > 1 and all(len(line.split()) == (2 if line.lstrip()[:1] == "#" else 1) for line in full):
        raise refused("LGL, which lists the neighbours of a node below a line # with its name", where,
                      f"rows = [r.split() for r in open({path}) if r.strip()]; u = ''; edges = []",
                      "[edges.append(u + '\\t' + r[0] + '\\n') if r[0] != '#' else (u := r[1]) for r in rows]",
                      "open('edges.tsv', 'w').writelines(edges)")  # fmt: skip
    if re.fullmatch(r"sep=.", first.strip()):
        raise UserError("the first line is for Excel alone", where=where, value=first.strip(),
                        remedy=f"Remove it: tail -n +2 {where} > edges.csv")  # fmt: skip
    mark = re.match(r"\s*(//|/\*|--|;|!)\s", first)
    if mark and not all(line.lstrip().startswith(mark[1]) for line in full):
        raise UserError("the first line looks like a comment, and would be a row: comments begin with # or %",
                        where=where, value=first[:80],
                        remedy="Begin such lines with #, or set index.format if it is a row")  # fmt: skip
