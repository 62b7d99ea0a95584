# SPDX-License-Identifier: Apache-2.0
"""The files of deploy/: by the schemas of Compose and Kubernetes (scripts/clients.sh deploy), and by what the binary takes."""
import glob
import json
import os
import re
import subprocess

import pytest

from live_client import expect, expect_equal

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = os.path.join(ROOT, "build", "deploy-venv", "bin", "python")
COMPOSE = os.path.join(ROOT, "deploy", "compose.yaml")
MANIFESTS = sorted(glob.glob(os.path.join(ROOT, "deploy", "kubernetes", "*.yaml")))

pytestmark = pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason="scripts/clients.sh deploy installs the schemas")

READ = "import json, sys, yaml; print(json.dumps([one for one in yaml.safe_load_all(open(sys.argv[1])) if one]))"
CHECK_KUBERNETES = """
import json, sys, kubernetes_validate
for one in json.load(sys.stdin):
    kubernetes_validate.validate(one, "1.37", strict=True)
"""
CHECK_COMPOSE = """
import glob, json, os, sys, jsonschema
schema, = glob.glob(os.path.join(os.path.dirname(sys.executable), "../lib/python*/site-packages/compose/config/compose_spec.json"))
for one in json.load(sys.stdin):
    jsonschema.Draft7Validator(json.load(open(schema))).validate(one)
"""


def python(program, *arguments, text=None):
    return subprocess.run([PYTHON, "-c", program, *arguments], input=text, capture_output=True, text=True)


def documents(path):
    done = python(READ, path)
    expect_equal(done.returncode, 0, done.stderr)
    return json.loads(done.stdout)


def containers():
    """(file, command, environment) of all that runs `loci`."""
    for name, service in documents(COMPOSE)[0]["services"].items():
        if service.get("command", [""])[0] == "loci":
            yield f"compose {name}", service["command"], set(service["environment"])
    for path in MANIFESTS:
        for one in documents(path):
            for container in one["spec"].get("template", {}).get("spec", {}).get("containers", []):
                yield f"{one['kind']} {one['metadata']['name']}", container["command"], {entry["name"] for entry in container["env"]}


def test_kubernetes_takes_the_manifests():
    kinds = []
    for path in MANIFESTS:
        # Of a kind that the operator of Prometheus adds there is no schema here: test_monitors_find_services.
        own = [one for one in documents(path) if one["apiVersion"] != "monitoring.coreos.com/v1"]
        kinds += [one["kind"] for one in own]
        done = python(CHECK_KUBERNETES, text=json.dumps(own))
        expect_equal(done.returncode, 0, f"{path}: {done.stderr[-1500:]}")
    expect_equal({kind: kinds.count(kind) for kind in kinds}, {"Deployment": 3, "PodDisruptionBudget": 3, "Service": 3}, "what there is")


def test_the_check_sees_a_fault():
    wrong = [one for one in documents(MANIFESTS[0]) if one["kind"] == "Deployment"]
    wrong[0]["spec"]["replicas"] = "two"
    expect(python(CHECK_KUBERNETES, text=json.dumps(wrong)).returncode != 0, "a word for a number")
    compose = documents(COMPOSE)
    compose[0]["services"]["front"]["ports"] = {"a": 1}
    expect(python(CHECK_COMPOSE, text=json.dumps(compose)).returncode != 0, "ports that are none")


def test_compose_takes_its_file():
    compose = documents(COMPOSE)
    # A member that newer versions of Compose have.
    compose[0].pop("name")
    done = python(CHECK_COMPOSE, text=json.dumps(compose))
    expect_equal(done.returncode, 0, done.stderr[-1500:])


def test_prefill_members_are_members_of_another_role():
    of = {name: documents(os.path.join(ROOT, "deploy", "kubernetes", f"{name}.yaml")) for name in ("members", "prefill")}
    command = of["prefill"][0]["spec"]["template"]["spec"]["containers"][0]["command"]
    expect_equal(command[-2:], ["--role", "prefill"], "its role")
    del command[-2:]
    expect_equal(json.loads(json.dumps(of["prefill"]).replace("loci-prefill", "loci-member")), of["members"], "all else")


def test_selectors_find_their_pods():
    by_kind = {}
    for path in MANIFESTS:
        for one in documents(path):
            by_kind.setdefault(one["kind"], []).append(one)
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in by_kind["Deployment"]]
    services = [one["metadata"]["labels"] for one in by_kind["Service"]]
    for one in by_kind["Deployment"] + by_kind["PodDisruptionBudget"]:
        expect(one["spec"]["selector"]["matchLabels"] in pods, f"{one['kind']} {one['metadata']['name']}")
    for one in by_kind["Service"]:
        expect(one["spec"]["selector"] in pods, f"Service {one['metadata']['name']}")
    for one in by_kind["ServiceMonitor"]:
        expect(one["spec"]["selector"]["matchLabels"] in services, f"ServiceMonitor {one['metadata']['name']}")
        for endpoint in one["spec"]["endpoints"]:
            expect_equal(set(endpoint), {"port", "path", "interval"}, "an endpoint")


def test_a_pod_has_time_to_drain():
    for path in MANIFESTS:
        for one in documents(path):
            if one["kind"] != "Deployment":
                continue
            pod = one["spec"]["template"]["spec"]
            container = pod["containers"][0]
            command = container["command"]
            drain = int(command[command.index("--drain-timeout") + 1].removesuffix("s"))
            pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
            expect(pause + 2 + drain + 5 < pod["terminationGracePeriodSeconds"], f"{one['metadata']['name']}: {pause} + {drain} s")
            for probe in ("readinessProbe", "livenessProbe"):
                expect(probe in container, f"{one['metadata']['name']} has a {probe}")


def test_what_is_served_can_be_fetched():
    """Volumes are empty at first, and `default` is fetched by this project's Makefile alone."""
    served = {name: command[2] for name, command, _ in containers() if command[1] == "serve"}
    expect_equal(len(served), 4, "servers")
    for name, model in served.items():
        model = re.sub(r"^\$\{LOCI_SERVED_MODEL:-(.*)\}$", r"\1", model)
        expect(re.fullmatch(r"[\w-]+/[\w.-]+:\w+", model), f"{name}: {model} names a registry's file")


def test_services_set_no_options():
    """Kubernetes sets NAME_PORT in pods for each Service, and LOCI_PORT is an option."""
    for path in MANIFESTS:
        for one in documents(path):
            if one["kind"] == "Deployment":
                expect_equal(one["spec"]["template"]["spec"].get("enableServiceLinks"), False, one["metadata"]["name"])


def test_the_binary_knows_every_flag_and_variable(binary):
    found = list(containers())
    expect(len(found) == 6, f"{len(found)} containers run loci")
    for name, command, environment in found:
        text = subprocess.run([binary, command[1], "--help-all" if command[1] == "serve" else "--help"], capture_output=True, text=True, check=True).stdout
        flags = {word for word in command if word.startswith("--")}
        known = set(re.findall(r"--[a-z-]+", text))
        expect(flags <= known, f"{name}: {flags - known}")
        variables = {variable.removeprefix("LOCI_").lower().replace("_", "-") for variable in environment if variable.startswith("LOCI_")}
        expect({f"--{variable}" for variable in variables} <= known, f"{name}: {variables}")
