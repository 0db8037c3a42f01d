"""Makes `.venv` with everything in it. Called by `make setup`; needs Python 3.11 and a package index.

uv does not read pip's configuration, so whatever index, certificate or host pip has been told about is
passed on to uv. Versions and hashes come from `uv.lock`; addresses do not: the lock is exported as hashed
requirements first, so that any index which carries the same files will do.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV_VERSION = "uv>=0.9,<1"

# pip's setting -> the environment variable by which uv knows the same thing
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
}


def main() -> None:
    """Make the environment, find uv, install what the lock says, then the project itself."""
    if sys.version_info < (3, 11):  # noqa: UP036 (this is where an older Python is turned away)
        sys.exit(f"GPUYard needs Python 3.11 or newer, not {sys.version.split()[0]}. Try: make setup PYTHON=...")
    make_venv()
    environment = {**os.environ, "VIRTUAL_ENV": str(VENV), "UV_PYTHON_DOWNLOADS": "never"}
    for name, value in uv_settings(pip_settings()).items():
        environment.setdefault(name, value)
    uv = find_uv()
    export = [uv, "export", "--quiet", "--frozen", "--all-groups", "--no-emit-project"]
    requirements = VENV / "requirements.txt"
    run([*export, "--format", "requirements-txt", "--output-file", str(requirements)], environment)
    install = [uv, "pip", "install", "--quiet", "--python", str(PYTHON)]
    run([*install, "--require-hashes", "-r", str(requirements)], environment)
    run([*install, "--no-deps", "--editable", str(ROOT)], environment)


def make_venv() -> None:
    """Make `.venv` unless a working one is there."""
    if PYTHON.exists() and subprocess.run([PYTHON, "-c", ""], check=False).returncode == 0:
        return
    try:
        venv.create(VENV, clear=True, symlinks=True, with_pip=True)
    except subprocess.CalledProcessError:
        if shutil.which("uv") is None:
            sys.exit("This Python cannot make environments: install python3-venv, or uv.")
        venv.create(VENV, clear=True, symlinks=True, with_pip=False)


def find_uv() -> str:
    """The uv of the machine, or one installed into `.venv`."""
    found = shutil.which("uv") or shutil.which("uv", path=str(VENV / "bin"))
    if found:
        return found
    run(
        [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV_VERSION],
        dict(os.environ),
    )
    return str(VENV / "bin" / "uv")


def pip_settings() -> dict[str, str]:
    """What pip has been told, by files and by the environment; the environment wins, as with pip."""
    listing = ""
    for python in (str(PYTHON), sys.executable):
        asked = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            listing = asked.stdout
            break
    return parse_pip_settings(listing, os.environ)


def parse_pip_settings(listing: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Read the lines of `pip config list` (`section.key='value'`), then the PIP_ variables."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for line in listing.splitlines():
        name, _, quoted = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in sections and quoted:
            sections[section][key] = str(ast.literal_eval(quoted))
    settings = {**sections["global"], **sections["install"]}
    for key in UV_NAMES:
        value = environment.get("PIP_" + key.upper().replace("-", "_"))
        if value:
            settings[key] = value
    return settings


def uv_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings in uv's words. Missing folders are left out: uv minds them, pip does not."""
    words: dict[str, str] = {}
    for key, name in UV_NAMES.items():
        values = settings.get(key, "").split()
        if key == "find-links":
            values = [value for value in values if "://" in value or Path(value).is_dir()]
        if values:
            words[name] = ",".join(values) if key == "find-links" else " ".join(values)
    return words


def run(command: list[str], environment: dict[str, str]) -> None:
    """Run one step; stop with its own exit code if it fails."""
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"make setup: this step failed with exit code {done.returncode}: {' '.join(command)}")


if __name__ == "__main__":
    main()
