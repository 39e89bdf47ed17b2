"""Edge lists whose two columns are two sets of nodes, even where their ids coincide.

A node's name gets its side's prefix, so that names differ wherever names are read. Neither prefix begins with the
other: then no name of one side is one of the other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.estimate import Stats
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.edge_list.other_formats import is_number
from superworkflow.tasks.lib.edge_list.sampled_rows import SampledRows, unix_time

Sides = tuple[str, str]
"""Prefixes of the names of sources and targets."""
SideVertices = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Vertices of each side, ascending."""

_PLAIN: Sides = ("left:", "right:")
_KONECT = re.compile(r"%\s*bip\b")
ID_SUFFIX = re.compile(r"(?<=\w)([ _-](id|Id|ID)|(?<=[a-z])I[dD])$")
"""What names such as user_id and movieId end in."""
_BLANKS = re.compile(r"\s+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ID_WORDS = frozenset({"id", "ids", "key", "no", "nr", "num", "number", "code", "name", "idx", "index", "uid", "pk"})
_ROLES = (
    "source src from origin orig start head target dst dest destination to end tail left right first second other "
    "friend follower followee following follows contact neighbor neighbour peer partner sender receiver recipient "
    "parent child ancestor descendant mother father spouse citing cited reference ref caller callee buyer seller "
    "lender borrower payer payee winner loser opponent manager employee boss mentor advisor coauthor subject object "
    "node vertex related linked replied reply influencer predecessor successor mentioned retweeted"
)
"""Words by which one kind of nodes is named in two columns."""
_KINDS = (
    "user customer client person member reader listener viewer visitor patient author actor artist reviewer account "
    "item product movie film book song track album playlist paper article event group page ad business restaurant "
    "venue store shop gene protein disease drug word document doc tag hashtag query url site game course company team "
    "organization category topic keyword photo video post job skill recipe ingredient session host anime crime isbn "
    "asin package maintainer developer project repository library file country city airport station species compound "
    "course student teacher school university supplier vendor genre brand language symptom"
)
"""Kinds of nodes that columns are named after without the word id."""
_LEAST_OTHERS = 5
"""Names from which on a first row may differ from all others."""


def sides_of(
    bipartite: bool | str, prefixes: tuple[str | None, str | None], comments: Sequence[str], names: tuple[str, str]
) -> Sides | None:
    """Prefixes of the two sides if a file is bipartite, by a parameter or by itself; None if it is not.

    Args:
        bipartite: of the parameters; auto is true for KONECT's `% bip`, and if a prefix is given.
        prefixes: of the parameters.
        comments: lines before the data.
        names: of the source's and the target's column; empty without a header.

    Raises:
        UserError: one prefix begins with the other.
    """
    if bipartite == "auto":
        bipartite = bool(comments and _KONECT.match(comments[0])) or any(each is not None for each in prefixes)
    if not bipartite:
        return None
    usual = [f"{_BLANKS.sub('_', ID_SUFFIX.sub('', name))}:" for name in names] if all(names) else list(_PLAIN)
    if _collide(*usual):
        usual = list(_PLAIN)
    source, target = (each if each is not None else own for each, own in zip(prefixes, usual, strict=True))
    if _collide(source, target):
        raise UserError(
            "the prefix of one side begins with that of the other, so that their names could be the same",
            where="index.source_prefix, index.target_prefix", value=(source, target),
            remedy="Give prefixes such as user: and item:",
        )  # fmt: skip
    return source, target


def _collide(source: str, target: str) -> bool:
    return source.startswith(target) or target.startswith(source)


def prefixed(column: pa.Array, prefix: str) -> pa.Array:
    """Names of one side; empty ones, of rows that are to be dropped, stay so."""
    names = pc.binary_join_element_wise(pa.scalar(prefix, column.type), column, pa.scalar("", column.type))
    return pc.if_else(pc.equal(column, ""), column, names)


def source_count(names: pa.Array, sides: Sides | None) -> int:
    """Number of names of the first side; 0 of a graph that is not bipartite."""
    return pc.sum(pc.starts_with(names, sides[0])).as_py() or 0 if sides is not None else 0


def side_vertices(names: pa.Array | pa.ChunkedArray, stats: Stats) -> SideVertices:
    """Vertices of the two sides of a graph whose stats say that it is bipartite.

    Args:
        names: of the vertices.
        stats: of the graph.
    """

    def starting_with(prefix: str) -> NDArray[np.int32]:
        found = pc.starts_with(names, str(stats[prefix])).to_numpy(zero_copy_only=False)
        return np.flatnonzero(found).astype(np.int32)

    return starting_with("source_prefix"), starting_with("target_prefix")


def doubt_sides(sample: SampledRows) -> InputWarning | None:
    """The warning for columns of two kinds of nodes that share ids, by their names or where rows look like ratings."""
    source, target, _ = sample.columns
    sources, targets = sample.values(source), sample.values(target)
    if not sources or not targets:
        return None
    if sample.names and _two_kinds(sample.names[source], sample.names[target]):
        what = "two columns of different kinds share ids"
    elif not sample.names and _are_ratings(sample):
        what = "the rows look like ratings of items by users, which share ids"
    else:
        return None
    both = set(sources) & set(targets)
    found = f"{min(both)!r} in both" if both else ""
    if all(map(str.isdecimal, (*sources, *targets))):
        first, second = ((min(map(int, ids)), max(map(int, ids))) for ids in (sources, targets))
        if first[0] <= second[1] and second[0] <= first[1]:
            found = f"{first[0]} to {first[1]} and {second[0]} to {second[1]}"
    if not found:
        return None
    return InputWarning(
        f"{what}, and the same id is read as the same node",
        f"{sample.where}, columns {sample.name(source)} and {sample.name(target)}", found,
        "Set index.bipartite=true if they are two sets of nodes, or index.bipartite=false",
    )  # fmt: skip


def doubt_first_row(rows: Sequence[Sequence[str]], columns: tuple[int, int, int], where: str) -> InputWarning | None:
    """The warning for a first row, read as an edge, that names columns in words that occur nowhere else."""
    ends = [(row[columns[0]], row[columns[1]]) for row in rows if len(row) > max(columns[:2])]
    if len(ends) < 2 or any(name in end for name in ends[0] for end in ends[1:]):
        return None
    others = {name for end in ends[1:] for name in end}
    if not (_two_kinds(*ends[0]) or any(map(_is_role, ends[0])) or _differs(ends[0], others)):
        return None
    return InputWarning(
        "the first row looks like names of columns and is read as an edge", where, ", ".join(ends[0]),
        "Set index.header=true, or index.header=false if it is an edge",
    )  # fmt: skip


def _is_role(name: str) -> bool:
    """True for a word by which columns of one kind of nodes are named."""
    return name.lower() in _ROLES.split()


def _differs(first: tuple[str, str], others: Collection[str]) -> bool:
    """True if two names are small letters, as columns have them, and all others, of which there are some, are not."""
    plain = [re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in first]
    return all(plain) and len(others) >= _LEAST_OTHERS and not any(name.isalpha() and name.islower() for name in others)


def _are_ratings(sample: SampledRows) -> bool:
    """True for rows user, item, rating, Unix time: ratings are some positive numbers up to 10, in halves."""
    if sample.columns[:2] != (0, 1) or any(len(row) != 4 for row in sample.rows):
        return False
    ratings = set(sample.values(2))
    steps = [float(each) * 2 for each in ratings if is_number(each)]
    return (
        len(ratings) == len(steps) > 2
        and all(0 < step <= 20 and step.is_integer() for step in steps)
        and unix_time(sample.values(3)) is not None
    )


def _two_kinds(source: str, target: str) -> bool:
    """True if names such as user_id and item_id say that columns hold two kinds of nodes."""
    kinds = set(_KINDS.split())
    heads, marked = [], []
    for name in (source, target):
        words = [word.lower() for word in _WORD.findall(name) if len(word) > 1]
        words = [word[:-2] if word[-2:] == "id" and word[:-2] in kinds else word for word in words]
        stem = [word for word in words if word not in _ID_WORDS]
        if not stem or set(_ROLES.split()) & set(stem) or is_number(name):
            return False
        heads.append(stem[-1].removesuffix("s"))
        marked.append(len(stem) < len(words) or bool({stem[-1], heads[-1]} & kinds))
    return heads[0] != heads[1] and all(marked)
