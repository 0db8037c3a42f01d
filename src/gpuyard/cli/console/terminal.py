"""Stdout and stderr as we use them: a screen that draws tables, and writers for words, JSON and YAML.

Everything we print passes `safe`: names, reasons and whatever else others wrote must not move the reader's cursor,
colour the terminal, or turn the order of letters round. Colours are ours alone.

Called by the commands, which decide what is said. Rich, msgspec and YAML are imported when they are first needed.
NO_COLOR, FORCE_COLOR, TERM=dumb and COLUMNS are honoured; off a terminal lines are never cut, so that grep works.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gpuyard.cli.console import hints

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, RenderableType
    from rich.table import Table
    from rich.text import Text

UNBOUNDED = 10_000
"""Columns of something that is not a terminal."""

GAP = 2
"""Spaces between columns."""

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for line ends and tabs, what turns the direction of text, half characters."""

CUT_LEAST = 10
"""A column that is cut keeps so many signs."""

READABLE = 24
"""A column that wraps is not made narrower than this."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, and how its cells are laid out."""

    title: str
    right: bool = False
    wraps: bool = False
    """Gives way when the terminal is narrow; the others keep their width."""
    cuts: bool = False
    """Is cut short, with a mark, where a terminal is too narrow for all of it. In a pipe nothing is."""


class Screen:
    """Draws on stdout as it is at this moment."""

    def __init__(self) -> None:
        self.width = _columns()
        self._console = _console(self.width)

    def show(self, *things: RenderableType, width: int | None = None) -> None:
        """Draw these below each other."""
        from rich.segment import Segment, Segments

        self._console.width = width or self.width
        with self._console.capture() as capture:
            for thing in things:
                drawn = self._console.render(thing)
                self._console.print(Segments([Segment(safe(each.text), each.style) for each in drawn]), end="")
        draw("".join(line.rstrip() + "\n" for line in capture.get().removesuffix("\n").split("\n")))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Any]], headers: bool = True) -> None:
        """Draw a table. Where even its narrowest form is too wide it runs over, as kubectl's do."""
        cells = [[_cell(value) for value in row] for row in rows]
        if sys.stdout.isatty():
            _cut_to(self.width, columns, cells)
        narrowest = _narrowest(columns, cells)
        self.show(_table(columns, cells, headers), width=max(self.width, narrowest))


def write_plain_table(columns: Sequence[Column], rows: Sequence[Sequence[Any]], headers: bool = True) -> None:
    """A table without colour or wrapping, for listings too long to be read by eye: a hundred times cheaper."""
    shown = [[str(row[n]) for row in rows] for n in range(len(columns))]
    laid = [_laid_out(column, cells, headers) for column, cells in zip(columns, shown, strict=True)]
    gap = " " * GAP
    write("".join([gap.join(line).rstrip() + "\n" for line in zip(*laid, strict=True)]))


def _laid_out(column: Column, cells: list[str], headers: bool) -> list[str]:
    """A column's cells, all of one width."""
    width = max([len(column.title), *map(len, cells)])
    lines = [column.title, *cells] if headers else cells
    return [cell.rjust(width) for cell in lines] if column.right else [cell.ljust(width) for cell in lines]


def _table(columns: Sequence[Column], rows: Sequence[Sequence[Text]], headers: bool) -> Table:
    from rich.table import Table

    drawn = Table(box=None, show_header=headers, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold dim")
    for column in columns:
        justify: JustifyMethod = "right" if column.right else "left"
        drawn.add_column(column.title, justify=justify, no_wrap=not column.wraps, overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    return drawn


def _cut_to(width: int, columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> None:
    """Shorten what may be cut, the widest column first, until the table fits or nothing is left to give."""
    widths = {n: _widest(column, n, rows) for n, column in enumerate(columns) if column.cuts}
    excess = _narrowest(columns, rows) - GAP - width
    while excess > 0 and widths and max(widths.values()) > CUT_LEAST:
        widest = max(widths, key=lambda n: widths[n])
        widths[widest] -= 1
        excess -= 1
    for n, most in widths.items():
        for row in rows:
            row[n].truncate(most, overflow="ellipsis")


def _widest(column: Column, position: int, rows: Sequence[Sequence[Text]]) -> int:
    return max([len(column.title), *(row[position].cell_len for row in rows)])


def _narrowest(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> int:
    """The width in which every column that does not wrap is whole, and every other one still readable."""
    total = 0
    for position, column in enumerate(columns):
        widest = _widest(column, position, rows)
        total += GAP + (min(widest, READABLE) if column.wraps else widest)
    return total


def _cell(value: Any) -> Text:
    from rich.text import Text

    drawn = value.__rich__() if hasattr(value, "__rich__") else value
    return drawn if isinstance(drawn, Text) else Text(str(value))


def text(words: str, style: str = "") -> Text:
    """Words in a style; nothing inside them is taken for markup."""
    from rich.text import Text

    return Text(words, style=style)


def safe(words: str) -> str:
    """The same without anything that a terminal obeys: that is shown as JSON writes it, so JSON stays JSON."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found.group()):04x}", words)


def write(words: str) -> None:
    """To stdout."""
    draw(safe(words))


def say(words: str = "", marked: str = "", colour: str = "") -> None:
    """A line to stderr; where it stands on a terminal, what is `marked` in it gets a colour.

    Commands in it, between backticks, are told as they work from here.
    """
    shown = safe(hints.spoken(words))
    if colour:
        shown = shown.replace(marked, click.style(marked, fg=colour), 1)
    click.echo(shown, err=True)


def draw(drawn: str) -> None:
    """To stdout as it is: our own colours and cursor, around words that are safe already."""
    sys.stdout.write(drawn)


def write_json(value: Any) -> None:
    """One value, laid out for reading."""
    import msgspec

    write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def write_document(value: Any, form: str) -> None:
    """One value as `json` or `yaml`."""
    (write_json if form == "json" else write_yaml)(value)


def write_json_line(value: Any) -> None:
    """One value on one line, and out at once: whoever reads along need not wait for the next."""
    import msgspec

    write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def write_csv(rows: Sequence[dict[str, Any]]) -> None:
    """Flat rows, a column for each key."""
    import csv
    import io

    keys = list(dict.fromkeys(key for row in rows for key in row))
    table = io.StringIO()
    writer = csv.DictWriter(table, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write(table.getvalue())


def write_yaml(value: Any, separator: bool = False) -> None:
    """One YAML document; lists of plain values stay on one line."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    words = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    write(("---\n" if separator else "") + words)


def lines() -> int | None:
    """How many lines the screen has; None where stdout is no terminal."""
    return shutil.get_terminal_size((80, 24)).lines if sys.stdout.isatty() else None


def _columns() -> int:
    return shutil.get_terminal_size((UNBOUNDED, 24)).columns


def _console(width: int) -> Console:
    from rich.console import Console

    class Piped(Console):
        """Says "broken pipe" as Python does; rich would leave with exit code 1 by itself."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # Without a colour system rich writes no escape at all; its own NO_COLOR would still write bold and dim.
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Piped(
        width=width,
        color_system=None if plain else "auto",
        markup=False,
        highlight=False,
        emoji=False,
    )
