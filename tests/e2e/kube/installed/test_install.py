"""`yard install` and `yard uninstall` on a real API server: again is harmless, and whoever was interrupted finishes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gpuyard.kube import applying
from gpuyard.runtime.clustered import installing
from tests.support.kube.cluster import Cluster
from tests.support.kube.commands import yard
from tests.support.kube.fake_kubelet import indexed_job, pod

pytestmark = pytest.mark.slow


def named(text: str, outcome: str) -> set[str]:
    return {line.partition(": ")[0] for line in text.splitlines() if f": {outcome}" in line}


def test_work_goes_on_when_gpuyard_is_taken_away(bare: Cluster):
    admin = bare.kubeconfig()
    yard(admin, "install")
    bare.create({"apiVersion": "gpuyard.dev/v1", "kind": "Queue", "metadata": {"name": "a"}, "spec": {}})
    token = bare.token_of("gpuyard-system", "gpuyard-scheduler")
    bare.create(pod("runs"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
    bare.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}})
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "runs"}, "target": target}
    bare.call("POST", "/api/v1/namespaces/default/pods/runs/binding", binding, token=token)
    bare.create(indexed_job("stopped", 1))
    job = "/apis/batch/v1/namespaces/default/jobs/stopped"
    mark = {"metadata": {"annotations": {"gpuyard.dev/suspended": "reclaimed"}}, "spec": {"suspend": True}}
    bare.call("PATCH", job, mark, "application/merge-patch+json", token)
    bare.create(indexed_job("small", 2))
    small = "/apis/batch/v1/namespaces/default/jobs/small"
    shrunk = {"metadata": {"annotations": {"gpuyard.dev/resizable": "true", "gpuyard.dev/full-size": "4"}}}
    bare.call("PATCH", small, shrunk, "application/merge-patch+json", token)
    asked = yard(admin, "uninstall", code=2)
    assert "1 queue go" in asked
    assert "1 pod that it has placed" in asked
    assert "resumed now: default/stopped" in asked
    assert bare.get("/apis/gpuyard.dev/v1/queues/a")  # nothing was done without a yes
    yard(admin, "uninstall", "--yes", "--keep-queues")
    assert bare.get("/apis/gpuyard.dev/v1/queues/a")
    assert bare.get("/api/v1/namespaces/default/pods/runs")["spec"]["nodeName"] == "n0"
    seen = bare.get(job)
    assert not seen["spec"]["suspend"]
    assert "gpuyard.dev/suspended" not in seen["metadata"].get("annotations", {})
    seen = bare.get(small)
    assert (seen["spec"]["parallelism"], seen["spec"]["completions"]) == (4, 4)
    assert "gpuyard.dev/full-size" not in seen["metadata"]["annotations"]


def test_whoever_may_not_install_is_told_of_every_thing_and_ends_with_an_error(bare: Cluster):
    bare.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}})
    told = yard(bare.kubeconfig(bare.token_of("default", "nobody"), "nobody"), "install", code=1)
    wanted = {applying.name_of(document) for document in installing.documents(installing.InstallWish())}
    assert named(told, "refused") == wanted
    assert "cannot get resource" in told
    assert told.count("error:") == 1


def test_what_another_has_settled_is_named_and_taken_over_only_by_force(bare: Cluster):
    admin = bare.kubeconfig()
    yard(admin, "install")
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpuyard-queues"
    bare.merge(path, {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
    told = yard(admin, "install", code=1)
    assert named(told, "refused") == {"ClusterRole gpuyard-queues"}
    assert "--force" in told
    assert named(yard(admin, "install", "--force"), "changed") == {"ClusterRole gpuyard-queues"}


def test_the_api_for_teams_is_a_service_with_a_certificate_of_a_secret_and_goes_with_its_wish(bare: Cluster):
    admin = bare.kubeconfig()
    yard(admin, "install")
    said = yard(admin, "install", "--image", "x:2", "--tls-secret", "yard-tls", code=1)
    assert "Secret gpuyard-system/yard-tls: refused (it is not there" in said
    assert "Deployment" not in said, "nothing is touched: no scheduler would start"
    secret = {
        "metadata": {"name": "yard-tls", "namespace": "gpuyard-system"},
        "data": {"tls.crt": "eA==", "tls.key": "eA=="},
    }
    bare.create({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", **secret})
    said = yard(admin, "install", "--image", "x:2", "--tls-secret", "yard-tls")
    assert "Service gpuyard-system/gpuyard" in named(said, "made")
    pod = bare.get("/apis/apps/v1/namespaces/gpuyard-system/deployments/gpuyard-scheduler")["spec"]["template"]["spec"]
    assert {"secretName": "yard-tls", "defaultMode": 0o440} in [each.get("secret") for each in pod["volumes"]]
    args = pod["containers"][0]["args"]
    assert args[args.index("--listen") + 1] == "0.0.0.0:8443"
    assert pod["containers"][0]["ports"][0]["name"] == "api"
    assert named(yard(admin, "install", "--image", "x:2", "--tls-secret", "yard-tls"), "changed") == set()
    said = yard(admin, "install", "--image", "x:2")
    assert named(said, "gone") == {"Service gpuyard-system/gpuyard"}
    assert "Deployment gpuyard-system/gpuyard-scheduler" in named(said, "changed")
    pod = bare.get("/apis/apps/v1/namespaces/gpuyard-system/deployments/gpuyard-scheduler")["spec"]["template"]["spec"]
    assert "--listen" not in pod["containers"][0]["args"]
    assert "--image" in yard(admin, "install", "--tls-secret", "yard-tls", code=2)


def test_a_dry_run_asks_nobody_and_writes_what_kubectl_takes(tmp_path):
    told = yard(
        str(tmp_path / "none"), "install", "--dry-run", "-o", "yaml", "--namespace", "elsewhere", "--image", "x:2"
    )
    documents = list(yaml.safe_load_all(told))
    assert "gpuyard-system" not in told
    assert {"elsewhere"} == {each["metadata"].get("namespace", "elsewhere") for each in documents}
    images = {
        c["image"]
        for d in documents
        if "template" in d.get("spec", {})
        for c in d["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"x:2"}
    assert json.dumps(documents)


def test_agents_are_given_the_one_file_of_their_node_that_tells_the_kubelets_topology_policy(tmp_path: Path):
    path = "/var/lib/kubelet/config.yaml"
    wish = ("--image", "x:2", "--kubelet-config", path)
    text = yard(str(tmp_path / "none"), "install", *wish, "--dry-run", "-o", "yaml")
    (agent,) = [each for each in yaml.safe_load_all(text) if each["kind"] == "DaemonSet"]
    pod = agent["spec"]["template"]["spec"]
    (mounted,) = [each["hostPath"] for each in pod["volumes"] if "hostPath" in each]
    assert mounted == {"path": path, "type": "File"}, "a file that is not there is not made"
    inside = pod["containers"][0]["args"][-1]
    assert {"name": "kubelet", "mountPath": inside, "readOnly": True} in pod["containers"][0]["volumeMounts"]
    for wrong in (("--kubelet-config", path), ("--image", "x:2", "--kubelet-config", "config.yaml")):
        assert "begins with /" in yard(str(tmp_path / "none"), "install", "--dry-run", *wrong, code=2)
