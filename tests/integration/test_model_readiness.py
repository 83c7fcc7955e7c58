"""What models say of their own readiness (L0_backend_python/model_readiness)."""

import threading
import time

import numpy as np
import pytest
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import inflight
from nereid_testing.ensembles import add_ensemble, chain
from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.python_models import add_python
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.script_model import add_script, run

pytestmark = pytest.mark.ours

ANSWERS = """
class TritonPythonModel:
    {kind} is_ready(self):
        {body}

    def execute(self, requests):
        return [answer(values(r)) for r in requests]
"""

# Counts how often it was asked.
COUNTS = """
class TritonPythonModel:
    asked = 0

    def is_ready(self):
        self.asked += 1
        time.sleep(0.5)
        return True

    def execute(self, requests):
        return [answer(np.array([self.asked], np.int32)) for r in requests]
"""

DECOUPLED = """
class TritonPythonModel:
    def is_ready(self):
        return True

    def execute(self, requests):
        for r in requests:
            r.get_response_sender().send(answer(values(r)), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

READY = {
    "says_yes": ("def", "return True"),
    "async_yes": ("async def", "return True"),
    "says_nothing": None,
}
NOT_READY = {
    "says_no": ("def", "return False"),
    "async_no": ("async def", "return False"),
    "raises": ("def", "raise RuntimeError('internal check failed')"),
    "no_bool": ("def", "return 'yes'"),
}
REASONS = {
    "says_no": "(user-defined check failed).",
    "async_no": "(user-defined check failed).",
    "raises": "internal check failed",
    "no_bool": "is_ready() must return a boolean value",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from nereid_testing.server import ServerProcess

    repository = Repository(tmp_path_factory.mktemp("readiness") / "repository")
    for name, given in {**READY, **NOT_READY}.items():
        kind, body = given or ("def", "return None")
        code = ANSWERS.format(kind=kind, body=body)
        add_python(repository, name, code if given else code.replace("is_ready", "other"))
    add_python(repository, "slow", ANSWERS.format(kind="def", body="time.sleep(8); return True"))
    add_python(repository, "counts", COUNTS)
    add_python(repository, "decoupled", DECOUPLED, more="model_transaction_policy { decoupled: true }\n")
    for name, models in (("of_ready", ["says_yes", "says_nothing"]), ("of_both", ["says_yes", "says_no"])):
        add_ensemble(repository, name, [("X", "INT32", [-1])], [("Y", "INT32", [-1])], chain(*models))
    add_ensemble(repository, "outer", [("X", "INT32", [-1])], [("Y", "INT32", [-1])], [("of_both", {"X": "X"}, {"Y": "Y"})])
    add_script(repository)
    with ServerProcess(repository.root, "--log-verbose=1") as each:
        yield each
        assert wait_until(lambda: inflight(each, "says_yes") == 0)


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


@pytest.mark.parametrize("model", [*READY, "decoupled", "of_ready"])
def test_models_that_are_ready(client, model):
    assert client.client.is_model_ready(model)
    assert client.client.is_model_ready(model, "1")


@pytest.mark.parametrize("model", NOT_READY)
def test_models_that_are_not_ready(client, server, model):
    assert not client.client.is_model_ready(model)
    text = f"Model '{model}' version 1 is not ready: "
    lines = [line for line in server.log().splitlines() if text in line]
    assert lines and REASONS[model] in lines[-1]
    # Inference goes on, and so does the server.
    array = np.array([5], np.int32)
    assert np.array_equal(client.infer(model, {"IN": array}).as_numpy("OUT"), array)
    assert client.client.is_server_ready()


def test_http_says_what_is_not_ready(server):
    answered = call(server, "GET", "/v2/models/says_no/ready")
    assert (answered.status, answered.json()) == (400, {"error": "Model version not ready"})
    assert call(server, "GET", "/v2/models/says_yes/versions/1/ready").status == 200


def test_ensembles_ask_their_models(client, server):
    for name in ("of_both", "outer"):
        assert not client.client.is_model_ready(name)
    assert "Model 'outer' version 1 is not ready: its model 'of_both' is not ready" in server.log()


def test_a_model_that_takes_too_long_is_not_ready(client, server):
    begin = time.monotonic()
    assert not client.client.is_model_ready("slow")
    assert 4 < time.monotonic() - begin < 7
    assert "Timed out waiting for user-defined is_ready() response" in server.log()
    wait_until(lambda: False, 4)


def test_queries_at_once_share_the_answer(client, server):
    before = client.infer("counts", {"IN": np.zeros([1], np.int32)}).as_numpy("OUT")[0]
    answers = []

    def ask():
        with http_client.InferenceServerClient(server.http) as each:
            answers.append(each.is_model_ready("counts"))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers == [True] * 20
    after = client.infer("counts", {"IN": np.zeros([1], np.int32)}).as_numpy("OUT")[0]
    assert 1 <= after - before <= 3


def test_models_ask_for_the_readiness_of_others(client):
    names = ["says_yes", "says_no", "raises", "of_ready", "of_both", "says_nothing"]
    lines = f"result = [pb_utils.is_model_ready(name) for name in {names}]"
    assert run(client, lines) == [True, False, False, True, False, True]


def test_unknown_models(client):
    if client.name == "http":
        assert not client.client.is_model_ready("nobody")
    else:
        try:
            assert not client.client.is_model_ready("nobody")
        except InferenceServerException as error:
            assert "nobody" in str(error)
