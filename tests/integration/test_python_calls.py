"""What models in Python ask of the server: calls from children, coroutines and threads, model control, metrics."""

import time

import numpy as np
import pytest

from nereid_testing.decoupled import Stream, inflight
from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS, sample
from nereid_testing.python_models import ECHO, add_python
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

DECOUPLED = "model_transaction_policy { decoupled: true }\n"

# IN: how many responses, ms between them, 1 = goes on when it is cancelled.
UNTIL_CANCELLED = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count, delay, ignores = values(request).tolist()
            sender = request.get_response_sender()
            for n in range(count):
                if sender.is_cancelled() and not ignores:
                    error = pb_utils.TritonError("was cancelled", pb_utils.TritonError.CANCELLED)
                    sender.send(pb_utils.InferenceResponse(error=error), flags=1)
                    break
                sender.send(answer(np.array([n], np.int32)))
                time.sleep(delay / 1000)
            else:
                sender.send(flags=1)
"""

# Cancels after the third response; OUT: how many came, the code of the last error or -1.
CANCELS = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name="until_cancelled", requested_output_names=["OUT"], inputs=request.inputs())
            stream = call.exec(decoupled=True)
            count, code = 0, -1
            for response in stream:
                if response.has_error():
                    code = int(response.error().code())
                elif response.output_tensors():
                    count += 1
                    if count == 3:
                        stream.cancel()
            responses.append(answer(np.array([count, code], np.int32)))
        return responses
"""

# Waits IN ms in a stream of another model; many at once.
SIDE_BY_SIDE = """
class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name="slow", requested_output_names=["OUT"], inputs=request.inputs())
            stream = await call.async_exec(decoupled=True)
            total = sum(int(r.output_tensors()[0].as_numpy()[0]) for r in stream if r.output_tensors())
            request.get_response_sender().send(answer(np.array([total], np.int32)), flags=1)
"""

SLOW = """
class TritonPythonModel:
    async def execute(self, requests):
        import asyncio
        for request in requests:
            await asyncio.sleep(int(values(request)[0]) / 1000)
            request.get_response_sender().send(answer(values(request)), flags=1)
"""

FORKS = """
import multiprocessing


def ask(count):
    x = pb_utils.Tensor("IN", np.full(count, count, np.int32))
    call = pb_utils.InferenceRequest(model_name="echo", requested_output_names=["OUT"], inputs=[x])
    return int(call.exec().output_tensors()[0].as_numpy().sum())


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                responses.append(answer(np.array(pool.map(ask, values(request).tolist()), np.int32)))
        return responses
"""

BF16 = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = request.inputs()[0]
            try:
                tensor.as_numpy()
            except pb_utils.TritonModelException:
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", tensor.to_dlpack())]))
        return responses
"""

CONTROLS = """
class TritonPythonModel:
    def execute(self, requests):
        seen = []
        for name in ("other", "nobody"):
            try:
                pb_utils.load_model(name)
                seen.append(pb_utils.is_model_ready(name))
                pb_utils.unload_model(name)
            except pb_utils.TritonModelException as error:
                seen.append(str(error))
        return [pb_utils.InferenceResponse(parameters={"seen": json.dumps(seen)}) for _ in requests]
"""

METRICS = """
class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily(name="tests_of_calls", description="Requests.", kind=pb_utils.MetricFamily.COUNTER)
        self.metric = self.family.Metric(labels={"model": args["model_name"]})

    def execute(self, requests):
        self.metric.increment(len(requests))
        return [answer(np.array([int(self.metric.value())], np.int32)) for _ in requests]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("python_calls")
    repository = Repository(root)
    add_python(repository, "echo", ECHO)
    add_python(repository, "until_cancelled", UNTIL_CANCELLED, more=DECOUPLED)
    add_python(repository, "cancels", CANCELS)
    add_python(repository, "slow", SLOW, more=DECOUPLED)
    add_python(repository, "side_by_side", SIDE_BY_SIDE, more=DECOUPLED)
    add_python(repository, "forks", FORKS)
    add_python(repository, "bf16", BF16, inputs=[("IN", "BF16", [-1])], outputs=[("OUT", "BF16", [-1])])
    add_python(repository, "controls", CONTROLS)
    add_python(repository, "counts", METRICS)
    add_python(repository, "other", ECHO)
    flags = ["--model-control-mode=explicit", "--load-model=*"]
    with ServerProcess(root, *flags) as each:
        yield each
        for model in ("until_cancelled", "echo", "slow", "side_by_side"):
            assert wait_until(lambda: inflight(each, model) == 0, 10), model  # noqa: B023


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def test_a_stream_that_is_cancelled_ends(client):
    began = time.monotonic()
    count, code = client.infer("cancels", {"IN": np.array([200, 20, 0], np.int32)}).as_numpy("OUT").tolist()
    assert 3 <= count < 100 and code == 7
    assert time.monotonic() - began < 3


def test_a_model_that_goes_on_when_it_is_cancelled_is_heard(client):
    assert client.infer("cancels", {"IN": np.array([20, 5, 1], np.int32)}).as_numpy("OUT").tolist() == [20, -1]


def test_coroutines_wait_for_streams_side_by_side(server):
    stream = Stream(server)
    began = time.monotonic()
    for _ in range(6):
        stream.send("side_by_side", {"IN": np.array([700], np.int32)})
    assert [stream.good().as_numpy("OUT").tolist() for _ in range(6)] == [[700]] * 6
    assert time.monotonic() - began < 6 * 0.7
    stream.close()


def test_children_of_a_model_call_others(client):
    counts = np.array([1, 10, 20_000], np.int32)
    assert client.infer("forks", {"IN": counts}).as_numpy("OUT").tolist() == [1, 100, 400_000_000]


def test_bf16_through_dlpack(client):
    array = sample("BF16", [1000])
    result = client.infer("bf16", {"IN": array}, {"IN": "BF16"})
    assert np.array_equal(result.as_numpy("OUT"), array)


def test_model_control(client):
    response = client.infer("controls", {"IN": np.array([1], np.int32)}).get_response()
    parameters = response["parameters"]["seen"] if isinstance(response, dict) else response.parameters["seen"].string_param
    assert parameters.startswith('[true, "Failed to load model: failed to load \'nobody\'')


def test_metrics(client, server):
    count = int(client.infer("counts", {"IN": np.array([1], np.int32)}).as_numpy("OUT")[0])
    text = call(server, "GET", "/metrics", port=server.metrics_port).body.decode()
    assert f'tests_of_calls{{model="counts"}} {count}\n' in text
    assert "# HELP tests_of_calls Requests.\n# TYPE tests_of_calls counter\n" in text
