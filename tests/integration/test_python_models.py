"""Models in Python: unmodified `model.py` files behind tritonclient's HTTP and gRPC clients and streams."""

import json
import os
import tarfile
import tempfile
import threading
import time
import venv

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import Stream, inflight, is_final
from nereid_testing.observe import batch_sizes, metric, wait_until
from nereid_testing.protocols import PROTOCOLS, sample
from nereid_testing.python_models import (
    ABOUT,
    ECHO,
    add_python,
    is_alive,
    named_shared_memory,
    runtime_folders,
    stub_processes,
    write_python_repository,
)
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import PROJECT, ServerProcess, deno

pytestmark = pytest.mark.ours


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def server(tmp_path_factory, place):
    root = tmp_path_factory.mktemp("python_models")
    write_python_repository(root)
    temporary = tmp_path_factory.mktemp("temporary")
    prefix = ["env", f"NEREID_MARKER={place}", f"TMPDIR={temporary}"]
    with ServerProcess(root, "--exit-on-error=false", "--strict-readiness=false", wait="live", prefix=prefix) as each:
        wait_until(lambda: call(each, "GET", "/v2/models/add_sub/ready").status == 200, 30)
        yield each
        for model in ("add_sub", "count_down", "wait_for_cancel", "call", "call_stream"):
            assert wait_until(lambda: inflight(each, model) == 0, 10), model  # noqa: B023
        processes = stub_processes(each)
        assert len(processes) > 10
        assert named_shared_memory([each.process.pid, *processes]) == set()
        assert len(runtime_folders(temporary)) == 1
        each.stop()
        assert wait_until(lambda: not any(map(is_alive, processes)))
        assert wait_until(lambda: runtime_folders(temporary) == [])


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


def test_add_sub(client):
    a, b = sample("FP32", [2, 16], 1), sample("FP32", [2, 16], 2)
    result = client.infer("add_sub", {"A": a, "B": b})
    assert np.array_equal(result.as_numpy("SUM"), a + b)
    assert np.array_equal(result.as_numpy("DIFFERENCE"), a - b)


def test_requested_outputs_only(client):
    a = sample("FP32", [1, 4])
    result = client.infer("add_sub", {"A": a, "B": a}, outputs=["DIFFERENCE"])
    assert result.as_numpy("SUM") is None
    assert np.array_equal(result.as_numpy("DIFFERENCE"), a - a, equal_nan=True)


@pytest.mark.parametrize("count", [0, 1, 1000, 100_000])
@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"])
def test_every_datatype_comes_back(client, datatype, count):
    array = sample(datatype, [count])
    got = client.infer(f"echo_{datatype.lower()}", {"IN": array}).as_numpy("OUT")
    assert got.dtype == array.dtype and got.shape == array.shape
    assert got.tobytes() == array.tobytes() if datatype != "BYTES" else (got == array).all()


def test_large_tensors_keep_apart(client):
    """Slots of the shared memory are given back and used again."""
    for round_ in range(30):
        array = np.full([150_528 + round_ * 1000], round_, np.float32)
        assert np.array_equal(client.infer("echo_fp32", {"IN": array}).as_numpy("OUT"), array)


def test_batches_are_formed(server):
    each = PROTOCOLS["grpc"](server)
    a = sample("FP32", [1, 16])
    threads = [threading.Thread(target=each.infer, args=("add_sub", {"A": a, "B": a})) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    each.close()
    assert max(batch_sizes(server, "add_sub")) > 1


def test_configuration_comes_from_the_model(client, server):
    config = call(server, "GET", "/v2/models/hook/config").json()
    assert config["max_batch_size"] == 8 and config["dynamic_batching"]["preferred_batch_size"] == [8]
    assert config["input"][0]["dims"] == [-1]
    array = sample("INT32", [1, 4]).astype(np.float32)
    assert np.array_equal(client.infer("hook", {"IN": array}).as_numpy("OUT"), array * 2)


def about(client, **options):
    result = client.infer("about", {"IN": np.array([1], np.int32)}, **options)
    return json.loads(result.as_numpy("OUT")[0]), result


def test_what_a_model_is_told(client, server, place):
    told, _ = about(client)
    args = told["args"]
    assert set(args) == {
        "model_config", "model_instance_kind", "model_instance_name", "model_instance_device_id", "model_repository",
        "model_version", "model_name",
    }  # fmt: skip
    assert all(isinstance(value, str) for value in args.values())
    assert args["model_instance_kind"] == "CPU" and args["model_instance_device_id"] == "0"
    assert args["model_version"] == "1" and args["model_name"] == "about"
    assert args["model_repository"].endswith("/about") and os.path.isdir(args["model_repository"])
    assert told["name"] == "1.model" and told["argv"] == [""] and told["marker"] == str(place)
    assert told["config"] == call(server, "GET", "/v2/models/about/config").json()


def test_what_a_request_tells(client):
    parameters = {"text": "ä", "whole": 7, "truth": False}
    told, result = about(client, request_id="r1", sequence_id=9, sequence_start=True, timeout=5_000_000, parameters=parameters)
    request = told["request"]
    assert request["id"] == "r1" and request["correlation"] == 9 and request["flags"] == 1
    assert request["timeout"] == 5_000_000 and request["parameters"] == parameters and request["outputs"] == ["OUT"]
    if client.name == "http":
        given = result.get_response()["parameters"]
        assert given == {"text": "t", "whole": 2**53 + 1, "truth": True}
    else:
        given = result.get_response().parameters
        assert given["text"].string_param == "t" and given["whole"].int64_param == 2**53 + 1
        assert given["truth"].bool_param is True


def test_decoupled_responses_come_in_order(stream):
    stream.send("count_down", {"IN": np.array([500, 3], np.int32)}, "x", enable_empty_final_response=True)
    for i in range(500):
        result = stream.good()
        assert result.as_numpy("OUT").tolist() == [i, i, i] and not is_final(result)
    assert is_final(stream.good())


def test_decoupled_large_responses_flow_as_they_are_taken(server, stream):
    stream.send("count_down", {"IN": np.array([300, 100_000], np.int32)}, "x", enable_empty_final_response=True)
    time.sleep(0.5)
    for i in range(300):
        assert (stream.good().as_numpy("OUT") == i).all()
    assert is_final(stream.good())


def test_cancel_reaches_the_model(server, place):
    marker = place / "cancelled"
    marker.unlink(missing_ok=True)
    stream = Stream(server)
    stream.send("wait_for_cancel", {"IN": np.array([1], np.int32)})
    stream.good()
    stream.close(cancel_requests=True)
    assert wait_until(lambda: marker.exists() and marker.read_text() == "True")


def test_calls_of_other_models(client):
    for array in (np.arange(5, dtype=np.int32), np.arange(100_000, dtype=np.int32)):
        arrays = {"IN": array, "MODEL": np.array([b"echo_int32"], np.object_)}
        assert np.array_equal(client.infer("call", arrays).as_numpy("OUT"), array)


def test_calls_of_models_that_fail(client):
    def told(model):
        return message_of(client, "call", {"IN": np.arange(5, dtype=np.int32), "MODEL": np.array([model], np.object_)})

    assert "Request for unknown model: 'nobody' is not found" in told(b"nobody")
    assert "count_down" in told(b"count_down")
    assert "'MODEL'" in told(b"call")


def test_streams_of_other_models(client):
    result = client.infer("call_stream", {"IN": np.array([200, 2], np.int32)})
    assert result.as_numpy("OUT").tolist() == [2 * sum(range(200))]


def test_is_ready(client, server, place):
    marker = place / "not_ready"
    assert client.client.is_model_ready("ready")
    marker.touch()
    assert not client.client.is_model_ready("ready")
    array = np.array([1], np.int32)
    assert np.array_equal(client.infer("ready", {"IN": array}).as_numpy("OUT"), array)
    marker.unlink()
    assert client.client.is_model_ready("ready")


def test_models_that_do_not_load(server):
    index = {row["name"]: row for row in call(server, "POST", "/v2/repository/index").json()}
    assert index["bad_syntax"]["state"] == "UNAVAILABLE" and "SyntaxError" in index["bad_syntax"]["reason"]
    assert "RuntimeError: cannot start" in index["bad_start"]["reason"]
    assert "model.py(" in index["bad_start"]["reason"]
    assert "Stub process 'dies_at_start" in index["dies_at_start"]["reason"]
    assert "is not healthy" in index["dies_at_start"]["reason"]


def test_statistics_count_python_models(server, client):
    before = metric(server, "nv_inference_request_success", model="echo_int32") or 0
    client.infer("echo_int32", {"IN": np.arange(3, dtype=np.int32)})
    assert wait_until(lambda: metric(server, "nv_inference_request_success", model="echo_int32") == before + 1)


def test_without_shared_memory(tmp_path, start, monkeypatch):
    """Everything travels in the frames where the server may not open the C library."""
    repository = Repository(tmp_path / "repository")
    add_python(repository, "echo", ECHO)
    monkeypatch.setenv("NEREID_SERVER", f"{deno()} run -A --deny-ffi {PROJECT}/mod.ts")
    server = start(repository.root)
    each = PROTOCOLS["http"](server)
    array = np.arange(500_000, dtype=np.int32)
    assert np.array_equal(each.infer("echo", {"IN": array}).as_numpy("OUT"), array)
    each.close()


def test_memory_that_is_full_fails_the_request_only(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    add_python(repository, "echo", ECHO)
    server = start(repository.root, "--backend-config=python,shm-max-byte-size=1048576")
    each = PROTOCOLS["http"](server)
    assert "Failed to increase the shared memory pool size" in message_of(each, "echo", {"IN": np.zeros([400_000], np.int32)})
    array = np.arange(100_000, dtype=np.int32)
    for _ in range(5):
        assert np.array_equal(each.infer("echo", {"IN": array}).as_numpy("OUT"), array)
    each.close()


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A folder like one of conda-pack, with the packages of this Python."""
    root = tmp_path_factory.mktemp("environment") / "env"
    venv.create(root, system_site_packages=False, symlinks=True)
    packages = next(root.glob("lib/python3*/site-packages"))
    (packages / "more.pth").write_text(os.path.dirname(os.path.dirname(np.__file__)) + "\n")
    return root


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_execution_environment(tmp_path, start, environment, kind):
    repository = Repository(tmp_path / "repository")
    path = str(environment)
    if kind == "archive":
        with tarfile.open(repository.directory("about") / "env.tar.gz", "w:gz") as archive:
            archive.add(environment, arcname=".")
        path = "$$TRITON_MODEL_DIRECTORY/env.tar.gz"
    for name in ("about", "other"):
        own = path if name == "about" else str(repository.root / "about" / "env.tar.gz") if kind == "archive" else path
        add_python(repository, name, ABOUT, outputs=[("OUT", "BYTES", [1])], parameters={"EXECUTION_ENV_PATH": own}, instances=2)
    # Sockets have short paths only: a place with a long one is not used.
    place = tempfile.TemporaryDirectory(prefix="nereid-test-", dir="/tmp") if kind == "archive" else None
    temporary = place.name if place is not None else tmp_path
    server = start(repository.root, prefix=["env", f"TMPDIR={temporary}"])
    each = PROTOCOLS["http"](server)
    told, _ = about(each)
    folder, first = told["environment"]
    assert first == f"{folder}/bin" and told["executable"].startswith(folder)
    if kind == "folder":
        assert folder == path
    else:
        assert folder.startswith(str(temporary))
        assert server.log().count("Extracting Python execution env") == 1
    each.close()
    server.stop()
    assert wait_until(lambda: runtime_folders(temporary) == [])


@pytest.mark.parametrize("given, text", [("/nowhere/env", "/nowhere/env"), ("FOLDER", "activate")])
def test_execution_environment_that_is_none(tmp_path, start, given, text):
    repository = Repository(tmp_path / "repository")
    path = str(tmp_path) if given == "FOLDER" else given
    add_python(repository, "m", ECHO, parameters={"EXECUTION_ENV_PATH": path})
    server = start(repository.root, "--exit-on-error=false", wait="live")
    assert wait_until(lambda: text in call(server, "POST", "/v2/repository/index").body.decode())
