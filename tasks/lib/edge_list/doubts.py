"""Doubts about an edge list, from the rows that detection samples: each becomes an `InputWarning`."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from superworkflow.tasks.lib.edge_list.column_doubts import column_doubts
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.edge_list.missing_ids import NAMES
from superworkflow.tasks.lib.edge_list.sampled_rows import SampledRows, unix_time

_LEAST_SHARE = 0.001
"""Share of the sampled rows from which a name of a missing value is doubted; one row is always too few."""
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec"
_ODD_FORMS = (
    (re.compile(r"[0-9]\.?[0-9]*[eE]\+[0-9]{2,3}"), 0.0,
     "ids are rounded numbers, as spreadsheets, R and pandas write long ones", "Export them again, as text"),
    (re.compile(rf"[0-9]{{1,2}}-({_MONTHS})|({_MONTHS})-[0-9]{{1,2}}", re.IGNORECASE), 0.0,
     "ids look like dates that a spreadsheet has made of names such as MAR2", "Export them again, as text"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9:]+)?)?|([0-9]{1,2}[/.]){2}[0-9]{2,4}"), 0.9,
     "dates are read as nodes", "Set index.source and index.target to the columns of nodes"),
    (re.compile(r"[+-]?[0-9]*\.[0-9]*[1-9][0-9]*"), 0.9,
     "fractions are read as nodes", "Set index.source and index.target to the columns of nodes"),
    (re.compile(r"\[.*\]|\{.*\}"), 0.5,
     "a list is read as one node", "Give each of its members a row, in pandas: .explode()"),
)  # fmt: skip
"""Form of an id, share of the sampled ids from which it is doubted, the doubt, and what settles it."""


def doubts(sample: SampledRows) -> tuple[InputWarning, ...]:
    """All warnings about the sampled rows."""
    return (*column_doubts(sample), *_nodes(sample), *_comments(sample))


def _nodes(sample: SampledRows) -> Iterator[InputWarning]:
    """Names of nodes that look like missing values, or differ by less than a reader sees."""
    source, target, _ = sample.columns
    counts: Counter[str] = Counter()
    for number in (source, target):
        counts.update(sample.values(number))
    where = f"{sample.where}, first {len(sample.rows)} rows"
    for name in sorted(set(NAMES) & counts.keys(), key=lambda each: -counts[each]):
        if sample.missing and counts[name] > max(1, _LEAST_SHARE * len(sample.rows)):
            found = f"{name!r} in {counts[name]} ends"
            yield InputWarning("a name of missing values is read as a node", where, found,
                               "Set index.missing=drop to leave such rows out, or index.missing=keep")  # fmt: skip
    floats = [name for name in counts if re.fullmatch(r"[0-9]+\.0", name)]
    if twins := [name for name in floats if name[:-2] in counts]:
        yield _twins(where, twins[0], twins[0][:-2], "numbers with and without a point")
    elif floats and any(set(sample.values(number)) <= {*floats, *NAMES} for number in (source, target)):
        yield InputWarning("ids are written as numbers with a point, as pandas does where some are missing", where,
                           repr(floats[0]), "Write them as whole numbers: .dropna().astype('int64')")  # fmt: skip
    yield from _forms(sample, where)
    for rule, same in (("blanks around them", str.strip), ("Unicode forms", _composed)):
        pair = next(((name, same(name)) for name in counts if same(name) != name and same(name) in counts), None)
        if pair:
            yield _twins(where, *pair, rule)
    if sample.kind == "whitespace" and all(len(name) > 1 and name[0] == name[-1] == '"' for name in counts):
        yield InputWarning("quotes are part of the names", where, next(iter(counts)),
                           "Set index.format=csv and index.delimiter=' ' to read what is inside them")  # fmt: skip


def _forms(sample: SampledRows, where: str) -> Iterator[InputWarning]:
    """Ids that are dates or lists, or that a spreadsheet has changed."""
    for number in sample.columns[:2]:
        values = sample.values(number)
        if values and len(sample.rows[0]) > 2 and (days := unix_time(values)):
            yield InputWarning("Unix times are read as nodes", f"{where}, column {sample.name(number)}", days,
                               "Set index.source and index.target to the columns of nodes")  # fmt: skip
        for form, share, what, settle in _ODD_FORMS:
            found = [value for value in values if form.fullmatch(value.strip())]
            if found and len(found) >= share * len(values):
                yield InputWarning(what, f"{where}, column {sample.name(number)}", repr(found[0]), settle)


def _twins(where: str, first: str, second: str, rule: str) -> InputWarning:
    return InputWarning(f"names that differ only by {rule} are different nodes", where, f"{first!r} and {second!r}",
                        "Write each name in one form")  # fmt: skip


def _comments(sample: SampledRows) -> Iterator[InputWarning]:
    """Lines that are skipped as comments, although they have as many fields as a row and no blank after the mark."""
    source, target, _ = sample.columns
    splits = {"csv": r"[,;|\t]", "tsv": r"\t", "whitespace": r"[ \t]+"}
    width = len(sample.rows[0]) if sample.rows else 0
    nodes = {value for number in (source, target) for value in sample.values(number)}

    def is_row(line: str) -> bool:
        fields = [field.strip() for field in re.split(splits[sample.kind], line.strip())]
        others = [field for field in fields if field[:1] not in ("#", "%")]
        return (
            len(fields) == width
            and fields[0][1:2] not in ("", "#", "%", " ")
            and (not others or all(field in nodes for field in others[:1]))
        )

    rows = [line for line in sample.comments if is_row(line)]
    if rows:
        settle = "Put a header above them"
        if sample.kind == "whitespace":
            settle = "Set index.format to tsv or csv to keep such lines below the first row"
        what = f"{len(rows)} lines that look like rows are skipped as comments"
        yield InputWarning(what, sample.where, rows[0][:80], settle)


def _composed(name: str) -> str:
    return name if name.isascii() else unicodedata.normalize("NFC", name)
