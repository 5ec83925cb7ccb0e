"""Check KServe manifests against KServe's own model classes; runs in an environment of its own.

    python check_manifests.py FILE

Every key has to be one that the class of its place knows, every required one has to be there, and
plain values have to be of the class's type. The exit code is 1 with a line for each fault.
"""

import re
import sys
from pathlib import Path
from typing import Any

import kserve.models
import kubernetes.client.models
import yaml

PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": object}
KINDS = {
    "InferenceService": ("serving.kserve.io/v1beta1", "V1beta1InferenceService"),
    "ServingRuntime": ("serving.kserve.io/v1alpha1", "V1alpha1ServingRuntime"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "V2HorizontalPodAutoscaler"),
}


def model(name: str) -> Any:
    for place in (kserve.models, kubernetes.client.models):
        if hasattr(place, name):
            return getattr(place, name)
    return None


def faults(value: Any, kind: str, place: str) -> list[str]:
    if found := re.fullmatch(r"list\[(.+)\]", kind):
        if not isinstance(value, list):
            return [f"{place} has to be a list"]
        return [
            fault
            for index, each in enumerate(value)
            for fault in faults(each, found[1], f"{place}[{index}]")
        ]
    if found := re.fullmatch(r"dict\((\w+), (.+)\)", kind):
        if not isinstance(value, dict):
            return [f"{place} has to be a mapping"]
        return [
            fault
            for key, each in value.items()
            for fault in faults(each, found[2], f"{place}.{key}")
        ]
    if kind in PLAIN:
        right = isinstance(value, PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool))
        return [] if right or kind == "object" else [f"{place} has to be {kind}, it is {value!r}"]
    made = model(kind)
    if made is None or not hasattr(made, "openapi_types"):
        return []  # quantities, and numbers or names of ports
    return faults_of_model(value, made, place)


def faults_of_model(value: Any, made: Any, place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place} has to be a mapping"]
    names = {json_name: name for name, json_name in made.attribute_map.items()}
    found = [f"{place} has no {key!r}" for key in value if key not in names]
    for json_name, name in names.items():
        if json_name in value:
            found += faults(value[json_name], made.openapi_types[name], f"{place}.{json_name}")
    known = {name: value[json_name] for json_name, name in names.items() if json_name in value}
    try:
        made(**known)  # checks what is required
    except ValueError as exc:
        found.append(f"{place}: {exc}")
    return found


def main(path: str) -> int:
    found = []
    documents = list(yaml.safe_load_all(Path(path).read_text(encoding="utf-8")))
    for document in documents:
        version, name = KINDS[document["kind"]]
        if document["apiVersion"] != version:
            found.append(f"{document['kind']} is of {version}, not {document['apiVersion']}")
        found += faults(document, name, document["kind"])
    sys.stderr.writelines(f"{each}\n" for each in found)
    print(f"{len(documents)} manifests, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
