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


def autoscaler_of_kserve() -> Any:
    documents = yaml.safe_load_all((PLACE / "kserve.yaml").read_text(encoding="utf-8"))
    return next(each for each in documents if each["kind"] == "HorizontalPodAutoscaler")


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
    ("container", "pod"),
    [
        (containers()[0], deployment()["spec"]["template"]["spec"]),
        (containers()[1], service_of_kserve()["spec"]["predictor"]),
    ],
    ids=["deployment", "kserve"],
)
def test_a_pod_is_given_the_time_its_server_takes_to_end(container: Any, pod: Any) -> None:
    patience = int(options(container["args"])["--exit-timeout-secs"])
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["terminationGracePeriodSeconds"] >= patience + sleep + 10


def options(words: list[str]) -> dict[str, str]:
    """Of a command of tritonserver, which has to be whole: it replaces the image's."""
    assert words[0] == "tritonserver"
    return dict(word.split("=", 1) for word in words[1:])


@pytest.mark.parametrize("container", containers(), ids=["deployment", "kserve"])
def test_image_options_and_ports_are_those_of_the_image(container: Any) -> None:
    (compose,) = [
        each
        for each in read(DOCKER / "compose.yaml")["services"].values()
        if each.get("build", {}).get("dockerfile", "").endswith("triton.Dockerfile")
    ]
    assert container["image"] == compose["image"]
    final = docker_files.read(DOCKER / "triton.Dockerfile").final
    command, exposed = final.last("CMD"), final.last("EXPOSE")
    assert command is not None
    assert exposed is not None
    image, here = options(command.words), options(container["args"])
    assert here.keys() <= image.keys()
    assert here["--exit-timeout-secs"] == image["--exit-timeout-secs"]
    # Without an option the server has a port that the image's command has, too.
    served = {here.get(name, image[name]) for name in image if name.endswith("-port")}
    declared = {str(each["containerPort"]) for each in container["ports"]}
    assert declared <= served
    if "--http-port" not in here:
        assert declared == set(exposed.words)


def test_kserves_autoscaler_is_the_other_one_for_the_deployment_that_kserve_makes() -> None:
    own = read(PLACE / "base" / "autoscaler.yaml")["spec"]
    given = autoscaler_of_kserve()
    kubernetes_validate.validate(given, VERSION, strict=True)
    service = service_of_kserve()
    target = {**own["scaleTargetRef"], "name": f"{service['metadata']['name']}-predictor"}
    assert given["spec"] == {**own, "scaleTargetRef": target}
    # KServe takes an autoscaler of that name for its own, also where it is told to make none.
    assert given["metadata"]["name"] != target["name"]
    assert service["metadata"]["annotations"]["serving.kserve.io/autoscalerClass"] == "external"
    for limit in ("minReplicas", "maxReplicas"):
        assert service["spec"]["predictor"][limit] == own[limit]


def test_the_autoscaler_reads_a_metric_that_the_rules_make() -> None:
    from drut.triton_model import METRIC

    (metric,) = read(PLACE / "base" / "autoscaler.yaml")["spec"]["metrics"]
    rules = read(PLACE / "metrics-rules.yaml")["rules"]["custom"]
    assert metric["pods"]["metric"]["name"] in {rule["name"]["as"] for rule in rules}
    assert metric["pods"]["metric"]["name"] == METRIC
