"""Tables on the terminal that cut no figure: titles are folded, then columns left out, then rows become columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text


def console(width: int = 140, *, result: bool = False) -> Console:
    """Standard error; standard output for the result of a command. Where it is no terminal it has this width."""
    found = Console(stderr=not result, highlight=False, emoji=False)
    return found if found.is_terminal else Console(stderr=not result, highlight=False, emoji=False, width=width)


_FOLDED = 8
"""Width to which titles are folded."""


@dataclass(frozen=True)
class TableColumn:
    """A column.

    Args:
        title: heading.
        right: numbers, to the right.
        drop: order in which columns are left out, the highest first; those of 0 stay.
    """

    title: str
    right: bool = False
    drop: int = 0


def print_whole(
    out: Console, columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], title: str = ""
) -> None:  # fmt: skip
    """Print a table within the width of the console.

    Args:
        out: where to.
        columns: of the table.
        rows: cells as markup, which may have several lines.
        title: heading.
    """
    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    while _width(columns, rows, kept) > out.width:
        droppable = [place for place in kept if columns[place].drop]
        if not droppable:
            _print_turned(out, columns, rows, kept, title)
            return
        kept.remove(max(droppable, key=lambda place: columns[place].drop))
    table = Table(title=escape(title) or None, title_justify="left", title_style="bold")
    for place in kept:
        column, needed = columns[place], _needed(columns[place], rows, place)
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold",
                         min_width=needed)  # fmt: skip
    for row in rows:
        table.add_row(*(row[place] for place in kept))
    out.print(table)


def _print_turned(
    out: Console, columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], kept: Sequence[int], title: str
) -> None:
    """Rows as columns, as many side by side as fit."""
    names = max(cell_len(columns[place].title) for place in kept) + 5
    rest, part = list(rows), list[Sequence[str]]()
    while rest:
        width, part = names, []
        while rest and (not part or width + _of(rest[0], kept) + 3 <= out.width):
            width += _of(rest[0], kept) + 3
            part.append(rest.pop(0))
        table = Table(title=escape(title) or None, title_justify="left", title_style="bold", show_header=False)
        table.add_column(overflow="fold")
        for row in part:
            table.add_column(justify="right", overflow="fold", min_width=min(_of(row, kept), out.width - names - 4))
        for place in kept:
            table.add_row(f"[bold]{escape(columns[place].title)}[/bold]", *(row[place] for row in part))
        out.print(table)
        title = ""


def _width(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], kept: Sequence[int]) -> int:
    return sum(_needed(columns[place], rows, place) + 3 for place in kept) + 1


def _needed(column: TableColumn, rows: Sequence[Sequence[str]], place: int) -> int:
    """Width of the widest cell, and of a folded title."""
    return max([min(cell_len(column.title), _FOLDED), *(_cell(row[place]) for row in rows)])


def _of(row: Sequence[str], kept: Sequence[int]) -> int:
    return max(_cell(row[place]) for place in kept)


def _cell(text: str) -> int:
    return max((cell_len(line) for line in Text.from_markup(text).plain.splitlines()), default=0)
