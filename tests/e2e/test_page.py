"""The live page in a real browser: it draws the fleet, follows what happens, explains, and lets nobody else in."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell
from tests.support import browser
from tests.support.browser import Browser, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not browser.find(), reason="needs a browser: chromium or chrome on the PATH"),
]

FLEET = """
apiVersion: gpuyard.dev/v1
kind: Snapshot
topology: [rack]
nodes:
  - {name: n0, gpus: 4, model: H100-SXM5-80GB, domains: {rack: r0}, islands: [[0, 1], [2, 3]]}
  - {name: n1, gpus: 4, model: H100-SXM5-80GB, domains: {rack: r1}, unhealthy: [3], health: {2: suspect}}
"""
HELD = "document.querySelectorAll('#fleet button.gpu').length"


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Browser]:
    made = Browser(tmp_path / "profile")
    yield made
    made.close()


@pytest.fixture
def url(shell: Shell, tmp_path: Path) -> str:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    shell.up("--fleet", str(path))
    return shell("page").stdout.strip()


def opened(chromium: Browser, url: str, scheme: str = "light") -> Page:
    page = chromium.page(url, scheme)
    page.until("document.querySelectorAll('.node').length === 2")
    return page


def test_it_draws_the_fleet_and_follows_what_happens(chromium: Browser, shell: Shell, url: str):
    page = opened(chromium, url)
    assert page.ask("document.querySelector('#tiles').innerText").split()[:2] == ["8", "GPUs"]
    assert page.ask("document.querySelectorAll('.gpu.sick').length") == 2  # one of them in the legend
    assert page.ask(HELD) == 0
    tells = 'echo \'{"done": 3000, "total": 12000}\' > $GPUYARD_PROGRESS; sleep 600'
    shell("run", "--detach", "--name", "train", "--gpus", "2", "--", "sh", "-c", tells)
    page.until(f"{HELD} === 2")
    page.until("document.querySelector('#running').innerText.includes('train')")
    shell("run", "--gpus", "0", "--", "true")  # something happens, so the page looks again
    page.until("document.querySelector('#running').innerText.includes('3,000 of 12,000 steps')")
    page.until("document.querySelector('#events').innerText.includes('train started')")
    shell("cancel", "train")
    page.until(f"{HELD} === 0")
    page.until("document.querySelector('#state').innerText === 'live'")


def test_a_job_that_waits_is_explained(chromium: Browser, shell: Shell, url: str):
    page = opened(chromium, url)
    shell("run", "--detach", "--name", "train", "--gpus", "4", "--", "sleep", "600")
    shell("run", "--detach", "--name", "next", "--gpus", "4", "--", "true")
    page.until("document.querySelector('#waiting').innerText.includes('next')")
    page.ask("[...document.querySelectorAll('button.job')].find((each) => each.innerText === 'next').click()")
    told = page.until("document.querySelector('#detail-body ul') && document.querySelector('#detail').innerText")
    assert "train would have to stop: 4 GPUs, default, priority 50" in told
    page.ask("document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }))")
    page.until("document.querySelector('#detail').classList.contains('hidden')")


def test_what_somebody_should_look_at_stands_there_while_it_lasts(chromium: Browser, shell: Shell, url: str):
    page = opened(chromium, url)
    assert page.ask("document.querySelector('#alerts-part').classList.contains('hidden')")
    shell("drain", "n1", "--yes", "--reason", "fan <b>loud</b>")
    told = page.until("document.querySelector('#alerts li') && document.querySelector('#alerts-part').innerText")
    alert = json.loads(shell("alerts", "-o", "json").stdout)[0]
    assert "alerts (1)" in told.lower()  # capitals are the style sheet's
    assert all(word in told for word in (alert["severity"], alert["sentence"], alert["command"]))
    assert "fan <b>loud</b>" in told  # as text, and nothing else
    assert page.ask("document.querySelectorAll('#alerts li b').length") == 1
    shell("undrain", "n1")
    page.until("document.querySelector('#alerts-part').classList.contains('hidden')")


def test_a_drained_node_is_seen_to_be_closed(chromium: Browser, shell: Shell, url: str):
    page = opened(chromium, url)
    shell("drain", "n0", "--reason", "fan is loud", "--yes")
    page.until("document.querySelector('.node.closed .phase')?.innerText === 'drained'")
    assert "fan is loud" in page.ask("document.querySelector('.node.closed').title")


def test_dark_and_light_differ_and_text_stands_out_in_both(chromium: Browser, url: str):
    page = opened(chromium, url)
    light = colours(page)
    page.send("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    dark = colours(page)
    assert light != dark
    for ground, ink in (light, dark):
        assert contrast(ground, ink) >= 7  # the stricter level of WCAG


def colours(page: Page) -> list[list[int]]:
    script = "[...getComputedStyle(document.body)[key].matchAll(/\\d+/g)].map((found) => Number(found[0]))"
    return [page.ask(script.replace("key", f"'{key}'")) for key in ("backgroundColor", "color")]


def contrast(one: list[int], other: list[int]) -> float:
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def luminance(colour: list[int]) -> float:
    parts = [part / 255 for part in colour[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_it_loads_nothing_from_elsewhere_and_breaks_nothing(chromium: Browser, url: str):
    page = opened(chromium, url)
    names = page.ask("performance.getEntriesByType('resource').map((each) => new URL(each.name).origin)")
    assert set(names) == {page.ask("location.origin")}
    assert page.ask("location.hash") == "", "the code stays in nobody's history"


def test_without_a_fresh_address_nobody_is_let_in(chromium: Browser, tmp_path: Path, url: str):
    opened(chromium, url)
    with contextlib.closing(Browser(tmp_path / "stranger")) as stranger:
        page = stranger.page(url)  # its code is used up
        page.until("document.querySelector('#state')?.innerText.startsWith('You are not let in')")
        assert not page.ask("document.querySelectorAll('.node').length")


def test_a_server_on_another_port_of_this_machine_gets_nothing_that_opens_the_yard(chromium: Browser, url: str):
    seen: list[dict[str, str]] = []

    class Neighbour(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<p>hello</p>")

        def log_message(self, *_: object) -> None: ...

    opened(chromium, url)
    with HTTPServer(("127.0.0.1", 0), Neighbour) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = chromium.page(f"http://127.0.0.1:{server.server_port}/")
        page.until("document.querySelector('p')?.innerText === 'hello'")
        assert page.ask("document.cookie + JSON.stringify({...sessionStorage, ...localStorage})") == "{}"
        server.shutdown()
    assert seen
    assert not any({"cookie", "authorization"} & headers.keys() for headers in seen)


def test_it_shows_queues_history_expected_starts_and_what_is_free_for_whom(chromium: Browser, shell: Shell, url: str):
    shell("run", "--detach", "--name", "train", "--gpus", "4", "--time-limit", "1h", "--", "sleep", "600")
    shell("run", "--detach", "--name", "next", "--gpus", "4", "--", "sleep", "600")
    page = opened(chromium, url)
    page.until("document.querySelector('#waiting').innerText.includes('next')")
    page.until("document.querySelector('#waiting').innerText.includes(' to ')")
    assert page.ask("document.querySelector('#queues').innerText").split()[:2] == ["default", "4"]
    page.until("document.querySelectorAll('#history svg').length === 2")
    assert "most free in one node" in page.ask("document.querySelector('#tiles').innerText")
    assert shell("why", "next").stdout.split(": ", 1)[1].splitlines()[0] in page.ask(
        "document.querySelector('#waiting').innerText"
    )
    page.until("[...document.querySelectorAll('#events button')].some(each => each.innerText === 'next')")


def test_on_a_phone_nodes_stand_side_by_side(chromium: Browser, url: str):
    page = chromium.page(url, "light", 400, 900)
    page.until("document.querySelectorAll('.node').length === 2")
    assert page.ask("document.documentElement.scrollWidth") <= 400
    columns = page.ask("getComputedStyle(document.querySelector('.nodes')).gridTemplateColumns.split(' ').length")
    assert columns == 2


def test_it_says_so_when_the_yard_is_gone(chromium: Browser, shell: Shell, url: str):
    page = opened(chromium, url)
    shell("down")
    page.until("document.querySelector('#state').className === 'stale'")
    page.ask("lastSign -= 60000, tellAge()")
    assert page.ask("document.querySelector('#stale').innerText").endswith("old: the yard does not answer.")
