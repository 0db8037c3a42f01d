"""What every listing does alike: sort, then print as a table, names, JSON or YAML.

Called by `snapshot_tables` and `live_tables`. It knows rows, columns and documents, and nothing of
nodes, queues or jobs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click

from gpuyard.cli.console import options, terminal, words
from gpuyard.cli.console.hints import nearest

Row = TypeVar("Row")
Document = dict[str, Any]

AROUND = 2
"""Lines of the screen that are no rows: the header, and the prompt below."""

DRAWN_MAX = 300
"""Longer tables are written plainly: nobody reads colours there, and drawing ten thousand rows takes seconds."""


@dataclass(frozen=True)
class Cell(Generic[Row]):
    """A column of a listing: how it looks, and what it says of a row."""

    column: terminal.Column
    of: Callable[[Row], Any]
    wide: bool = False
    """Only in `-o wide`."""


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """A kind of thing that can be listed."""

    noun: str
    cells: tuple[Cell[Row], ...]
    document: Callable[[Row], Document]
    none: str = ""
    """What is said of a table without rows."""
    more: str = ""
    """How to see the rest, where a list ends with the screen; without it every row is always drawn."""


@dataclass(frozen=True)
class TableWish:
    """What the user asked of a listing."""

    form: str
    headers: bool = True
    sort_by: str = ""
    watch: bool = False


def column(title: str, of: Callable[[Any], Any], *, wide: bool = False, **look: bool) -> Cell[Any]:
    """Declare a column; how it looks is what `terminal.Column` knows: `right`, `wraps`, `cuts`."""
    return Cell(terminal.Column(title, **look), of, wide)


def listing_options(*more_formats: str) -> Callable[[Any], Any]:
    """The options of every listing; the command gets them as one `wish`."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def command(*args: Any, form: str, watch: bool, no_headers: bool, sort_by: str, **kwargs: Any) -> Any:
            if watch and kwargs.get("path"):
                raise click.UsageError("-w watches a running yard; a snapshot does not change.")
            return function(*args, wish=TableWish(form, not no_headers, sort_by, watch), **kwargs)

        for option in (
            click.option("--sort-by", default="", metavar="KEY", help="Sort by a key of the JSON; -KEY is backwards."),
            click.option("--no-headers", is_flag=True, help="Leave the header line out."),
            options.output((*options.LISTING_FORMATS, *more_formats)),
            options.watch(),
        ):
            command = option(command)
        return command

    return decorate


def write(listing: Listing[Row], rows: Sequence[Row], wish: TableWish) -> None:
    """Print the rows as asked."""
    if wish.sort_by:
        rows = [row for row, _ in sort([(row, listing.document(row)) for row in rows], wish.sort_by)]
    if wish.form == "name":
        terminal.write("".join(f"{listing.document(row)['name']}\n" for row in rows))
    elif wish.form == "csv":
        terminal.write_csv([listing.document(row) for row in rows])
    elif wish.form in ("json", "yaml"):
        terminal.write_document([listing.document(row) for row in rows], wish.form)
    elif rows:
        _write_table(listing, rows, wish)
    else:
        terminal.say(listing.none or f"There are no {listing.noun}s.")


def sort(pairs: list[tuple[Row, Document]], key: str) -> list[tuple[Row, Document]]:
    """By a key of the documents, dots going inwards; what lacks it comes last."""
    backwards, path = key.startswith("-"), key.lstrip("-").lstrip(".").lower()
    present = [pair for pair in pairs if _at(pair[1], path) is not None]
    if pairs and not present:
        known = {name for _, document in pairs for name in document}
        raise click.UsageError(f"There is no key '{key.lstrip('-')}' to sort by.{nearest(path, known)}")
    absent = [pair for pair in pairs if _at(pair[1], path) is None]
    present.sort(key=lambda pair: _order(_at(pair[1], path)), reverse=backwards)
    return present + absent


def _write_table(listing: Listing[Row], rows: Sequence[Row], wish: TableWish) -> None:
    cells = [cell for cell in listing.cells if wish.form == "wide" or not cell.wide]
    left_out = _beyond_the_screen(listing, rows)
    rows = rows[: len(rows) - left_out]
    drawn = [[cell.of(row) for cell in cells] for row in rows]
    columns = [cell.column for cell in cells]
    if len(drawn) > DRAWN_MAX:
        terminal.write_plain_table(columns, drawn, wish.headers)
    else:
        terminal.Screen().table(columns, drawn, wish.headers)
    if left_out:
        terminal.write(f"... and {left_out} more: {listing.more}\n")


def _beyond_the_screen(listing: Listing[Row], rows: Sequence[Row]) -> int:
    """How many of the last rows the screen has no room for."""
    height = terminal.lines() if listing.more else None
    return 0 if height is None or len(rows) <= height - AROUND else len(rows) - max(height - AROUND - 1, 1)


def _at(document: Document, path: str) -> Any:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value.get("code") if isinstance(value, dict) and "code" in value else value


def _order(value: Any) -> tuple[int, Any]:
    """Numbers before text, text by its numbers, anything else by how it prints."""
    if isinstance(value, bool | int | float):
        return 0, value
    return 1, words.natural(value if isinstance(value, str) else str(value))
