"""`make setup` hands on to uv what pip has been told."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SETUP = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "setup.py"))
parse_pip_settings = SETUP["parse_pip_settings"]
uv_settings = SETUP["uv_settings"]

LISTING = """\
global.index-url='https://mirror.example/simple'
global.trusted-host='mirror.example other.example'
install.index-url='https://install.example/simple'
download.index-url='https://ignored.example/simple'
:env:.index-url='https://ignored.example/simple'
"""


def test_pip_files_are_read_and_the_install_section_wins():
    settings = parse_pip_settings(LISTING, {})
    assert settings["index-url"] == "https://install.example/simple"
    assert settings["trusted-host"] == "mirror.example other.example"


def test_the_environment_wins_over_files():
    settings = parse_pip_settings(LISTING, {"PIP_INDEX_URL": "https://env.example/simple"})
    assert settings["index-url"] == "https://env.example/simple"


def test_nothing_said_is_nothing_handed_on():
    assert uv_settings(parse_pip_settings("", {})) == {}


@pytest.mark.parametrize(
    ("pip", "value", "uv"),
    [
        ("index-url", "https://a.example/simple", "UV_DEFAULT_INDEX"),
        ("extra-index-url", "https://a.example/simple https://b.example/simple", "UV_INDEX"),
        ("trusted-host", "a.example b.example", "UV_INSECURE_HOST"),
        ("cert", "/etc/ssl/ca.pem", "SSL_CERT_FILE"),
    ],
)
def test_each_setting_has_its_uv_name(pip: str, value: str, uv: str):
    assert uv_settings({pip: value}) == {uv: value}


def test_several_lines_in_a_pip_file_are_several_values():
    listing = r"global.extra-index-url='\nhttps://a.example\nhttps://b.example'"
    assert uv_settings(parse_pip_settings(listing, {})) == {"UV_INDEX": "https://a.example https://b.example"}


def test_folders_of_wheels_that_do_not_exist_are_left_out(tmp_path: Path):
    links = f"{tmp_path} {tmp_path / 'missing'} https://a.example/wheels"
    assert uv_settings({"find-links": links}) == {"UV_FIND_LINKS": f"{tmp_path},https://a.example/wheels"}
