"""Texts and numbers of Python models that no client could take: long ones, halves of characters, too large integers."""

import json

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS, status_of
from nereid_testing.python_models import add_python
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

MODEL = r'''
def deep(depth):
    return deep(depth + 1)


class Odd(Exception):
    def __str__(self):
        raise SystemExit(3)


class TritonPythonModel:
    def execute(self, requests):
        case = int(values(requests[0]).ravel()[0])
        if case == 1:
            raise ValueError("E" * 20_000_000)
        if case == 2:
            error = pb_utils.TritonError("Z" * 20_000_000)
            return [pb_utils.InferenceResponse(error=error) for _ in requests]
        if case == 3:
            raise ValueError("half \ud800 of a pair\r\nX-Header: 1")
        if case == 4:
            deep(0)
        if case == 5:
            raise Odd()
        if case == 10:
            pb_utils.Logger.log_info("L" * 50_000_000)
        if case == 11:
            family = pb_utils.MetricFamily("texts_gauge", "any number", pb_utils.MetricFamily.GAUGE)
            metric = family.Metric()
            found = []
            for value in (float("inf"), float("-inf"), float("nan"), 0.5):
                metric.set(value)
                found.append(str(metric.value()))
            return [answer(values(r), parameters={"n": " ".join(found)}) for r in requests]
        number = {6: 2**63, 7: -(2**63) - 1, 8: 2**63 - 1, 9: -(2**63)}.get(case, 0)
        return [answer(values(r), parameters={"n": number}) for r in requests]
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("texts"))
    add_python(repository, "texts", MODEL)
    with ServerProcess(repository.root) as each:
        yield each
        assert "has died" not in each.log()


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def ask(client, case):
    return client.infer("texts", {"IN": np.array([case], np.int32)})


def error_of(client, case):
    with pytest.raises(InferenceServerException) as caught:
        ask(client, case)
    assert status_of(caught.value, client) == ("INTERNAL" if client.name == "grpc" else "500")
    return caught.value.message()


@pytest.mark.parametrize("case", [1, 2])
def test_texts_of_errors_have_an_end(client, case):
    text = error_of(client, case)
    assert len(text) < 70_000
    assert ("EEEE" if case == 1 else "ZZZZ") in text
    if case == 1 and client.name == "http":
        assert "more characters)" in text and "model.py(" in text


def test_half_of_a_character_is_replaced(client):
    text = error_of(client, 3)
    assert "half \ufffd of a pair" in text


def test_the_frames_of_a_recursion_have_an_end(client):
    text = error_of(client, 4)
    assert "RecursionError: maximum recursion depth exceeded" in text
    if client.name == "http":
        assert text.count("): deep\n") < 100 and " more)\n" in text and text.endswith("): execute\n")


def test_an_exception_whose_text_cannot_be_made(client):
    assert "Odd: <its text cannot be made: SystemExit>" in error_of(client, 5)


@pytest.mark.parametrize("case", [6, 7])
def test_integers_of_parameters_have_64_bits(client, case):
    assert "Expect parameters values of type int to have 64 bits with sign, got a larger one for 'n'" in error_of(client, case)


@pytest.mark.parametrize("case", [8, 9])
def test_the_largest_integers_of_parameters_arrive(server, case):
    body = {"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [case]}]}
    reply = call(server, "POST", "/v2/models/texts/infer", json.dumps(body))
    assert json.loads(reply.body)["parameters"]["n"] == (2**63 - 1 if case == 8 else -(2**63))


def test_lines_of_the_log_have_an_end(client, server):
    before = len(server.log())
    ask(client, 10)
    assert wait_until(lambda: "more characters)" in server.log()[before:])
    assert len(server.log()) - before < 100_000


def test_metrics_that_are_no_number(server):
    body = {"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [11]}]}
    reply = call(server, "POST", "/v2/models/texts/infer", json.dumps(body))
    assert json.loads(reply.body)["parameters"]["n"] == "inf -inf nan 0.5"
