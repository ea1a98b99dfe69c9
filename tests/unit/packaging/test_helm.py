"""The chart for Kubernetes, rendered and checked by Helm's own engine."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from disque_trio.config import Config, load_settings
from disque_trio.version import VERSION
from tests.support import ROOT

pytest.importorskip("helm_python")
pytest.importorskip("kubernetes_validate")

import helm_python as helm

from tests.support.helm import ALL, CHART, MAIL, Manifest, Rendered, check, rendered
from tests.support.monitoring import RULES, dashboard

NODES = ("StatefulSet", "jobs")


def nodes(**values: Any) -> Manifest:
    spec = rendered(**values)[NODES]["spec"]
    assert isinstance(spec, dict)
    return spec


def container(**values: Any) -> Manifest:
    return rendered(**values).container(*NODES)


def environment(of: Manifest) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in of["env"]}


def mounted(of: Manifest) -> dict[str, str]:
    return {mount["name"]: mount["mountPath"] for mount in of["volumeMounts"]}


def test_helm_finds_nothing_wrong() -> None:
    problems = [found for found in helm.lint(str(CHART))["messages"] if found["severity"] > 1]
    assert problems == []


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == values["image"]["tag"] == VERSION


@pytest.mark.parametrize("values", [{}, ALL, {"address": "jobs.shop:7711", **ALL}])
def test_the_api_server_takes_everything(values: dict[str, Any]) -> None:
    for manifest in Rendered(values).manifests.values():
        check(manifest)


def test_without_values_there_are_nodes_with_services_and_no_more() -> None:
    assert rendered().kinds() == {
        *("ConfigMap", "PodDisruptionBudget", "Service", "StatefulSet", "Pod"),
        *("Role", "RoleBinding", "ServiceAccount"),
    }


def test_for_a_cluster_elsewhere_no_nodes_run() -> None:
    found = Rendered({"address": "jobs.shop:7712", **ALL})
    assert not found.kinds() & {"StatefulSet", "ServiceMonitor", "Certificate", "Role"}
    assert not [name for kind, name in found.manifests if kind == "CronJob" and "backup" in name]
    assert (
        "@jobs.shop:7712?" in environment(found.container("Deployment", "jobs-mail"))["DISQUE_URL"]
    )
    assert "--nodes=jobs.shop:7712" in found.container("Deployment", "jobs-console")["args"]
    assert "--nodes=jobs.shop:7712" in found.container("Deployment", "jobs-archive")["command"]
    assert {"jobs.shop", "7712"} <= {*found["Pod", "jobs-check"]["spec"]["containers"][0]["args"]}


# ---- nodes --------------------------------------------------------------------------------------


def test_all_nodes_start_at_once_and_meet_all_by_the_names_that_the_service_gives() -> None:
    found = rendered(nodes=2)
    assert found[NODES]["spec"]["podManagementPolicy"] == "Parallel"
    names = found["ConfigMap", "jobs"]["data"]["nodes"].split()
    assert names == ["jobs-0.jobs-nodes", "jobs-1.jobs-nodes"]
    node = found.container(*NODES)
    *command, file = node["lifecycle"]["postStart"]["exec"]["command"]
    assert command == ["disque-container", "meet-soon"]
    assert file == f"{mounted(node)['settings']}/nodes"
    service = found["Service", "jobs-nodes"]["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"]


def test_another_number_of_nodes_changes_no_pod() -> None:
    assert nodes(nodes=3)["template"] == nodes(nodes=5)["template"]
    assert nodes(nodes=5)["replicas"] == 5


def test_a_node_that_is_scaled_away_has_time_to_give_its_jobs_away() -> None:
    pod = nodes(scaleDown={"seconds": 100}, stopSeconds=20)["template"]["spec"]
    (node,) = pod["containers"]
    assert node["lifecycle"]["preStop"]["exec"]["command"] == ["disque-container", "leave"]
    environ = environment(node)
    assert (environ["DISQUE_LEAVE_WAIT"], environ["DISQUE_STOP_WAIT"]) == ("100", "20")
    assert environ["DISQUE_POD"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert pod["terminationGracePeriodSeconds"] >= 120
    # One that Kubernetes finds dead is not waited for.
    assert node["livenessProbe"]["terminationGracePeriodSeconds"] == 20


def test_a_node_may_ask_how_many_there_are_to_be_and_nothing_else() -> None:
    found = rendered()
    (rule,) = found["Role", "jobs"]["rules"]
    assert rule == {
        "apiGroups": ["apps"],
        "resources": ["statefulsets"],
        "resourceNames": ["jobs"],
        "verbs": ["get"],
    }
    (subject,) = found["RoleBinding", "jobs"]["subjects"]
    pod = found[NODES]["spec"]["template"]["spec"]
    assert subject["name"] == pod["serviceAccountName"] == "jobs"
    assert pod["automountServiceAccountToken"]
    others = [spec for name, spec in Rendered(ALL).pods() if name != "jobs"]
    assert others
    assert not any(one["spec"]["automountServiceAccountToken"] for one in others)


def test_volumes_of_nodes_that_are_gone_are_kept_unless_told_otherwise() -> None:
    policy = "persistentVolumeClaimRetentionPolicy"
    assert nodes()[policy] == {"whenScaled": "Retain", "whenDeleted": "Retain"}
    changed = nodes(storage={"whenScaled": "Delete"})[policy]
    assert changed == {"whenScaled": "Delete", "whenDeleted": "Retain"}


def test_selectors_and_ports_fit() -> None:
    found = rendered()
    labels = found[NODES]["spec"]["template"]["metadata"]["labels"]
    assert found[NODES]["spec"]["selector"]["matchLabels"] == labels
    assert found["PodDisruptionBudget", "jobs"]["spec"]["selector"]["matchLabels"] == labels
    names = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert names["bus"] == names["disque"] + 10000
    for service in ("jobs", "jobs-nodes"):
        assert found["Service", service]["spec"]["selector"] == labels
        for port in found["Service", service]["spec"]["ports"]:
            assert names[port["name"]] == port["port"]


def test_each_selector_finds_the_pods_of_its_own_kind_only() -> None:
    found = Rendered(ALL)
    pods = {name: pod["metadata"]["labels"].items() for name, pod in found.pods()}
    for (kind, name), manifest in found.manifests.items():
        if kind in ("Deployment", "StatefulSet"):
            wanted = manifest["spec"]["selector"]["matchLabels"].items()
            assert [pod for pod, labels in pods.items() if wanted <= labels] == [name]


def test_nothing_runs_as_root_and_nothing_secret_is_an_argument() -> None:
    image = (ROOT / "config" / "container" / "Containerfile").read_text()
    (user,) = re.findall(r"^USER (\d+):", image, re.MULTILINE)
    for _, pod in Rendered(ALL).pods():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] == int(user)
        (only,) = spec["containers"]
        assert only["securityContext"]["readOnlyRootFilesystem"]
        assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not only["securityContext"]["allowPrivilegeEscalation"]
    assert "args" not in container()


def test_openshift_may_choose_the_user() -> None:
    for _, pod in Rendered({**ALL, "user": None}).pods():
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"]
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & context.keys()


def test_services_put_no_variables_into_pods() -> None:
    """DISQUE_PORT, from a service ``disque``, would set the port of the node."""
    for _, pod in Rendered(ALL).pods():
        assert pod["spec"]["enableServiceLinks"] is False


def test_settings_are_what_a_node_takes(tmp_path: Path) -> None:
    text = rendered(settings="maxmemory 2gb\nloglevel verbose\n")["ConfigMap", "jobs"]["data"]
    file = tmp_path / "disque.conf"
    file.write_text(text["disque.conf"])
    config = load_settings(Config, str(file))
    assert (config.metrics_port, config.maxmemory) == (9711, 2 * 1024**3)


# ---- TLS ----------------------------------------------------------------------------------------


def test_without_tls_nothing_speaks_of_it() -> None:
    values = {key: value for key, value in ALL.items() if key != "tls"}
    for _, pod in Rendered(values).pods():
        assert "tls" not in json.dumps(pod).replace("tlsSecret", "")


def test_with_tls_nodes_and_their_clients_have_what_they_need() -> None:
    found = Rendered(ALL)
    secret = found["Certificate", "jobs"]["spec"]["secretName"]
    assert secret == "jobs-tls"
    for name, pod in found.pods():
        (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "tls"]
        assert volume["secret"]["secretName"] == secret
        (only,) = pod["spec"]["containers"]
        assert mounted(only)["tls"] == "/run/tls", name
    assert environment(found.container(*NODES))["DISQUE_TLS_DIR"] == "/run/tls"
    assert environment(found.container(*NODES))["DISQUE_TLS_CLIENTS"] == "yes"


def test_clients_without_a_certificate_do_not_get_the_key_of_the_nodes() -> None:
    found = Rendered({**ALL, "tls": {"enabled": True}})
    for name, pod in found.pods():
        if name in ("jobs", "jobs-0", "jobs-0-backup", "jobs-1-backup", "jobs-2-backup"):
            continue  # nodes, and what reads their files
        (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "tls"]
        assert [item["key"] for item in volume["secret"]["items"]] == ["ca.crt"], name


def test_the_certificate_has_all_names_and_is_for_both_sides() -> None:
    spec = Rendered(ALL)["Certificate", "jobs"]["spec"]
    names = spec["dnsNames"]
    assert {"jobs", "jobs.shop.svc.cluster.local", "*.jobs-nodes", "localhost"} <= set(names)
    assert len(names) == len(set(names))
    assert {"server auth", "client auth"} <= set(spec["usages"])
    assert spec["issuerRef"]["name"] == "ca"


def test_certificates_of_ones_own_have_a_name_of_their_own() -> None:
    tls = {"enabled": True, "secret": "mine", "serverName": "disque.example.com"}
    found = Rendered({**ALL, "tls": tls})
    assert "Certificate" not in found.kinds()
    url = environment(found.container("Deployment", "jobs-mail"))["DISQUE_URL"]
    assert url.endswith("?ssl_ca_certs=/run/tls/ca.crt&ssl_server_name=disque.example.com")
    assert "--sni=disque.example.com" in found.container("Deployment", "jobs-console")["args"]


# ---- what else runs -----------------------------------------------------------------------------


def test_a_worker_has_its_app_its_cluster_and_time_to_finish() -> None:
    found = rendered(
        workers={"mail": {**MAIL, "grace": 100, "processes": "2..8", "concurrency": 4}}
    )
    pod = found["Deployment", "jobs-mail"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    assert worker["image"] == "shop:7"
    assert worker["command"][:2] == ["disque-worker", "shop.tasks:app"]
    assert {
        *("--queues=mail,sms:5,hooks.a", "--processes=2..8", "--concurrency=4", "--grace=100"),
        "--metrics=0.0.0.0:9100",
    } <= set(worker["command"])
    assert pod["terminationGracePeriodSeconds"] > 100 + 5
    assert environment(worker)["DISQUE_URL"] == "disque://:$(DISQUE_PASSWORD)@jobs:7711"
    (first, *_) = worker["env"]
    assert first["name"] == "DISQUE_PASSWORD"  # only variables before it can be used in another
    assert worker["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    # While all nodes are away it waits for them: it must not be restarted.
    assert "httpGet" not in worker["livenessProbe"]


def test_a_worker_may_have_a_user_of_its_own() -> None:
    found = rendered(workers={"mail": {**MAIL, "urlSecret": "mailer"}})
    variables = environment(found.container("Deployment", "jobs-mail"))
    assert variables == {"DISQUE_URL": {"secretKeyRef": {"name": "mailer", "key": "url"}}}


def test_workers_scale_by_what_prometheus_says_of_their_queues() -> None:
    found = Rendered(ALL)
    spec = found["ScaledObject", "jobs-mail"]["spec"]
    assert spec["scaleTargetRef"]["name"] == "jobs-mail"
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 9)
    (trigger,) = spec["triggers"]
    query = trigger["metadata"]["query"]
    assert trigger["metadata"]["threshold"] == "4"
    assert 'job="disque-jobs"' in query
    assert r'queue=~"mail|sms|hooks\\.a"' in query
    # With its number in the Deployment, each upgrade would undo what KEDA has done.
    assert "replicas" not in found["Deployment", "jobs-mail"]["spec"]
    assert found["Deployment", "jobs-sms"]["spec"]["replicas"] == 3


def test_a_deployment_elsewhere_scales_by_the_queue_of_this_cluster_only() -> None:
    keda = {"enabled": True, "deployment": "sms", "queue": "sms"}
    spec = rendered(keda=keda)["ScaledObject", "sms"]["spec"]
    (trigger,) = spec["triggers"]
    assert 'job="disque-jobs",queue=~"sms",' in trigger["metadata"]["query"]
    assert trigger["metadata"]["threshold"] == "16"
    assert spec["scaleTargetRef"]["name"] == "sms"
    other = rendered(keda=keda, monitoring={"job": "disque-eu"})["ScaledObject", "sms"]["spec"]
    assert 'job="disque-eu"' in other["triggers"][0]["metadata"]["query"]


def test_the_alerts_and_the_dashboard_are_those_of_the_project() -> None:
    found = Rendered(ALL)
    assert found["PrometheusRule", "jobs"]["spec"] == yaml.safe_load(RULES.read_text())
    (text,) = found["ConfigMap", "jobs-dashboard"]["data"].values()
    assert json.loads(text) == dashboard()


def test_metrics_get_the_job_that_the_alerts_look_for() -> None:
    found = Rendered(ALL)
    for kind, key in (("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")):
        (endpoint,) = found[kind, "jobs"]["spec"][key]
        assert {"targetLabel": "job", "replacement": "disque-jobs"} in endpoint["relabelings"]
    selected = found["ServiceMonitor", "jobs"]["spec"]["selector"]["matchLabels"].items()
    services = [
        name
        for (kind, name), manifest in found.manifests.items()
        if kind == "Service" and selected <= manifest["metadata"]["labels"].items()
    ]
    assert services == ["jobs-nodes"]
    with pytest.raises(helm.HelmError, match="/monitoring/job"):
        rendered(monitoring={"job": "jobs"})  # DisqueDown would not look at it


def test_a_console_asks_who_may_log_in() -> None:
    with pytest.raises(helm.HelmError, match="who may log in"):
        rendered(console={"enabled": True})
    args = rendered(console={"enabled": True, "acl": True}).container("Deployment", "jobs-console")
    assert "--acl" in args["args"]
    found = rendered(console={"enabled": True, "users": "people"})
    console = found.container("Deployment", "jobs-console")
    assert f"--users={mounted(console)['users']}/users" in console["args"]
    assert "--no-login" not in console["args"]


def test_a_console_below_a_prefix_is_found_there() -> None:
    ingress = {"enabled": True, "host": "example.com"}
    console = {"enabled": True, "acl": True, "prefix": "/disque", "ingress": ingress}
    found = rendered(console=console)
    (rule,) = found["Ingress", "jobs-console"]["spec"]["rules"]
    assert rule["http"]["paths"][0]["path"] == "/disque"
    probe = found.container("Deployment", "jobs-console")["livenessProbe"]
    assert probe["httpGet"]["path"] == "/disque/health"


def test_each_node_is_backed_up_beside_its_volume() -> None:
    for number in range(3):
        spec = Rendered(ALL)["CronJob", f"jobs-{number}-backup"]["spec"]["jobTemplate"]["spec"]
        pod = spec["template"]["spec"]
        (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert list(term["labelSelector"]["matchLabels"].values()) == [f"jobs-{number}"]
        (backup,) = pod["containers"]
        assert environment(backup)["DISQUE_BACKUP_NODE"] == f"jobs-{number}.jobs-nodes"
        claims = {
            volume["name"]: volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["volumes"]
            if "persistentVolumeClaim" in volume
        }
        assert claims == {"data": f"data-jobs-{number}", "backup": "copies"}
        assert {"name": "data", "mountPath": "/data", "readOnly": True} in backup["volumeMounts"]


def test_an_archive_is_one_pod_that_keeps_its_checkpoint() -> None:
    found = Rendered(ALL)
    spec = found["Deployment", "jobs-archive"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    archive = found.container("Deployment", "jobs-archive")
    assert {"--queue=log", "--output=/archive/table"} <= set(archive["command"])
    assert found["PersistentVolumeClaim", "jobs-archive"]["spec"]["resources"]["requests"]


def test_an_archive_without_a_volume_has_a_directory_that_goes_with_its_pod() -> None:
    found = Rendered({**ALL, "archive": {**ALL["archive"], "storage": {}}, "compact": {}})
    (pod,) = [pod for name, pod in found.pods() if name == "jobs-archive"]
    assert {"name": "archive", "emptyDir": {}} in pod["spec"]["volumes"]
    assert ("PersistentVolumeClaim", "jobs-archive") not in found.manifests
    off = {**ALL["archive"], "enabled": False}
    found = Rendered({**ALL, "archive": off, "compact": {}})
    assert ("Deployment", "jobs-archive") not in found.manifests


def test_nodes_write_event_logs_where_audits_look_for_them() -> None:
    found = Rendered(ALL)
    assert "event-log-dir /events\n" in found["ConfigMap", "jobs"]["data"]["disque.conf"]
    mount = {"name": "events", "mountPath": "/events"}
    claim = {"name": "events", "persistentVolumeClaim": {"claimName": "logs"}}
    pods = dict(found.pods())
    for name in "jobs", "jobs-audit", "jobs-watch":
        (container,) = pods[name]["spec"]["containers"]
        assert mount in container["volumeMounts"]
        assert claim in pods[name]["spec"]["volumes"]
    assert "/events" in found.container("CronJob", "jobs-audit")["command"]
    assert "/events" in found.container("Deployment", "jobs-watch")["command"]
    assert "event-log" not in Rendered({})["ConfigMap", "jobs"]["data"]["disque.conf"]


def test_an_audit_makes_a_page_and_ends_with_what_it_found(tmp_path: Path) -> None:
    values = {**ALL["audit"], "args": ["--check"]}
    command = Rendered({**ALL, "audit": values}).container("CronJob", "jobs-audit")["command"]
    program = tmp_path / "disque-pipeline"
    program.write_text('#!/bin/sh\necho "$@" >> "$CALLS"\n[ "$1" = report ] || exit "$STATUS"\n')
    program.chmod(0o755)
    audit, report = "audit /events --check --output /audit/tables", "report /audit/tables"
    for status, calls in (0, [audit, report]), (3, [audit, report]), (1, [audit]):
        made = tmp_path / str(status)
        environment = {"PATH": f"{tmp_path}:/bin:/usr/bin", "CALLS": made, "STATUS": str(status)}
        assert subprocess.run(command, env=environment).returncode == status
        assert made.read_text().splitlines() == calls


def test_pipelines_are_given_arguments_that_they_know() -> None:
    """After a mistake in its arguments, a pod would be restarted again and again."""
    pytest.importorskip("disque_spark")
    from disque_spark.cli.arguments import parser

    watch = {**ALL["watch"], "webhook": "http://hooks.example.com", "queue": "found"}
    found = Rendered({**ALL, "watch": watch})
    for kind, part in ("Deployment", "archive"), ("Deployment", "watch"), ("CronJob", "compact"):
        command = found.container(kind, f"jobs-{part}")["command"]
        assert command[:2] == ["disque-pipeline", part]
        assert parser().parse_args(command[1:]).command == part


def test_compaction_runs_where_the_volume_of_the_archive_is() -> None:
    spec = Rendered(ALL)["CronJob", "jobs-compact"]["spec"]["jobTemplate"]["spec"]["template"]
    (rule,) = spec["spec"]["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    archive = Rendered(ALL)["Deployment", "jobs-archive"]["spec"]["template"]["metadata"]["labels"]
    assert rule["labelSelector"]["matchLabels"] == archive
    table = {**ALL["archive"], "output": "s3a://bucket/table", "storage": {}}
    far = Rendered({**ALL, "archive": table})["CronJob", "jobs-compact"]["spec"]["jobTemplate"]
    assert "affinity" not in far["spec"]["template"]["spec"]
    assert far["spec"]["template"]["spec"]["containers"][0]["command"][2] == "s3a://bucket/table"


def test_only_nodes_reach_the_bus() -> None:
    spec = Rendered(ALL)["NetworkPolicy", "jobs"]["spec"]
    labels = nodes()["template"]["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"] == labels
    (bus,) = [rule for rule in spec["ingress"] if {"port": "bus"} in rule["ports"]]
    assert bus["from"] == [{"podSelector": {"matchLabels": labels}}]


@pytest.mark.parametrize(
    "part", ["node", "console", "worker", "archive", "compact", "audit", "watch", "backup"]
)
def test_each_kind_of_pod_can_be_placed_and_given_more(part: str) -> None:
    pod = {
        "labels": {"team": "mail"},
        "annotations": {"note": "x"},
        "priorityClassName": "high",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "jobs", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "env": [{"name": "TZ", "value": "UTC"}],
        "envFrom": [{"secretRef": {"name": "more"}}],
        "volumes": [{"name": "more", "emptyDir": {}}],
        "volumeMounts": [{"name": "more", "mountPath": "/more"}],
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    if part not in ("backup", "compact"):  # which have to be where the volume is
        pod["affinity"] = affinity
    values = dict(ALL)
    if part == "node":
        values["pod"] = pod
    elif part == "worker":
        values["workers"] = {"mail": {**MAIL, "pod": pod}}
    else:
        values[part] = {**ALL[part], "pod": pod}
    values["imagePullSecrets"] = ["pull", "pull-too"]
    found = Rendered(values)
    for manifest in found.manifests.values():
        check(manifest)
    name = {"node": "jobs", "worker": "jobs-mail", "backup": "jobs-0-backup"}.get(
        part, f"jobs-{part}"
    )
    (template,) = [one for pod_name, one in found.pods() if pod_name == name]
    spec = template["spec"]
    (only,) = spec["containers"]
    assert template["metadata"]["labels"]["team"] == "mail"
    assert template["metadata"]["annotations"]["note"] == "x"
    assert only["env"][-1] == {"name": "TZ", "value": "UTC"}
    assert only["envFrom"] == pod["envFrom"]
    assert only["volumeMounts"][-1]["name"] == spec["volumes"][-1]["name"] == "more"
    assert spec["imagePullSecrets"] == [{"name": "pull"}, {"name": "pull-too"}]
    for key in ("priorityClassName", "nodeSelector", "tolerations", "topologySpreadConstraints"):
        assert spec[key] == pod[key]
    assert part in ("backup", "compact") or spec["affinity"] == affinity


def test_the_notes_say_how_to_connect_and_how_to_look() -> None:
    notes = rendered().notes
    assert "disque://:PASSWORD@jobs:7711" in notes
    assert "exec jobs-0 -- disque-container disque check" in notes
    assert "helm --namespace shop test jobs" in notes
    assert "--tls" not in notes
    assert (
        "disques://:PASSWORD@jobs:7711?ssl_ca_certs=CA.CRT&ssl_server_name=jobs"
        in Rendered(ALL).notes
    )
