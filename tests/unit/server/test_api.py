"""Every method of the service over HTTP, mistakes as sentences, probes, metrics, events and the page."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from gpuyard.client import Client
from gpuyard.model.errors import Broken, Conflict, Never, NotFound, Refused
from gpuyard.runtime.service import Caller, Document
from gpuyard.server import metrics
from gpuyard.server.page import shell
from tests.support.hosted import Hosted


def get(served: Hosted, path: str, **headers: str):
    return served.tcp("GET", path, Authorization=f"Bearer {served.token}", **headers)


def test_jobs_go_in_and_are_found_again(client: Client):
    answer = client.submit([{"name": "a", "gpus": 2, "tasks": 2}])
    assert (answer[0]["name"], answer[0]["phase"]) == ("a", "running")
    assert client.job("a")["asked_gpus"] == 4
    assert [job["name"] for job in client.jobs()] == ["a"]
    assert client.jobs(fields=("name", "phase")) == [{"name": "a", "phase": "running"}]


def test_the_same_key_again_starts_nothing_twice(client: Client):
    client.submit([{"name": "a"}], key="k")
    client.submit([{"name": "a"}], key="k")
    assert len(client.jobs()) == 1


def test_a_preview_changes_nothing(client: Client):
    assert client.preview([{"name": "a", "gpus": 1}])[0]["verdict"] == "starts"
    assert client.jobs() == []


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda c: c.job("ghost"), NotFound, "no job 'ghost'"),
        (lambda c: c.submit([{"name": "big", "gpus": 99}]), Never, "--queue-anyway"),
        (lambda c: c.submit([{"nme": "a"}]), Refused, "did you mean name"),
        (lambda c: c.submit([]), Refused, "jobs"),
        (lambda c: c.attach("a"), Conflict, "no terminal"),
    ],
)
def test_a_mistake_comes_back_as_the_error_it_was(client: Client, ask, error: type, words: str):
    client.submit([{"name": "a"}])
    with pytest.raises(error, match=words):
        ask(client)


def test_a_bug_is_told_as_one(client: Client, served: Hosted, monkeypatch: pytest.MonkeyPatch):
    def fails(*_):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(served.yard, "why", fails)
    with pytest.raises(Broken, match="a bug in the yard"):
        client.why("a")


def test_verbs(client: Client):
    client.submit([{"name": "a"}])
    assert client.hold("a")["phase"] == "held"
    assert client.release("a")["phase"] == "waiting"
    assert client.requeue("a")["phase"] == "waiting"
    assert client.cancel("a")["phase"] == "cancelled"


def test_names_with_slashes_and_blanks_are_names(client: Client):
    client.submit([{"name": "team/a job?"}])
    assert client.job("team/a job?")["name"] == "team/a job?"
    assert client.why("team/a job?")["job"] == "team/a job?"


def test_logs_come_from_where_one_left_off(client: Client, served: Hosted):
    client.submit([{"name": "a"}])
    served.yard.output["a"] = b"one\ntwo\n"
    assert client.logs("a") == (b"one\ntwo\n", 8, True)
    assert client.logs("a", offset=4)[0] == b"two\n"
    served.yard.finish("a")
    assert client.logs("a", offset=8, wait_s=5.0) == (b"", 8, False)


def test_the_rest_of_the_service(client: Client):
    assert client.nodes()[0]["name"] == "n0"
    assert client.set_queue({"name": "q", "quota": 4}, dry_run=True)["queue"]["quota"] == 4
    assert len(client.queues()) == 1
    client.set_queue({"name": "q", "quota": 4})
    assert len(client.queues()) == 2
    assert client.snapshot()["kind"] == "Snapshot"
    assert client.report("user", 0.0)[0]["gpu_seconds"] == 7200.0
    assert client.backup("/tmp/x")["bytes"] == 4096
    assert client.login()["url"].startswith("http://127.0.0.1:")


def test_shutting_down_asks_whoever_runs_the_yard(client: Client, served: Hosted):
    assert not served.hosting.wait(0)
    client.shut_down(end_jobs=True)
    assert served.hosting.wait(300)
    served.hosting.close()
    assert served.yard.closed_with is True


# --- for machines --------------------------------------------------------------------------------


def test_probes_say_ok_and_on_request_what_is(served: Hosted):
    assert get(served, "/livez").body == b"ok\n"
    assert get(served, "/readyz?verbose").body == b"[+]loop ok\n[+]store ok\nok\n"
    served.yard.checks = {"store": "the disk is full", "loop": "ok"}
    answer = get(served, "/readyz")
    assert (answer.status, get(served, "/livez").status) == (503, 200)
    assert b"[-]store the disk is full" in answer.body


ALERT = {
    "key": "wait/a/training/Fragmented", "kind": "wait", "severity": "warning", "since": "2026-01-01T00:00:00Z",
    "sentence": "w has waited", "command": "yard why w", "count": 3,
}  # fmt: skip


def test_alerts_are_told_as_they_are(served: Hosted, client: Client):
    served.yard.alert_documents = [ALERT]
    assert client.alerts() == [ALERT]


def test_metrics_have_the_names_people_know(served: Hosted, client: Client):
    client.submit([{"name": "w", "gpus": 12}])
    served.yard.alert_documents = [ALERT, ALERT | {"key": "wait/b/training/Fragmented"}]
    text = get(served, "/metrics").body.decode()
    for line in (
        'gpuyard_build_info{version="0.1.0"} 1.0',
        'gpuyard_gpus{model="H100-SXM5-80GB",state="sick"} 2.0',
        'gpuyard_pending_workloads{queue="default",reason="NoRoom"} 1.0',
        'gpuyard_gpu_seconds_total{account="productive"} 12.5',
        'gpuyard_admission_wait_time_seconds_sum{queue="default"} 1.5',
        "gpuyard_cycle_duration_seconds_count 3.0",
        'gpuyard_alerts{kind="wait",severity="warning"} 2.0',
        'gpuyard_waiting_longer{class="training",queue="default",seconds="86400"} 1.0',
        'gpuyard_waiting_oldest_seconds{class="training",queue="default"} ',
    ):
        assert line in text, line


SENSED: list[Document] = [
    {"name": "DCGM_FI_DEV_GPU_UTIL", "words": "Use.", "kind": "gauge",
     "series": [({"gpu": "0", "hpc_job": "a"}, 80.0), ({"gpu": "0", "hpc_job": "b"}, 80.0)]},
    {"name": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "words": "Again.", "kind": "counter", "series": [({"gpu": "0"}, 3.0)]},
    {"name": "gpuyard_job_gpu_seconds_total", "words": "Had.", "kind": "counter", "series": [({"hpc_job": "a"}, 9.0)]},
    {"name": "DCGM_FI_DEV_GPU_TEMP", "words": "Heat.", "kind": "gauge", "series": []},
]  # fmt: skip


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_sensors_are_told_under_dcgms_own_names_and_jobs_to_operators_alone(served: Hosted, accept: str):
    served.yard.gpu_metrics = SENSED
    text = get(served, "/metrics", Accept=accept).body.decode()
    for line in (
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",hpc_job="a"} 80.0', 'DCGM_FI_DEV_GPU_UTIL{gpu="0",hpc_job="b"} 80.0',
        'DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu="0"} 3.0', 'gpuyard_job_gpu_seconds_total{hpc_job="a"} 9.0',
    ):  # fmt: skip
        assert f"{line}\n" in text
    assert "DCGM_FI_DEV_GPU_TEMP" not in text
    nameless = metrics.exposition(served.context, accept)[0].decode()
    assert nameless.count("DCGM_FI_DEV_GPU_UTIL{") == 1
    assert 'DCGM_FI_DEV_GPU_UTIL{gpu="0",hpc_job=""} 80.0' in nameless
    assert "gpuyard_job_" not in nameless


def test_openmetrics_is_served_to_those_who_accept_it(served: Hosted):
    answer = get(served, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")


def test_openapi_describes_every_path(served: Hosted):
    paths = get(served, "/openapi.json").json["paths"]
    assert {"/api/v1/jobs", "/api/v1/jobs/{name}/why", "/api/v1/events/stream", "/livez"} <= set(paths)


def test_what_nobody_serves_is_said(served: Hosted):
    assert get(served, "/api/v1/nothing").json["error"] == "There is no /api/v1/nothing."
    assert served.tcp("DELETE", "/api/v1/nodes", Authorization=f"Bearer {served.token}").status == 405


# --- events --------------------------------------------------------------------------------------


def test_events_are_followed_from_any_point(client: Client, served: Hosted):
    client.submit([{"name": name} for name in "abc"])
    following = client.follow(after=1)
    assert [next(following)["job"] for _ in range(2)] == ["b", "c"]
    served.yard.tell("ended", "a")
    assert next(following)["kind"] == "ended"
    following.close()  # type: ignore[attr-defined]


def test_a_listener_that_comes_back_gets_what_it_missed(served: Hosted, client: Client):
    import http.client

    client.submit([{"name": name} for name in "abc"])
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    headers = {"Authorization": f"Bearer {served.token}", "Last-Event-ID": "2"}
    connection.request("GET", "/api/v1/events/stream", headers=headers)
    answer = connection.getresponse()
    lines = [answer.readline() for _ in range(5)]
    connection.close()
    assert lines[0] == b"retry: 1000\n"
    assert b"id: 3\n" in lines


def test_waiting_for_events_ends_when_there_is_one(client: Client, served: Hosted):
    import threading

    client.submit([{"name": "a"}])
    threading.Timer(0.1, served.yard.tell, ("ended", "a")).start()
    assert [event["kind"] for event in client.events(1, wait_s=10.0)] == ["ended"]


# --- the page ------------------------------------------------------------------------------------


def test_the_page_runs_nothing_but_its_own_script(served: Hosted):
    answer = served.tcp("GET", "/")
    policy = answer.headers["content-security-policy"]
    script = re.search(r"<script>(.*?)</script>", answer.body.decode(), re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_page_is_whole_in_itself():
    assert not re.search(r"""\s(on\w+|style)\s*=\s*["']""", shell.HTML), "an inline handler would not run"
    assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", shell.HTML), "nothing comes from elsewhere"
    assert "prefers-color-scheme: dark" in shell.HTML


@pytest.mark.parametrize("path", ["jobs/a%00b", "jobs/%1b%5b2J/why", "jobs?fields=a%00", "events?x=%ed%a0%80%00"])
def test_the_words_of_a_request_pass_the_gate(served: Hosted, path: str):
    answer = get(served, f"/api/v1/{path}")
    assert answer.status == 400
    assert "must hold no control characters" in answer.json["error"]


def test_the_words_of_a_body_pass_it_too(client: Client):
    for ask in (
        lambda: client.submit([{"name": "a"}], key="a\x1bb"),
        lambda: client.drain("n0", reason="a\x1b[2Jb"),
        lambda: client.backup("/tmp/a\0b"),
    ):
        with pytest.raises(Refused, match="must hold no control characters"):
            ask()


def test_what_ails_the_yard_may_name_others_jobs_so_operators_are_told_it(served: Hosted):
    served.yard.checks = {"loop": "ok", "processes": "alice/secret: GPU 0 stays withheld"}
    member, operator = Caller("bob", 1001), Caller("root", 0, admin=True)
    assert served.context.status(operator)["checks"] == served.yard.checks
    seen = served.context.status(member)["checks"]
    assert seen == {"loop": "ok", "processes": "not well; the yard's operators are told why"}
    served.yard.left_out = "an event speaks of job alice/secret, which nobody submitted; that was left out"
    assert served.context.status(operator)["left_out"] == served.yard.left_out
    assert "left_out" not in served.context.status(member)
