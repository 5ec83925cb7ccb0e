"""The bundle that ships is the one whose figures are published."""

import json

import pytest
from starter import evalsets
from starter.answering import BundleAnswerer
from starter.evaluate import README, REPORT, as_markdown
from starter.export import NAME, REPOSITORY, SOURCE, size
from starter.metrics import KINDS, of_kind, summarise

import drut
from drut.checkpoint.bundle import read_bundle
from drut_export.graph import EXTERNAL_NAME
from drut_export.triton_releases import RELEASES

ROOM = 0.03  # answers on the edge fall differently on another processor
MEGABYTES = 25


@pytest.fixture(scope="module")
def report():
    return json.loads(REPORT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def bundle():
    return read_bundle(REPOSITORY / NAME)


def test_the_figures_are_those_of_this_file(report, bundle):
    weights = bundle.manifest["files"][EXTERNAL_NAME]
    assert report["bundle"]["weights_sha256"] == weights["sha256"]
    assert as_markdown(report) in README.read_text(encoding="utf-8")


def test_the_bundle_is_small_and_carries_its_licences(bundle):
    assert size(bundle) <= MEGABYTES * 1e6
    assert (bundle.version, bundle.precision) == (1, "int8-weights")
    assert bundle.manifest["source"] == SOURCE
    assert "Apache License" in (bundle.directory / "LICENSE").read_text(encoding="utf-8")
    assert "WordNet 3.0" in (bundle.directory / "NOTICE").read_text(encoding="utf-8")


def test_the_bundle_is_read_by_every_server_that_is_known(bundle):
    assert bundle.manifest["opset"] <= min(each.opset for each in RELEASES)
    assert bundle.manifest["ir_version"] <= min(each.ir_version for each in RELEASES)


def test_the_test_cases_are_answered_as_published(report, bundle):
    items = evalsets.written_cases()
    given = BundleAnswerer(bundle.directory).probabilities(items)
    for kind in KINDS:
        places = of_kind(items, kind)
        found = summarise([given[i] for i in places], [items[i] for i in places])
        published = report["sets"]["test_cases"][kind]
        assert found.accuracy >= published["accuracy"] - ROOM, kind
        assert found.nll <= published["nll"] + ROOM, kind


def test_an_answer_does_not_depend_on_its_company(bundle):
    messages = ["I was charged twice, refund me.", "It crashes on start.", "Thanks! " * 20]
    with drut.load(bundle.directory, device="cpu") as agent:
        questions = drut.preset("triage")
        together = agent.predict_batch(messages, questions)
        for message, answered in zip(messages, together, strict=True):
            alone = agent.predict(message, questions)["answers"]
            for name, answer in alone.items():
                first, second = answer["answer_confidence"], answered["answers"][name]
                assert first == pytest.approx(second["answer_confidence"], abs=1e-3)
