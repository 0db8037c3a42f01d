"""The one gate for text that enters: documents, requests, files and command lines ask here before a word is kept.

What is kept is read later by others: by the kernel, by files of the yard, by terminals. So a word is whole UTF-8,
holds no NUL and no control character, and has an end. Words of a command and values of variables may have line ends
and tabs; nothing else may. Each question answers with a predicate ("must ...") that follows the thing's name, or with
nothing.
"""

from __future__ import annotations

import hashlib
import re

WORD_MAX = 253
"""Characters of a name, label or reason."""
KEY_MAX = 317
"""Characters of a label's key, of a resource's name: Kubernetes has a domain of 253, a stroke and 63."""
JOB_MAX = 330
"""Characters of a job's name, of its family: on a cluster a namespace, a kind and the name of an object."""
LINE_MAX = 1000
"""Bytes of a sentence that somebody else has a part in."""
PATH_MAX = 4095
"""Bytes of a path, as the kernel has it."""
PROSE_MAX = 131_071
"""Bytes of one argument or variable: the kernel takes no more."""
PORT_MAX = 65_535

_END = 10
"""Characters by which names that were cut stay different."""
_HALF = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_URL = re.compile(r"(?i:https?)://(?:\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[\w.-]+)(?::(?P<port>[0-9]{1,9}))?(?:/[!-~]*)?")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def wrong_line(text: str, most: int = WORD_MAX) -> str:
    """What is wrong with one line of text: a name, a key, a label, a reason."""
    told = _wrong_letters(text) or (f"must have at most {most} characters" if len(text) > most else "")
    if told:
        return told
    return "" if text.isprintable() else f"must be printable text on one line, not {_quoted(text)}"


def wrong_path(text: str) -> str:
    """What is wrong with the path of a file or folder."""
    return wrong_line(text, PATH_MAX) or _wrong_size(text, PATH_MAX)


def wrong_prose(text: str) -> str:
    """What is wrong with a command's word or a variable's value; line ends and tabs are right."""
    return _wrong_letters(text) or _wrong_size(text, PROSE_MAX)


def wrong_variable(text: str) -> str:
    """What is wrong with the name of an environment variable."""
    if len(text) <= WORD_MAX and _VARIABLE.fullmatch(text):
        return ""
    return f"must be letters, digits and _ and not begin with a digit, not {_quoted(text)}"


def wrong_token(text: str) -> str:
    """What is wrong with a token, which travels in the head of requests. Nothing of it is told: it is a secret."""
    plain = text.isascii() and text.isprintable()
    return "" if plain else "must be printable ASCII on one line, and holds something else"


def wrong_url(text: str) -> str:
    """What is wrong with the address of a server. One that holds a password is not shown."""
    found = _URL.fullmatch(text)
    if found and int(found["port"] or 0) <= PORT_MAX:
        return ""
    told = (
        ", with no name or password in it"
        if "@" in text
        else f" with a port of at most {PORT_MAX}, not {_quoted(text)}"
    )
    return f"must be https://HOST:PORT or http://HOST:PORT{told}"


def shown(text: str, most: int = 60) -> str:
    """Somebody else's text as it can stand in a line of ours: without control characters, cut short."""
    plain = text if text.isprintable() else ascii(text[: most + 1])[1:-1]
    return plain if len(plain) <= most else f"{plain[: most - 3]}..."


def plain(text: str) -> str:
    """What people wrote, fit for a line of text: whatever would move a cursor or forge another line is `?`."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def named(text: str, most: int = WORD_MAX) -> str:
    """Somebody else's name as it can be one of ours: what could not be is cut and plain, and by its end no other's."""
    if text and len(text) <= most and text.isprintable() and text == text.strip():
        return text
    end = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:_END]
    return f"{plain(text[: most - _END - 1]).strip()}-{end}".removeprefix("-")


def line(text: str, most: int = LINE_MAX) -> str:
    """A sentence that somebody else has a part in, as it can be told anywhere: plain, and with an end."""
    whole = plain(text).strip()
    if not _wrong_size(whole, most):
        return whole
    return whole.encode()[: most - 3].decode(errors="ignore").strip() + "..."


def _wrong_letters(text: str) -> str:
    if _HALF.search(text):
        return f"must be whole UTF-8, and {_quoted(text)} holds half a character"
    if found := _CONTROL.search(text):
        return f"must hold no control characters, and holds {_quoted(found.group())}"
    return ""


def _wrong_size(text: str, most: int) -> str:
    return f"must have at most {most} bytes" if len(text) * 4 > most and len(text.encode()) > most else ""


def _quoted(text: str) -> str:
    """As it can be shown anywhere, cut short."""
    quoted = ascii(text[:60])
    return quoted if len(quoted) <= 60 else f"{quoted[:57]}..."
