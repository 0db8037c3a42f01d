"""What tasks wrote, read back from the segments that their supervisors write (`supervising.output`)."""

from __future__ import annotations

import pathlib

OUTPUT_MAX = 1 << 20
ROTATIONS_MAX = 10
"""So often a reader looks again whose segment is gone; a writer so much faster is read by nobody."""


def read_output(folder: pathlib.Path, offset: int) -> tuple[bytes, int]:
    """Bytes from an offset on, some at a time; what was rotated away is skipped, also while it is being read."""
    for _ in range(ROTATIONS_MAX):
        try:
            return _read_segments(folder, offset)
        except FileNotFoundError:  # the oldest segment went after the listing: look again, further on
            continue
    return b"", offset


def _read_segments(folder: pathlib.Path, offset: int) -> tuple[bytes, int]:
    try:
        segments = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    except OSError:
        return b"", offset
    begin = max((start for start in segments if start <= offset), default=segments[0] if segments else 0)
    offset = max(offset, begin)
    content = b""
    for start in (start for start in segments if start >= begin):
        with open(folder / f"{start:020d}", "rb") as file:
            file.seek(max(0, offset + len(content) - start))
            content += file.read(OUTPUT_MAX - len(content))
    return content, offset + len(content)
