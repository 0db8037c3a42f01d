"""The live page as it is served: `live.html`, and a policy under which nothing but its own script and style runs.

Read once, by `probes`. The page needs no build and asks no other host for anything.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources


def _hashes(html: str, tag: str) -> str:
    """CSP sources for the inline blocks of a tag: their hashes, so that nothing injected ever runs."""
    blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


HTML = resources.files("gpuyard.server.page").joinpath("live.html").read_text(encoding="utf-8")

HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hashes(HTML, 'script')}; style-src {_hashes(HTML, 'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
