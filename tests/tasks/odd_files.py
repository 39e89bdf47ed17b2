"""Files that are odd, and what index makes of each on every engine: its rows, or the error."""

import gzip
import io
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

AB_BC = [("a", "b"), ("b", "c")]
LONG = "x" * ((1 << 20) - 3)
"""A label that just fits into a line with another of one letter."""
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Odd:
    """A file.

    Args:
        name: of the file; says what is odd.
        data: its bytes.
        rows: source and target, perhaps weight, of each row; or else
        error: part of the error's text.
        params: of index.
    """

    name: str
    data: bytes
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    error: str = ""
    params: dict[str, Any] = field(default_factory=dict)


def parquet(**columns: list[Any]) -> bytes:
    """A Parquet file of two row groups."""
    stream = io.BytesIO()
    table = pa.table(columns)
    pq.write_table(table, stream, row_group_size=max(1, len(table) // 2))
    return stream.getvalue()


def same_names() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table([pa.array(["a", "b"])] * 3, ["source", "target", "source"]), stream)
    return stream.getvalue()


NO_HEADER = {"header": False}
TOO_LONG = "the line is longer than 1048576 bytes"
RETURN = "the line has a carriage return before its end"
CASES = {"Node": ["a", "b"], "node": ["x", "y"], "target": ["b", "c"]}

ODD_FILES = [
    # Line ends
    Odd("no-final-newline.csv", b"a,b\nb,c", AB_BC),
    Odd("no-final-newline-but-return.csv", b"a,b\r\nb,c\r", AB_BC),
    Odd("comments-of-unix-below-one-of-dos.csv", b"% c\n# d\r\nsource,target\na,b\nb,c\n", AB_BC),
    Odd("header-of-dos.csv", b"source,target\r\na,b\nb,c\n", AB_BC),
    Odd("header-of-unix.csv", b"# by hand\r\n# at night\nsource,target\na,b\r\nb,c\r\n", AB_BC),
    Odd("mixed.txt", b"# x\r\n# y\n  a\tb \r\n\r\nb c\n \t\r\n", AB_BC),
    Odd("mixed.tsv", b"a\tb\r\n\nb\tc\n\r\n", AB_BC),
    Odd("of-old-macs.csv", b"a,b\rb,c\rc,d\r", error=f"line 1: {RETURN}"),
    Odd("of-old-macs.txt", b"a b\rb c\rc d\r", error=f"line 1: {RETURN}"),
    Odd("one-return.csv", b"a,b\nb,c\rc,d\n", error=f"line 2: {RETURN} (got 'b,c\\rc,d')"),
    Odd("one-return.tsv", b"a\tb\nb\tc\rc\td\n", error=f"line 2: {RETURN}"),
    Odd("one-return.txt", b"a b\nb c\rc d\n", error=f"line 2: {RETURN}"),
    Odd("one-return-in-what-is-not-read.csv", b"a,b,x\nb,c,y\rz\n", error=f"line 2: {RETURN}"),
    Odd("two-returns.csv", b"a,b\r\r\nb,c\r\r\n", error=f"line 1: {RETURN}"),
    Odd("return-in-quotes.csv", b'"a\r\n\rz",b\nb,c\n', [("a\r\n\rz", "b"), ("b", "c")]),
    Odd("return-in-quotes-at-the-end.csv", b'a,b\r\nb,"c\r"\r\n', [("a", "b"), ("b", "c\r")]),
    # Rows
    Odd("blank-lines.csv", b"\n  \n\na,b\n\n\r\n\nb,c\n\n\n", AB_BC),
    Odd("a-line-of-blanks.csv", b"a,b\n   \nb,c\n", error="line 2: the row has too few columns: 1 where 2"),
    Odd("a-line-of-blanks.tsv", b"a\tb\n   \nb\tc\n", error="line 2: the row has too few columns: 1 where 2"),
    Odd("a-line-of-tabs.tsv", b"a\tb\n\t\t\nb\tc\n", error="line 2: the row has an empty node"),
    Odd("only-blanks.txt", b"  \n \t \n\n   ", error="the file has no rows"),
    Odd("only-line-ends.csv", b"\r\n\n\r\n", error="the file has no rows"),
    Odd("only-a-mark.csv", BOM, error="the file has no rows"),
    Odd("short.csv", b"a,b\nb\nc,d\n", error="line 2: the row has too few columns: 1 where 2 are needed (got 'b')"),
    Odd("short-of-weight.csv", b"source,target,weight\na,b,1\nb,c\n", error="line 3: the row has too few columns: 2"),
    Odd("short-last.csv", b"a,b\nb,c\nc", error="line 3: the row has too few columns"),
    Odd("longer-rows.csv", b"a,b\nb,c,d,e\n", AB_BC),
    Odd("longer-rows.txt", b"a b\nb c d e\n", AB_BC),
    Odd("trailing-separator.csv", b"a,b,\nb,c,\n", AB_BC),
    Odd("no-node.csv", b"a,b\n,c\n", error="line 2: the row has an empty node (got ',c')"),
    Odd("comments-between.txt", b"a b\n#b c\n  % x\nb c # no comment\n", AB_BC),
    Odd("comment-is-a-label.csv", b"a,b\n#b,c\n", [("a", "b"), ("#b", "c")], params=NO_HEADER),
    Odd("long-comment.txt", b"# " + b"x" * 300_000 + b"\na b\nb c\n", AB_BC),
    Odd("many-comments.csv", b"# no edge here\n" * 30_000 + b"source,target\na,b\nb,c\n", AB_BC),
    # Headers
    Odd("only-a-header.csv", b"source,target", error="the file has no rows"),
    Odd("only-a-header-of-dos.csv", b"source,target\r\n\r\n", error="the file has no rows"),
    Odd("same-header-twice.csv", b"source,target,source\na,b,x\nb,c,y\n", AB_BC),
    Odd("header-with-blanks.csv", b" source , target \na,b\nb,c\n", AB_BC),
    Odd("header-in-quotes.csv", b'"source","target"\na,b\nb,c\n', AB_BC),
    Odd("header-of-two-lines.csv", b'"made\nup",source,target\nx,a,b\nx,b,c\n', AB_BC),
    Odd("mark-and-header.csv", BOM + b"source,target\r\na,b\r\nb,c\r\n", AB_BC),
    Odd("mark-and-comment.txt", BOM + b"# x\na b\nb c\n", AB_BC),
    Odd("mark-and-quote.csv", BOM + b'"a",b\n"b",c\n', AB_BC),
    # Quotes
    Odd("quoted.csv", b'a,"b"\r\n"b",c\r\n', AB_BC),
    Odd("doubled.csv", b'"a ""1""",b\nb,""""\n', [('a "1"', "b"), ("b", '"')]),
    Odd("line-end-in-quotes.csv", b'"a\n\nz",b\nb,c\n', [("a\n\nz", "b"), ("b", "c")]),
    Odd("separator-in-quotes.csv", b'"a,z",b\nb,c\n', [("a,z", "b"), ("b", "c")]),
    Odd("empty-in-quotes.csv", b'a,b\n"",c\n', error="line 2: the row has an empty node"),
    Odd("quote-within.csv", b'5" disk,b\nb,c"c\n', [('5" disk', "b"), ("b", 'c"c')]),
    Odd("quote-within-far-below.csv", b"a,b\n" * 5 + b'"b",c\nb,c"c\n', [("a", "b")] * 5 + [("b", "c"), ("b", 'c"c')]),
    Odd("blank-before-quote.csv", b'a, "b"\nb,c\n', [("a", ' "b"'), ("b", "c")]),
    Odd("after-quote.csv", b'a,b\n"b"x,c\n', error="line 2: the row cannot be read as csv: ',' expected after '\"'"),
    Odd("open-quote.csv", b'a,b\n"b,c\nc,d\n', error="line 2: the row cannot be read as csv: unexpected end of data"),
    Odd("quote.tsv", b'a"\tb\nb\t"c\n', [('a"', "b"), ("b", '"c')]),
    Odd("quote.txt", b'"a b\nb c"\n', [('"a', "b"), ("b", 'c"')]),
    Odd("quoted-weight.csv", b'source,target,weight\na,b,"1.5"\nb,c," 2 "\n', [("a", "b", 1.5), ("b", "c", 2.0)]),
    Odd("quoted-and-short.csv", b'"a",b\nb,c\n"c"\n', error="line 3: the row has too few columns"),
    # Labels
    Odd("not-ascii-blanks.txt", "a\x0bz\u00a0 b\nb c\x85\n".encode(), [("a\x0bz\u00a0", "b"), ("b", "c\x85")]),
    Odd("zero-bytes.tsv", b"a\0\tb\nb\t\0\n", [("a\0", "b"), ("b", "\0")]),
    Odd("not-utf8.csv", b"a,b\nb,\xc3\n", error="line 2: the text is not UTF-8"),
    Odd("not-utf8-in-quotes.csv", b'a,b\n"b",\xc3\n', error="line 2: the text is not UTF-8"),
    Odd("not-utf8-where-not-read.csv", b"a,b,\xc3\nb,c,\xff\xfe\n", AB_BC),
    Odd("not-utf8-and-no-weight.csv", b"a,b,1,\xc3\nb,c,0,x\n", error="line 2: the weight", params={"weighted": True}),
    # Weights
    Odd("weights.txt", b"a b +1.5e0\nb c .5\nc d 5.\n", [("a", "b", 1.5), ("b", "c", 0.5), ("c", "d", 5.0)]),
    Odd("hard-weight.csv", b"a,b,0.300000011920928961\nb,c,1e-45\n", [("a", "b", 0.3), ("b", "c", 1e-45)]),
    Odd("too-heavy-row.csv", b"a,b,1\nb,c,3.5e38\n", error="line 2: the weight is not a positive number"),
    Odd("too-light-row.csv", b"a,b,1\nb,c,1e-9999\n", error="line 2: the weight is not a positive number"),
    Odd("heavy.csv", b"a,b,3e38\nb,c,3e38\n", [("a", "b", 3e38), ("b", "c", 3e38)]),
    # Long lines
    Odd("long-label.tsv", f"{LONG}\ta\na\tb\n".encode(), [(LONG, "a"), ("a", "b")], params=NO_HEADER),
    Odd("too-long.tsv", f"a\tb\nx{LONG}\ta\n".encode(), error=f"line 2: {TOO_LONG}"),
    Odd("too-long.txt", f"a b\nb c\nx{LONG} a\n".encode(), error=f"line 3: {TOO_LONG}"),
    Odd("too-long-first.csv", f"x{LONG},a\na,b\n".encode(), error=f"line 1: {TOO_LONG}"),
    Odd("too-long-last.csv", f"a,b\nb,c{LONG}".encode(), error=f"line 2: {TOO_LONG}"),
    Odd("too-long-by-blanks.txt", b"a b\nb c" + b" " * (1 << 20) + b"\n", error=f"line 2: {TOO_LONG}"),
    Odd("too-long-in-quotes.csv", f'a,b\n"b{LONG}",c\n'.encode(), error=f"line 2: {TOO_LONG}"),
    Odd(
        "no-line-end.txt.gz",
        gzip.compress(b"a b\n") + gzip.compress(b"a" * (1 << 20)) * 64,
        error=f"line 2: {TOO_LONG}",
    ),
    # Gzip
    Odd("zeros-after.txt.gz", gzip.compress(b"a b\n") + gzip.compress(b"b c\n") + b"\0" * 600, AB_BC),
    Odd("garbage-after.txt.gz", gzip.compress(b"a b\nb c\n") + b"more", error="the file cannot be decompressed"),
    Odd("empty-member.csv.gz", gzip.compress(b"") + gzip.compress(b"a,b\nb,c"), AB_BC),
    Odd("nothing.csv.gz", gzip.compress(b""), error="the file has no rows"),
    Odd(
        "cut.csv.gz", gzip.compress(b"a,b\n" + bytes(range(32, 127)) + b"\nb,c\n")[:-9], error="cannot be decompressed"
    ),
    Odd("odd[name]*?.csv", b"a,b\nb,c\n", AB_BC),
    # Parquet
    Odd("cases.parquet", parquet(**CASES), AB_BC, params={"source": "Node"}),
    Odd("other-case.parquet", parquet(**CASES), [("x", "b"), ("y", "c")], params={"source": "node"}),
    Odd("same-names.parquet", same_names(), error="several columns of the same name"),
    Odd("odd[name]*?.parquet", parquet(source=["a", "b"], target=["b", "c"]), AB_BC),
    Odd("nulls.parquet", parquet(source=["a", "b"], target=["b", None]), error="row 2: the row has an empty node"),
    Odd("zeros-after.parquet.gz", gzip.compress(parquet(u=["a", "b"], v=["b", "c"])) + b"\0" * 9, AB_BC),
    # Sums of weights
    Odd(
        "heavy-sum.csv", b"b,a,3e38\nc,b,3e38\nb,c,1e38\na,b,1e38\n", error="weights of the edge's rows add up to more"
    ),
    Odd("heavy-sum.parquet", parquet(u=["b", "b"], v=["a", "a"], w=[3e38, 3e38]), error="more than 3.4e38"),
]
