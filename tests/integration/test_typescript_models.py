"""Models in TypeScript behind tritonclient's HTTP and gRPC clients and streams."""

import json
import threading
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import Stream, inflight, is_final
from nereid_testing.observe import batch_sizes, wait_until
from nereid_testing.protocols import NUMPY_TYPES, PROTOCOLS, sample, status_of, text_array
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess
from nereid_testing.typescript_models import SOURCES, add_typescript, write_typescript_repository

pytestmark = pytest.mark.ours


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("typescript_models")
    write_typescript_repository(root)
    with ServerProcess(root) as each:
        yield each
        for model in ("add_sub", "count_down", "wait_for_cancel", "call", "later"):
            assert wait_until(lambda: inflight(each, model) == 0, 10), model  # noqa: B023


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


@pytest.fixture
def stream(server):
    each = Stream(server)
    yield each
    each.close()


def message_of(client, model, arrays, **options):
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, arrays, **options)
    return caught.value.message()


@pytest.mark.parametrize("datatype", NUMPY_TYPES)
@pytest.mark.parametrize("shape", [[1, 1], [3, 7], [0, 4], [100, 300]], ids=str)
def test_every_datatype_both_ways(client, datatype, shape):
    array = sample(datatype, shape)
    result = client.infer(f"echo_{datatype}", {"IN": array}, {"IN": datatype}).as_numpy("OUT")
    assert result.shape == array.shape
    if datatype == "BYTES":
        assert [bytes(each) for each in result.ravel()] == list(array.ravel())
    else:
        assert result.astype(array.dtype).tobytes() == array.tobytes()


def test_texts(client):
    result = client.infer("texts", {"IN": text_array(["schön", "", "x" * 70_000])})
    assert [bytes(each).decode() for each in result.as_numpy("OUT")] == ["SCHÖN", "", "X" * 70_000]
    assert result.as_numpy("LENGTH").tolist() == [6, 0, 70_000]


def test_a_configuration_of_its_own_and_batches(client, server):
    config = json.loads(call(server, "GET", "/v2/models/add_sub/config").body)
    assert config["max_batch_size"] == 8
    assert "dynamic_batching" in config
    a, b = sample("FP32", [2, 4]), sample("FP32", [2, 4], 1)
    result = client.infer("add_sub", {"A": a, "B": b})
    np.testing.assert_array_equal(result.as_numpy("SUM"), a + b)
    np.testing.assert_array_equal(result.as_numpy("DIFFERENCE"), a - b)


def test_requests_are_run_in_batches_and_answered_each_for_itself(server):
    def run(seed):
        each = PROTOCOLS["grpc"](server)
        for turn in range(20):
            a, b = sample("FP32", [1, 4], seed + turn), sample("FP32", [1, 4], seed)
            result = each.infer("add_sub", {"A": a, "B": b})
            np.testing.assert_array_equal(result.as_numpy("SUM"), a + b)
            done.append(seed)
        each.close()

    done = []
    threads = [threading.Thread(target=run, args=(seed * 100,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 160
    assert any(size > 1 for size in batch_sizes(server, "add_sub"))


def test_what_a_model_sees(client, server):
    result = client.infer("about", {"IN": np.zeros([1], np.int32)}, request_id="seven", sequence_id=5,
                          sequence_start=True, priority=2, timeout=9_000_000_000,
                          parameters={"text": "x", "number": 3, "truth": True})  # fmt: skip
    about = json.loads(bytes(result.as_numpy("OUT")[0]))
    assert about["id"] == "seven"
    assert about["correlationId"] == "5n"
    assert (about["sequenceStart"], about["sequenceEnd"]) == (True, False)
    assert (about["priority"], about["timeoutUs"]) == (2, 9_000_000_000)
    assert about["parameters"] == {"text": "x", "number": "3n", "truth": True}
    assert about["outputs"] == ["OUT"]
    assert about["sibling"] == "sibling"
    assert about["model"][:2] == ["about", "1"] and about["model"][3] == "CPU"
    assert about["own"] == {"own": "value"}
    assert about["dims"] == [-1]
    assert about["forbidden"] == about["environment"] == "NotCapable"
    assert wait_until(lambda: "about was asked" in server.log())
    line = 1 + (SOURCES / "about" / "model.ts").read_text().split("\n").index('    ctx.log.info("about was asked");')
    assert f'model.ts:{line}] "about was asked"' in server.log(), "file and line of the model"


def test_parameters_of_a_response(server):
    body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [0]}]}
    answer = call(server, "POST", "/v2/models/about/infer", json.dumps(body).encode())
    assert json.loads(answer.body)["parameters"] == {"text": "t", "whole": 2**53 + 1, "half": 0.5, "truth": True}


def test_a_generator_streams(stream):
    stream.send("count_down", {"IN": np.array([300, 5], np.int32)}, enable_empty_final_response=True)
    for index in range(300):
        result = stream.good()
        assert result.as_numpy("OUT").tolist() == [index] * 5
    assert is_final(stream.good())


def test_a_generator_waits_for_a_slow_client(stream, server):
    stream.send("count_down", {"IN": np.array([400, 65_536], np.int32)}, enable_empty_final_response=True)
    time.sleep(0.5)
    for _ in range(400):
        stream.good()
    assert is_final(stream.good())


def test_a_generator_ends_when_its_client_has_gone(server):
    each = Stream(server)
    each.send("wait_for_cancel", {"IN": np.zeros([1], np.int32)})
    each.good()
    each.close(cancel_requests=True)
    assert wait_until(lambda: "the client has gone" in server.log(), 10)
    assert wait_until(lambda: inflight(server, "wait_for_cancel") == 0, 10)


@pytest.mark.parametrize("model", ["identity_int32", "echo_INT32"])
def test_a_model_calls_another_one(client, model):
    if model == "echo_INT32":
        model = "ready"
    array = np.arange(1, 7, dtype=np.int32)
    result = client.infer("call", {"IN": array, "MODEL": text_array([model])})
    np.testing.assert_array_equal(result.as_numpy("OUT"), array)


def test_a_model_takes_a_stream_of_another_one(client):
    arrays = {"IN": np.array([100, 2], np.int32), "MODEL": text_array(["count_down"])}
    assert client.infer("call", arrays).as_numpy("OUT").tolist() == [2 * sum(range(100))]
    assert client.infer("call", arrays, parameters={"leave": True}).as_numpy("OUT").tolist() == [0]


def test_the_error_of_a_called_model_comes_with_its_code(client):
    message = message_of(client, "call", {"IN": np.zeros([1], np.int32), "MODEL": text_array(["nobody"])})
    assert "nobody" in message and "not found" in message


def test_answers_after_execute(client):
    assert client.infer("later", {"IN": np.array([4, 5], np.int32)}).as_numpy("OUT").tolist() == [8, 10]
    with pytest.raises(InferenceServerException) as caught:
        client.infer("later", {"IN": np.array([13], np.int32)})
    assert caught.value.message() == "13 is refused"
    assert status_of(caught.value, client) == ("INVALID_ARGUMENT" if client.name == "grpc" else "400")


def test_a_model_asks_for_further_turns(stream):
    options = {"sequence_id": 77, "sequence_start": True, "sequence_end": True}
    stream.send("turns", {"INPUT": np.array([[3]], np.int32)}, enable_empty_final_response=True, **options)
    results = [stream.good() for _ in range(3)]
    assert [result.as_numpy("OUTPUT").tolist() for result in results] == [[[2]], [[1]], [[0]]]
    assert [is_final(result) for result in results] == [False, False, True]


def test_metrics_of_a_model(client, server):
    before = int(client.infer("metrics", {"IN": np.zeros([3], np.int32)}).as_numpy("OUT")[0])
    text = call(server, "GET", "/metrics", port=server.metrics_port).body.decode()
    assert f'ts_requests_total{{model="metrics"}} {before}' in text
    assert 'ts_size_bucket{le="10"}' in text


def test_readiness_is_the_word_of_the_model(client, server):
    client.infer("ready", {"IN": np.array([1], np.int32)})
    assert client.client.is_model_ready("ready")
    client.infer("ready", {"IN": np.array([0], np.int32)})
    assert not client.client.is_model_ready("ready")
    client.infer("ready", {"IN": np.array([1], np.int32)})
    assert client.client.is_model_ready("ready")


def test_a_changed_model_or_sibling_is_loaded_anew(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    source = 'import { VALUE } from "./value.ts";\nexport default class M {\n  execute(requests) {\n' \
        "    return requests.map(() => ({ outputs: { OUT: { shape: [1], data: Int32Array.of(VALUE + 0) } } }));\n  }\n}\n"  # fmt: skip
    add_typescript(repository, "changing", source)
    version = repository.directory("changing", 1)
    (version / "value.ts").write_text("export const VALUE = 1;\n")
    server = start(repository.root, "--model-control-mode=poll", "--repository-poll-secs=1")
    each = PROTOCOLS["grpc"](server)

    def value():
        return each.infer("changing", {"IN": np.zeros([1], np.int32)}).as_numpy("OUT").tolist()

    assert value() == [1]
    (version / "value.ts").write_text("export const VALUE = 22;\n")
    assert wait_until(lambda: value() == [22], 20)
    (version / "model.ts").write_text(source.replace("VALUE + 0", "VALUE + 300"))
    assert wait_until(lambda: value() == [322], 20)
    each.close()


def test_the_server_stops_while_a_model_loops(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    add_typescript(repository, "fault", "fault")
    server = start(repository.root, "--exit-timeout-secs=2")
    each = PROTOCOLS["grpc"](server)
    answers = []
    each.client.async_infer("fault", each.inputs({"IN": np.array([15], np.int32)}), lambda *answer: answers.append(answer))
    assert wait_until(lambda: inflight(server, "fault") == 1)
    begun = time.monotonic()
    server.stop()
    assert time.monotonic() - begun < 15
    each.close()


def test_permissions_are_those_that_the_model_declares(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    about = [("IN", "INT32", [-1])], [("OUT", "BYTES", [-1])]
    for name, parameters in {"none": {}, "some": {"allow_read": "/etc/hostname", "allow_env": "HOME"}}.items():
        add_typescript(repository, name, "about", about, parameters=parameters)
        (repository.directory(name, 1) / "sibling.ts").write_text('export const SIBLING = "";\n')
    server = start(repository.root)
    each = PROTOCOLS["http"](server)
    seen = {}
    for name in ("none", "some"):
        text = each.infer(name, {"IN": np.zeros([1], np.int32)}).as_numpy("OUT")[0]
        seen[name] = json.loads(bytes(text))["forbidden"]
    assert seen["none"] == "NotCapable"
    assert seen["some"] == open("/etc/hostname").read()
    each.close()
