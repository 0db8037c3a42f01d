"""What every test shares: hypothesis profiles, and the rule that a skip needs a good reason.

With CI=true a skipped test is a failed test, unless its reason begins with one of a few words: a test that nobody runs
proves nothing, and a missing tool on the build machine must not look like success. `.ci/run` gets what can be got.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

ALLOWED_SKIPS = ("needs a real GPU", "needs root", "needs a browser", "needs podman", "needs Kubernetes")
pytest_plugins = ["tests.support.kube.fixtures", "tests.support.kube.real_fixtures"]
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# Hints tell `yard` as it works from where the reader stands: here it is on the PATH.
os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))

# Shells start what goes on in the background deaf to Ctrl-C, and who is deaf starts others deaf: they are to hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Deadlines are off: on a shared machine they measure the neighbours.
# The same examples every time, so that a run says something about the change and not about luck; `proof` is random.
settings.register_profile("quick", max_examples=5, deadline=None, derandomize=True)
settings.register_profile("dev", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "proof", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("mutants", max_examples=5, deadline=None, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also what `make test` has no time for")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is long unless it is asked for: no skip, since nothing is missing."""
    if config.getoption("--long"):
        return
    left = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test into a failed one, in CI."""
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself as a whole while it is collected."""
    report = yield
    refuse_skip(report)
    return report


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Mark the report as failed if it is a skip nobody may take in CI. Expected failures are no skips."""
    if not IN_CI or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = skip_reason(report)
    if not reason.startswith(ALLOWED_SKIPS):
        report.outcome = "failed"
        allowed = " or ".join(ALLOWED_SKIPS)
        report.longrepr = f"{report.nodeid} was skipped, and CI allows that only for what {allowed}: {reason}"


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The words given with the skip, without pytest's own prefix."""
    longrepr = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")
