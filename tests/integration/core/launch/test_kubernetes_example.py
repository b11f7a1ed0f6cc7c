"""The Kubernetes manifests of examples/cluster: their fields, and that their parts and the images fit together."""

import inspect
import re

import pytest
import yaml
from jsonschema import Draft7Validator
from support.kubernetes_schema import SCHEMAS
from support.processes import ROOT

from paddlevit_dist.core.launch import secret

TEXT, SERVED = (
    (ROOT / "examples" / "cluster" / name).read_text(encoding="utf-8") for name in ("kubernetes.yaml", "serve.yaml")
)
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture
def objects() -> dict:
    return {each["kind"]: each for each in yaml.safe_load_all(TEXT)}


def test_all_objects_have_fields_that_kubernetes_knows(objects):
    served = list(yaml.safe_load_all(SERVED))
    assert {*objects, *(each["kind"] for each in served)} == set(SCHEMAS)
    for content in (*objects.values(), *served):
        assert [error.message for error in Draft7Validator(SCHEMAS[content["kind"]]).iter_errors(content)] == []
    objects["Job"]["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    objects["Service"]["spec"]["clusterIp"] = "None"
    for kind in ("Job", "Service"):  # the schema finds what is wrong
        assert not Draft7Validator(SCHEMAS[kind]).is_valid(objects[kind])


def test_the_parts_of_the_manifest_name_each_other(objects):
    job = objects["Job"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    claim = objects["PersistentVolumeClaim"]
    assert volumes["shared"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"] and job["completions"] == job["parallelism"] == 2
    assert pod["subdomain"] == objects["Service"]["metadata"]["name"]
    assert objects["Service"]["spec"]["selector"] == {"job-name": objects["Job"]["metadata"]["name"]}
    assert f"{objects['Job']['metadata']['name']}-0.{pod['subdomain']}" in container["args"][0]
    rules = job["podFailurePolicy"]["rules"]
    assert pod["restartPolicy"] == "Never" and rules[0]["onExitCodes"]["containerName"] == container["name"]


def test_the_images_user_can_read_the_secret_and_all_paths(objects):
    pod = objects["Job"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (user,) = re.findall(r"^USER (\d+)$", DOCKERFILE, re.M)
    assert pod["securityContext"] == {"fsGroup": int(user)}
    (variable,) = container["env"]
    assert variable["name"] == secret.VARIABLE and "secretKeyRef" in variable["valueFrom"]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    paths = re.findall(r"(?<![\w$.])(?:=)?(/[a-z_/.]+)", container["args"][0])
    assert paths and all(any(path.startswith(f"{place}/") for place in mounted) for path in paths)
    assert "workingDir" not in container  # the image's own, which every user may write to
    assert '"$(command -v paddlevit-dist)" train' in container["args"][0]
    assert 'ENTRYPOINT ["paddlevit-dist"]' in DOCKERFILE


def test_a_pod_has_as_long_to_end_as_its_launcher_gives_the_ranks(objects):
    from paddle.distributed.launch.controllers.controller import ControllerBase

    (seconds,) = re.findall(r"pod\.stop\(timeout=(\d+)\)", inspect.getsource(ControllerBase.stop))
    assert objects["Job"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == int(seconds)


def test_the_parts_of_the_served_manifest_and_its_image_name_each_other():
    service, deployment = (each["spec"] for each in yaml.safe_load_all(SERVED))
    labels, pod = deployment["template"]["metadata"]["labels"], deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert service["selector"] == labels == deployment["selector"]["matchLabels"]
    image = (ROOT / "examples" / "serve.Dockerfile").read_text(encoding="utf-8")
    assert f"-t {container['image']} examples" in image and "command" not in container
    (port,) = (each["containerPort"] for each in container["ports"])
    probes = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert {port, service["ports"][0]["targetPort"], *(probe["port"] for probe in probes)} == {8000}
    assert f"EXPOSE {port}" in image and f'"0.0.0.0:{port}"]' in image
    program = (ROOT / "examples" / "serve.py").read_text(encoding="utf-8")
    assert all(f'"{probe["path"]}": ' in program for probe in probes)
    (user,) = re.findall(r"^USER (\d+)$", DOCKERFILE, re.M)
    assert pod["securityContext"] == {"runAsUser": int(user), "runAsNonRoot": True}
    (mount,) = container["volumeMounts"]
    assert mount["readOnly"] and all(source.startswith(mount["mountPath"] + "/") for source in container["args"])
    assert [volume["name"] for volume in pod["volumes"]] == [mount["name"]]
