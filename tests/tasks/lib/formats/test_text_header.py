"""The character between the columns of a text table, by its first row."""

import pytest

from superworkflow.tasks.lib.formats.text_header import separator_of


@pytest.mark.parametrize(
    ("line", "where", "separator"),
    [
        ("id,x\n", "f.csv", ","),
        ("id\tx\ty, in m\r\n", "f.csv", "\t"),
        ("id;x", "f.txt", ";"),
        ('"a;b;c",x', "f.csv", ","),
        ("id", "f.csv", ","),
        ("id", "s3://b/f.tsv.gz", "\t"),
        ("", "f.csv", ","),
    ],
)
def test_separators(line: str, where: str, separator: str) -> None:
    assert separator_of(line, where) == separator
