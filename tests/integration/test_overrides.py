"""Load requests that bring a configuration or files, through tritonclient over both protocols; nothing is left behind."""

import json
import random
import signal
import threading
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing import onnx_models
from nereid_testing.observe import pending, temporary_model_folders, wait_until
from nereid_testing.protocols import PROTOCOLS, HttpProtocol, status_of
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

CONFIG = json.dumps({"backend": "onnxruntime"})
IDENTITY = onnx_models.identity("FP32", [4]).SerializeToString()
PAIR = onnx_models.add_sub("FP32", [4]).SerializeToString()
ARRAY = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A place for temporary files of one server."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def server(tmp_path_factory, place):
    repository = Repository(tmp_path_factory.mktemp("overrides") / "repository")
    repository.onnx("model", onnx_models.identity("FP32", [4]))
    repository.echo("slow", "FP32", [4], parameters={"execute_delay_ms": 700})
    prefix = ("env", f"TMPDIR={place}")
    with ServerProcess(repository.root, "--model-control-mode=explicit", "--load-model=model", prefix=prefix) as each:
        yield each
        assert wait_until(lambda: pending(each, "model") in (0, None))
        assert each.alive(), each.log()[-4000:]
        assert each.stop() == 0
    assert list(place.iterdir()) == [], "the server leaves no temporary files"


@pytest.fixture(params=["http", "grpc"])
def protocol(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.client.load_model("model")
    each.close()


def outputs(protocol, model, **arrays):
    result = protocol.infer(model, arrays)
    response = result.get_response()
    if protocol.name == "http":
        return sorted(each["name"] for each in response["outputs"])
    return sorted(each.name for each in response.outputs)


def index(protocol):
    rows = protocol.client.get_model_repository_index()
    if protocol.name == "http":
        return {row["name"]: row.get("state") for row in rows}
    return {row.name: row.state for row in rows.models}


def test_files_replace_the_whole_folder(protocol, server, place):
    client = protocol.client
    assert outputs(protocol, "model", IN=ARRAY) == ["OUT"]
    client.load_model("model", config=CONFIG, files={"file:1/model.onnx": PAIR})
    metadata = client.get_model_metadata("model")
    names = [each["name"] for each in metadata["outputs"]] if protocol.name == "http" else [o.name for o in metadata.outputs]
    assert len(names) == 2
    assert len(temporary_model_folders(place)) > 0
    client.load_model("model")
    assert outputs(protocol, "model", IN=ARRAY) == ["OUT"]
    assert wait_until(lambda: temporary_model_folders(place) == [])


def test_a_model_without_a_directory(protocol, place):
    """It is served and listed; a plain load finds no directory, and what serves goes on."""
    client, name = protocol.client, f"only_files_{protocol.name}"
    client.load_model(name, config=CONFIG, files={"file:3/model.onnx": IDENTITY, "file:notes/read.me": b"x"})
    assert outputs(protocol, name, IN=ARRAY) == ["OUT"]
    assert index(protocol)[name] == "READY"
    with pytest.raises(InferenceServerException, match="failed to poll from model repository"):
        client.load_model(name)
    assert outputs(protocol, name, IN=ARRAY) == ["OUT"]
    client.unload_model(name)
    assert wait_until(lambda: index(protocol)[name] == "UNAVAILABLE")
    assert wait_until(lambda: temporary_model_folders(place) == [])


def test_labels_come_from_the_files_only(protocol, place):
    config = {
        "backend": "onnxruntime",
        "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [4], "label_filename": "labels.txt"}],
    }
    files = {"file:1/model.onnx": IDENTITY, "file:labels.txt": b"zero\none\ntwo\nthree\n"}
    protocol.client.load_model("model", config=json.dumps(config), files=files)
    result = protocol.infer("model", {"IN": ARRAY}, outputs=[protocol.output("OUT", class_count=1)])
    assert result.as_numpy("OUT")[0] == b"3.000000:3:three"
    del files["file:labels.txt"]
    with pytest.raises(InferenceServerException, match="labels.txt"):
        protocol.client.load_model("model", config=json.dumps(config), files=files)
    # what served goes on, from a folder that is still there
    result = protocol.infer("model", {"IN": ARRAY}, outputs=[protocol.output("OUT", class_count=1)])
    assert result.as_numpy("OUT")[0] == b"3.000000:3:three"


def test_files_need_a_configuration(protocol, place):
    with pytest.raises(InferenceServerException, match="'config' must be specified"):
        protocol.client.load_model("model", files={"file:1/model.onnx": IDENTITY})
    assert temporary_model_folders(place) == []


def test_a_model_that_cannot_be_loaded_leaves_nothing(protocol, place):
    for files in ({"file:1/model.onnx": b"junk"}, {"file:1/model.onnx": b""}, {"file:model.onnx": IDENTITY}):
        with pytest.raises(InferenceServerException, match="failed"):
            protocol.client.load_model("model", config=CONFIG, files=files)
        assert temporary_model_folders(place) == []
    for config in ("{", '{"unknown": 1}', '{"backend": "none"}'):
        with pytest.raises(InferenceServerException, match="failed"):
            protocol.client.load_model("model", config=config, files={"file:1/model.onnx": IDENTITY})
        assert temporary_model_folders(place) == []
    assert outputs(protocol, "model", IN=ARRAY) == ["OUT"]


ESCAPES = ["../x", "../../tmp/x", "/../x", "1/../../x", "..", ".", "", "1/", "a\\..\\b", "d/" * 20 + "x", "n" * 300, "1/a\nb", "1/..\\..\\x"]


@pytest.mark.parametrize("path", ESCAPES, ids=[repr(each[:12]) for each in ESCAPES])
def test_files_that_lie_elsewhere_are_refused(protocol, place, path):
    with pytest.raises(InferenceServerException, match="load parameter 'file:") as caught:
        protocol.client.load_model("model", config=CONFIG, files={f"file:{path}": b"x", "file:1/model.onnx": IDENTITY})
    assert status_of(caught.value, protocol) in ("400", "INVALID_ARGUMENT")
    assert temporary_model_folders(place) == []


def test_files_that_exclude_each_other_are_refused(protocol, place):
    with pytest.raises(InferenceServerException, match="where '1' is a file"):
        protocol.client.load_model("model", config=CONFIG, files={"file:1": b"x", "file:1/model.onnx": IDENTITY})


@pytest.mark.parametrize("name", ["..", "../x", "a/b", " .. ", "%2e%2e", "m; touch x", "a\nb", "x" * 300])
def test_odd_names_of_models_are_refused(protocol, place, name):
    with pytest.raises(InferenceServerException):
        protocol.client.load_model(name, config=CONFIG, files={"file:1/model.onnx": b"junk"})
    assert temporary_model_folders(place) == []


@pytest.mark.parametrize("text", ["", "%%%%", "=" * 9, "AAA", "\u20ac", "A" * 1001])
def test_base64_that_is_not(server, place, text):
    body = {"parameters": {"config": CONFIG, "file:1/model.onnx": text}}
    response = call(server, "POST", "/v2/repository/models/model/load", json.dumps(body).encode())
    assert response.status == 400 and "load failed for model 'model'" in response.json()["error"]
    assert temporary_model_folders(place) == []


@pytest.mark.parametrize("value", [7, None, ["x"], {"a": 1}, True])
def test_files_that_are_no_text(server, place, value):
    body = {"parameters": {"config": CONFIG, "file:1/model.onnx": value}}
    response = call(server, "POST", "/v2/repository/models/model/load", json.dumps(body).encode())
    assert response.status == 400 and "file:1/model.onnx" in response.json()["error"]


def test_the_folder_stays_while_requests_are_in_flight(server, place):
    """A model that came as files and was unloaded goes on to the end of its last request."""
    protocol = HttpProtocol(server, concurrency=2)
    config = {
        "backend": "identity",
        "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]}],
        "parameters": {"execute_delay_ms": {"string_value": "700"}},
    }
    protocol.client.load_model("draining", config=json.dumps(config), files={"file:1/any": b""})
    running = protocol.client.async_infer("draining", protocol.inputs({"IN": ARRAY}))
    assert wait_until(lambda: pending(server, "draining") is not None)
    time.sleep(0.2)
    protocol.client.unload_model("draining")
    assert temporary_model_folders(place) != []
    assert (running.get_result().as_numpy("OUT") == ARRAY).all()
    assert wait_until(lambda: temporary_model_folders(place) == [])
    protocol.close()


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_fifty_clients_load_and_unload(server, place, name):
    """Whatever comes first: each answer is one of the specified ones, and in the end nothing is half loaded or left."""
    strange, end = [], time.monotonic() + 60

    def work(seed):
        protocol, choose = PROTOCOLS[name](server), random.Random(seed)
        try:
            for _ in range(6):
                model = f"race_{choose.randrange(3)}"
                try:
                    action = choose.randrange(4)
                    if action == 0:
                        protocol.client.unload_model(model)
                    elif action == 1:
                        protocol.client.load_model(model, config=CONFIG, files={"file:1/model.onnx": b"junk"})
                        strange.append("junk was loaded")
                    elif action == 2:
                        protocol.client.load_model(model, config=CONFIG, files={"file:1/model.onnx": IDENTITY})
                    else:
                        got = protocol.infer(model, {"IN": ARRAY}).as_numpy("OUT")
                        if not (got == ARRAY).all():
                            strange.append(got)
                except InferenceServerException as error:
                    known = ("load failed", "Request for unknown model", "versions that are still available", "is not", "no available")
                    if not any(text in str(error) for text in known):
                        strange.append(str(error))
                if time.monotonic() > end:
                    return
        except Exception as error:  # reported by the main thread
            strange.append(repr(error))
        finally:
            protocol.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert strange == []
    closing = HttpProtocol(server)
    for model in ("race_0", "race_1", "race_2"):
        closing.client.unload_model(model)
    assert wait_until(lambda: all(index(closing).get(f"race_{i}") in (None, "UNAVAILABLE") for i in range(3)))
    assert wait_until(lambda: temporary_model_folders(place) == [])
    closing.close()


def test_nothing_is_left_by_a_server_that_is_ended_twice(tmp_path):
    """A second signal does not wait for requests, but the files go."""
    repository = Repository(tmp_path / "repository")
    place = tmp_path / "temporary"
    place.mkdir()
    with ServerProcess(repository.root, "--model-control-mode=explicit", prefix=("env", f"TMPDIR={place}")) as server:
        protocol = HttpProtocol(server, concurrency=2)
        config = {
            "backend": "identity",
            "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [4]}],
            "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]}],
            "parameters": {"execute_delay_ms": {"string_value": "5000"}},
        }
        protocol.client.load_model("slow", config=json.dumps(config), files={"file:1/any": b""})
        protocol.client.async_infer("slow", protocol.inputs({"IN": ARRAY}))
        time.sleep(0.3)
        server.process.terminate()
        time.sleep(0.3)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=10) == 1
        assert list(place.iterdir()) == []


def test_a_killed_server_leaves_what_the_next_one_removes(tmp_path):
    repository = Repository(tmp_path / "repository")
    place = tmp_path / "temporary"
    place.mkdir()

    def load(server):
        protocol = HttpProtocol(server)
        protocol.client.load_model("m", config=CONFIG, files={"file:1/model.onnx": IDENTITY})
        protocol.close()

    prefix = ("env", f"TMPDIR={place}")
    with ServerProcess(repository.root, "--model-control-mode=explicit", prefix=prefix) as first:
        load(first)
        with ServerProcess(repository.root, "--model-control-mode=explicit", prefix=prefix) as second:
            load(second)
            assert len(temporary_model_folders(place)) == len(list(place.iterdir())) == 2
            second.process.kill()
            second.process.wait()
        assert len(list(place.iterdir())) == 2
        with ServerProcess(repository.root, "--model-control-mode=explicit", prefix=prefix) as third:
            load(third)
            assert len(list(place.iterdir())) == 2
    assert list(place.iterdir()) == []
