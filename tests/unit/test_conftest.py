"""The rule that a skip needs a good reason, tried on small suites of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

SUITE = """
    import pytest

    def test_passes():
        pass

    @pytest.mark.skip(reason="no browser here")
    def test_with_a_poor_reason():
        pass

    @pytest.mark.skipif(True, reason="needs a real GPU with MIG")
    def test_with_a_good_reason():
        pass

    def test_that_skips_while_it_runs():
        pytest.skip("not today")

    @pytest.mark.xfail(reason="known")
    def test_that_is_known_to_fail():
        assert False
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A small suite under our conftest, outside CI, untouched by the options of the suite it runs in."""
    for name in ("CI", "HYPOTHESIS_PROFILE", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(CONFTEST.parents[1]))  # it names fixtures by their package
    pytester.makeconftest(CONFTEST.read_text())
    return pytester


def run(suite: pytest.Pytester) -> pytest.RunResult:
    return suite.runpytest_subprocess("-p", "no:cacheprovider", "-rA")


def test_skips_are_skips_on_a_persons_machine(suite: pytest.Pytester):
    suite.makepyfile(SUITE)
    run(suite).assert_outcomes(passed=1, skipped=3, xfailed=1)


def test_ci_fails_skips_except_for_want_of_a_gpu(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "true")
    suite.makepyfile(SUITE)
    result = run(suite)
    result.assert_outcomes(passed=1, skipped=1, failed=1, errors=1, xfailed=1)
    result.stdout.fnmatch_lines_random(["*no browser here*", "*not today*"])


def test_ci_fails_a_skip_from_a_fixture(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "true")
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture
        def cluster():
            pytest.skip("no cluster")

        def test_on_a_cluster(cluster):
            pass
        """
    )
    result = run(suite)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*no cluster*"])


def test_ci_fails_a_module_that_skips_itself(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "true")
    suite.makepyfile("import pytest\npytest.importorskip('a_module_that_does_not_exist')")
    result = run(suite)
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*a_module_that_does_not_exist*"])


def test_ci_lets_a_module_pass_that_needs_a_gpu(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "true")
    suite.makepyfile("import pytest\npytest.skip('needs a real GPU', allow_module_level=True)")
    run(suite).assert_outcomes(skipped=1)


@pytest.mark.parametrize(
    ("environment", "examples"),
    [({}, 50), ({"CI": "true"}, 100), ({"HYPOTHESIS_PROFILE": "proof"}, 2000)],
    ids=["a person's machine", "ci", "proof"],
)
def test_the_hypothesis_profile_follows_the_environment(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], examples: int
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    suite.makepyfile(f"from hypothesis import settings\ndef test_it(): assert settings().max_examples == {examples}")
    run(suite).assert_outcomes(passed=1)
