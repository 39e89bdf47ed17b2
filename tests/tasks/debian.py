"""Debian's packages as inputs of vertex programs, from apt's lists."""

import math
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from examples import debian_archive

_WORD = re.compile(r"[a-z0-9+#]{2,}")
SEEDED = 0.05
"""Share of the packages whose section is given."""


def present() -> bool:
    """True if apt's lists are on this machine."""
    return bool(debian_archive._lists(Path(debian_archive.LISTS), "_Packages"))


def packages() -> dict[str, Mapping[str, str]]:
    """Fields of the packages that have a section, by name, with their installed sizes."""
    folder = Path(debian_archive.LISTS)
    sizes: dict[str, str] = {}
    for path in debian_archive._lists(folder, "_Packages"):
        name = ""
        for line in debian_archive._lines(path):
            if line.startswith("Package:"):
                name = line[8:].strip()
            elif line.startswith("Installed-Size:"):
                sizes.setdefault(name, line[15:].strip())
    found = debian_archive._records(folder, "_Packages")
    return {name: {**each, "Size": sizes.get(name, "0")} for name, each in found.items() if each.get("Section")}


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def contexts(records: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str]]:
    """Packages with the words of their names and descriptions and packages that they need, if others share these."""
    found = {
        name: [f"word {word}" for word in words(each.get("Description", "")) + words(name.replace("-", " "))]
        for name, each in records.items()
    }
    for name, other in debian_archive._relations(records, ("Depends", "Pre-Depends", "Recommends"), records):
        found[name].append(f"needs {other}")
    pairs = [(name, context) for name, each in found.items() for context in dict.fromkeys(each)]
    counts = Counter(context for _, context in pairs)
    return [pair for pair in pairs if counts[pair[1]] > 1]


def seeded(name: str) -> bool:
    return zlib.crc32(name.encode()) % 10_000 < SEEDED * 10_000


def tf_idf(records: Mapping[str, Mapping[str, str]], least: int) -> sp.csr_array:
    """Words of descriptions that `least` packages have, as rows of length 1: counts times log(packages / packages with
    the word)."""
    texts = [Counter(words(each.get("Description", ""))) for each in records.values()]
    counts = Counter(word for each in texts for word in each)
    places = {word: place for place, word in enumerate(sorted(w for w, count in counts.items() if count >= least))}
    rows, columns, values = [], [], []
    for row, each in enumerate(texts):
        mine = {places[w]: n * math.log(len(texts) / counts[w]) for w, n in each.items() if w in places}
        length = math.sqrt(sum(value**2 for value in mine.values()))
        for place, value in sorted(mine.items()):
            rows.append(row)
            columns.append(place)
            values.append(value / length)
    ends = np.array(rows, np.int32), np.array(columns, np.int32)
    return sp.csr_array((values, ends), shape=(len(texts), len(places)))


def sizes(records: Mapping[str, Mapping[str, str]]) -> np.ndarray:
    """Logarithms of installed sizes in KiB."""
    return np.log1p([float(each["Size"]) for each in records.values()])
