"""Models in Python that call other models: the whole scheduling of the model called, also while the server stops."""

import json
import os
import threading
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import Stream, add_repeat, inflight
from nereid_testing.ensembles import add_ensemble, chain
from nereid_testing.observe import batch_sizes, metric, statistics, wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.python_models import add_python, is_alive, stub_processes
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.script_model import add_script, run
from nereid_testing.sequence_models import add_sequence

pytestmark = pytest.mark.ours

FACTORIAL = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for r in requests:
            number = values(r)
            if number[0] > 1:
                inner = pb_utils.InferenceRequest(
                    model_name="factorial", requested_output_names=["OUT"],
                    inputs=[pb_utils.Tensor("IN", number - 1)]).exec()
                number = number * inner.output_tensors()[0].as_numpy()
            responses.append(answer(number))
        return responses
"""

# Waits before it calls, so that the server can begin to stop in between.
LATE_CALL = """
class TritonPythonModel:
    def execute(self, requests):
        time.sleep(1.5)
        responses = []
        for r in requests:
            result = pb_utils.InferenceRequest(
                model_name="outer", requested_output_names=["Y"],
                inputs=[pb_utils.Tensor("X", values(r))]).exec()
            if result.has_error():
                responses.append(pb_utils.InferenceResponse(error=result.error()))
            else:
                responses.append(answer(result.output_tensors()[0].as_numpy() + 1))
        return responses
"""

VECTOR = {"inputs": (("IN", "FP32", [4]),), "outputs": (("OUT", "FP32", [4]),)}


def write_repository(root):
    repository = Repository(root)
    add_script(repository)
    options = {"max_batch_size": 8}
    repository.echo("plain", "FP32", [4], **options)
    repository.echo("cached", "FP32", [4], **options, more="response_cache { enable: true }\n")
    batching = "dynamic_batching { max_queue_delay_microseconds: 300000 preferred_batch_size: [ 4 ] }\n"
    repository.echo("batched", "FP32", [4], **options, more=batching)
    policy = 'timeout_action: REJECT allow_timeout_override: true default_timeout_microseconds: 20000000'
    repository.echo(
        "slow", "FP32", [4], **options, parameters={"execute_delay_ms": "700"},
        more=f"dynamic_batching {{ default_queue_policy {{ {policy} }} }}\n",
    )
    add_ensemble(repository, "outer", [("X", "FP32", [4])], [("Y", "FP32", [4])], chain("plain", "batched"), max_batch_size=8)
    add_repeat(repository, "repeat")
    add_sequence(repository, "sequence")
    add_python(repository, "factorial", FACTORIAL, instances=4)
    add_python(repository, "late_call", LATE_CALL, **VECTOR, max_batch_size=8)
    return repository


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from nereid_testing.server import ServerProcess

    folder = tmp_path_factory.mktemp("bls")
    write_repository(folder / "repository")
    flags = ["--cache-config=local,size=1000000", "--log-verbose=1", f"--trace-config=triton,file={folder}/trace.json"]
    with ServerProcess(folder / "repository", *flags) as each:
        each.folder = folder
        yield each
        for model in ("plain", "slow", "repeat", "script", "sequence"):
            assert wait_until(lambda: inflight(each, model) == 0), model
        processes = stub_processes(each)
    assert processes and not any(map(is_alive, processes))


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def test_calls_count_like_any_request(client, server):
    before = statistics(server, "plain")["inference_count"]
    assert run(client, "result = [ask('plain', value=3), ask('plain', 1, value=4)]") == [[3.0], [4.0]]
    assert statistics(server, "plain")["inference_count"] == before + 2


def test_calls_are_batched_with_others(client, server):
    before = batch_sizes(server, "batched")
    lines = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    result = list(pool.map(lambda n: ask('batched', value=n), range(4)))
"""
    assert run(client, lines) == [[0.0], [1.0], [2.0], [3.0]]
    assert batch_sizes(server, "batched").get(4, 0) == before.get(4, 0) + 1


def test_calls_are_answered_from_the_cache(client, server):
    number = 100 if client.name == "http" else 200
    before = statistics(server, "cached")["inference_stats"]["cache_hit"]["count"]
    assert run(client, f"result = [ask('cached', value={number}) for _ in range(3)]") == [[number]] * 3
    assert statistics(server, "cached")["inference_stats"]["cache_hit"]["count"] == before + 2


def test_refusals_say_what_is_wrong(client):
    def text(expression):
        return run(client, f"result = {expression}")

    head = "Model {} - Error when running inference: "
    assert text("ask('nobody')").startswith(head.format("nobody") + "Request for unknown model: 'nobody' is not found")
    not_ready = head.format("plain") + "Failed for execute the inference request. Model 'plain' is not ready."
    assert text("ask('plain', 9)").startswith(not_ready)
    assert text("ask('plain', 0)").startswith(not_ready)
    assert text("ask('repeat')") == (
        head.format("repeat") + "Model repeat is using the decoupled. The current BLS request call doesn't support models "
        "using the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls "
        "for decoupled models.'"
    )
    assert "unexpected inference output 'NOPE'" in text("ask('plain', outputs=['NOPE'])")
    assert "expected 1 inputs but got 0" in text("ask('plain', inputs=[])")
    assert text("ask('nobody', decoupled=True)")[0].startswith(head.format("nobody"))
    assert text("ask('plain', value=1)") == [1.0]


def test_sequences_keep_their_state(client):
    lines = """
def turn(number, flags, cid):
    tensor = pb_utils.Tensor("INPUT", np.array([[number]], np.int32))
    return ask("sequence", inputs=[tensor], outputs=["OUTPUT"], flags=flags, correlation_id=cid)
result = [turn(1, 1, 77), turn(2, 0, 77), turn(3, 2, 77), turn(4, 0, 77)]
"""
    *sums, refused = run(client, lines)
    assert len(sums) == 3 and all(isinstance(each, list) for each in sums), sums
    assert "must specify the START flag" in refused


def test_timeouts_hold_for_calls(client):
    lines = """
import threading
first = threading.Thread(target=lambda: ask('slow'))
first.start()
time.sleep(0.2)
result = ask('slow', timeout=100000)
first.join()
"""
    assert "Request timeout expired" in run(client, lines)


def test_streams_can_be_cancelled(client, server):
    lines = """
inputs = [pb_utils.Tensor("IN", np.arange(50, dtype=np.int32)), pb_utils.Tensor("DELAY", np.full([50], 200, np.uint32)),
          pb_utils.Tensor("WAIT", np.zeros([1], np.uint32))]
stream = request("repeat", inputs=inputs, outputs=["OUT"]).exec(decoupled=True)
first = shown(next(iter(stream)))
stream.cancel()
result = [first, len([each for each in stream])]
"""
    begin = time.monotonic()
    # How it ends is up to the model called, but it ends long before its 50 responses.
    first, count = run(client, lines)
    assert first == [0.0] and count < 10
    assert time.monotonic() - begin < 6
    assert wait_until(lambda: inflight(server, "repeat") == 0)


def test_a_model_calls_itself(client):
    assert client.infer("factorial", {"IN": np.array([4], np.int32)}).as_numpy("OUT").tolist() == [24]


def test_calls_of_a_traced_request_are_its_children(client, server):
    setting = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "1"}
    assert call(server, "POST", "/v2/models/script/trace/setting", json.dumps(setting).encode()).status == 200
    lines = "result = [ask('outer', outputs=['Y'], inputs=[pb_utils.Tensor('X', np.zeros((1, 4), np.float32))], trace=r.trace())]"
    assert run(client, lines) == [[0.0]]
    off = {"trace_level": ["OFF"]}
    assert call(server, "POST", "/v2/models/script/trace/setting", json.dumps(off).encode()).status == 200

    def entries():
        found = []
        for name in os.listdir(server.folder):
            if name.startswith("trace.json"):
                text = (server.folder / name).read_text().rstrip().rstrip(",")
                found += json.loads(text if text.endswith("]") else text + "]")
        return [each for each in found if "model_name" in each]

    assert wait_until(lambda: any(each["model_name"] == "script" for each in entries()))
    ids = {each["model_name"]: each for each in entries()}
    assert ids["outer"]["parent_id"] == ids["script"]["id"]
    assert ids["plain"]["parent_id"] == ids["batched"]["parent_id"] == ids["outer"]["id"]


def test_model_control(tmp_path, start):
    write_repository(tmp_path / "repository")
    server = start(tmp_path / "repository", "--model-control-mode=explicit", "--load-model=script", "--load-model=plain")
    client = PROTOCOLS["http"](server)
    ready = "result = pb_utils.is_model_ready('slow')"
    assert "Request for unknown model: 'slow'" in run(client, ready)
    assert run(client, "result = [pb_utils.load_model('slow'), pb_utils.is_model_ready('slow'), ask('slow', value=2)]") == [None, True, [2.0]]
    assert run(client, "result = [pb_utils.is_model_ready('slow', v) for v in ('1', '9')]") == [True, False]
    assert run(client, "result = pb_utils.is_model_ready('slow', 'x')").startswith("TritonModelException: Failed to check model readiness")
    assert "failed to load 'nobody'" in run(client, "result = pb_utils.load_model('nobody')")
    renamed = "pb_utils.load_model('plain', config=json.dumps({'backend': 'identity', 'max_batch_size': 2}))"
    run(client, f"result = {renamed}")
    assert run(client, "result = pb_utils.unload_model('slow')") is None
    assert wait_until(lambda: run(client, ready) is False)
    assert "Model 'slow' is not ready" in run(client, "result = ask('slow')")
    # A model that takes itself out of service answers nevertheless.
    assert run(client, "result = pb_utils.unload_model('script')") is None
    client.close()


def test_no_model_control_without_explicit(client):
    for lines in ("pb_utils.load_model('plain')", "pb_utils.unload_model('plain')"):
        assert "explicit model load / unload is not allowed" in run(client, f"result = {lines}")


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_requests_in_flight_call_while_the_server_stops(tmp_path, start, name):
    write_repository(tmp_path / "repository")
    server = start(tmp_path / "repository", "--log-verbose=1")
    client = PROTOCOLS[name](server)
    answers = []

    def send():
        try:
            answers.append(client.infer("late_call", {"IN": np.ones((1, 4), np.float32)}).as_numpy("OUT").ravel()[0])
        except InferenceServerException as error:
            answers.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    assert wait_until(lambda: inflight(server, "late_call") == 1)
    processes = stub_processes(server)
    time.sleep(0.3)
    server.process.terminate()
    assert server.process.wait(timeout=30) == 0, server.log()[-3000:]
    sender.join()
    assert answers == [2.0], answers
    assert not any(map(is_alive, processes))
    client.close()


def test_a_stream_calls_models(client, server, tmp_path):
    if client.name == "http":
        pytest.skip("streams are gRPC's")
    stream = Stream(server)
    try:
        lines = np.array([b"result = [ask('plain', value=n) for n in range(20)]"], np.object_)
        stream.send("script", {"IN": lines})
        assert json.loads(stream.good().as_numpy("OUT").ravel()[0]) == [[float(n)] for n in range(20)]
    finally:
        stream.close()
    assert metric(server, "nv_inference_pending_request_count", model="plain") == 0
