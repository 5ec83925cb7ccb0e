"""docker/kubernetes: true to Kubernetes' published schemas, to the image, and to each other."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import docker_files
from docker_files import DOCKER

PLACE = DOCKER / "kubernetes"
BASE = sorted(path.name for path in (PLACE / "base").glob("*.yaml") if path.stem != "kustomization")
VERSION = kubernetes_validate.latest_version()
SHARED_MEMORY = {"name": "shared-memory", "mountPath": "/dev/shm"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def deployment() -> Any:
    return read(PLACE / "base" / "deployment.yaml")


def runtime() -> Any:
    documents = yaml.safe_load_all((PLACE / "kserve.yaml").read_text(encoding="utf-8"))
    return next(each for each in documents if each["kind"] == "ServingRuntime")


def service_of_kserve() -> Any:
    return next(yaml.safe_load_all((PLACE / "kserve.yaml").read_text(encoding="utf-8")))


def containers() -> list[Any]:
    (own,) = deployment()["spec"]["template"]["spec"]["containers"]
    (kserve,) = runtime()["spec"]["containers"]
    return [own, kserve]


def merged(below: Any, above: Any) -> Any:
    """What kustomize makes of a strategic merge: maps by key, containers by name, else replaced."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}
    if all(isinstance(each, list) for each in (below, above)) and all(map(named, below + above)):
        patches = {each["name"]: each for each in above}
        return [merged(each, patches.get(each["name"], {})) for each in below]
    return above


def named(value: Any) -> bool:
    return isinstance(value, dict) and "name" in value


@pytest.mark.parametrize("name", BASE)
def test_manifests_obey_the_published_schema(name: str) -> None:
    kubernetes_validate.validate(read(PLACE / "base" / name), VERSION, strict=True)


def test_so_does_the_deployment_with_a_gpu() -> None:
    (patch,) = read(PLACE / "gpu" / "kustomization.yaml")["patches"]
    given = merged(deployment(), read(PLACE / "gpu" / patch["path"]))
    kubernetes_validate.validate(given, VERSION, strict=True)
    (container,) = given["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["readinessProbe"] == containers()[0]["readinessProbe"]


def test_so_does_the_pod_that_kserve_makes() -> None:
    """The runtime's part of it; KServe's own kinds are checked by `make nightly`."""
    spec = {key: runtime()["spec"][key] for key in ("containers", "volumes")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    kubernetes_validate.validate(pod, VERSION, strict=True)


def test_a_misspelt_key_would_be_found() -> None:
    given = deployment()
    given["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(given, VERSION, strict=True)


def test_kustomizations_name_every_file_and_no_other() -> None:
    assert sorted(read(PLACE / "base" / "kustomization.yaml")["resources"]) == BASE
    for resource in read(PLACE / "gpu" / "kustomization.yaml")["resources"]:
        assert (PLACE / "gpu" / resource / "kustomization.yaml").is_file()


def test_selectors_find_the_pods() -> None:
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    for name, path in (
        ("deployment.yaml", ("spec", "selector", "matchLabels")),
        ("disruption.yaml", ("spec", "selector", "matchLabels")),
        ("service.yaml", ("spec", "selector")),
    ):
        found = read(PLACE / "base" / name)
        for key in path:
            found = found[key]
        assert found.items() <= labels.items()
    target = read(PLACE / "base" / "autoscaler.yaml")["spec"]["scaleTargetRef"]
    assert target["name"] == deployment()["metadata"]["name"]


def test_the_user_is_the_images() -> None:
    image = docker_files.read(DOCKER / "triton.Dockerfile").final.last("USER")
    assert image is not None
    user, group = map(int, image.value.split(":"))
    for context in (
        deployment()["spec"]["template"]["spec"]["securityContext"],
        service_of_kserve()["spec"]["predictor"]["securityContext"],
    ):
        assert (context["runAsUser"], context["runAsGroup"]) == (user, group)
        assert context["runAsNonRoot"]


@pytest.mark.parametrize("container", containers(), ids=["deployment", "kserve"])
def test_a_container_is_confined_and_has_what_the_server_writes_to(container: Any) -> None:
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"]["drop"] == ["ALL"]
    assert SHARED_MEMORY in container["volumeMounts"]
    assert "/tmp" in [each["mountPath"] for each in container["volumeMounts"]]


@pytest.mark.parametrize("container", containers(), ids=["deployment", "kserve"])
def test_probes_ask_for_the_model_at_a_port_that_is_open(container: Any) -> None:
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for probe in ("startupProbe", "readinessProbe"):
        assert re.fullmatch(r"/v2/models/\w+_decision/ready", container[probe]["httpGet"]["path"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        port = container[probe]["httpGet"]["port"]
        assert port in ports or port in ports.values()


@pytest.mark.parametrize(
    ("args", "grace"),
    [
        (containers()[0]["args"], deployment()["spec"]["template"]["spec"]),
        (containers()[1]["args"], service_of_kserve()["spec"]["predictor"]),
    ],
    ids=["deployment", "kserve"],
)
def test_a_pod_is_given_the_time_its_server_takes_to_end(args: list[str], grace: Any) -> None:
    (patience,) = [int(arg.partition("=")[2]) for arg in args if "exit-timeout" in arg]
    sleep = containers()[0]["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert grace["terminationGracePeriodSeconds"] >= patience + int(sleep) + 10


def test_the_autoscaler_reads_a_metric_that_the_rules_make() -> None:
    from drut.triton_model import METRIC

    (metric,) = read(PLACE / "base" / "autoscaler.yaml")["spec"]["metrics"]
    rules = read(PLACE / "metrics-rules.yaml")["rules"]["custom"]
    assert metric["pods"]["metric"]["name"] in {rule["name"]["as"] for rule in rules}
    assert metric["pods"]["metric"]["name"] == METRIC
