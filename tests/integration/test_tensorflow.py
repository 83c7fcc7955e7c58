"""SavedModels and frozen graphs on TensorFlow's own library, against what TensorFlow itself answers."""

import json
import shutil
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.frameworks import Unavailable, library_path
from nereid_testing.protocols import PROTOCOLS, text_array
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository, parameters_section, tensor_section
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

MODELS = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow_models"
ANSWERS = json.loads((MODELS / "answers.json").read_text(encoding="utf-8"))
PLATFORM = 'platform: "tensorflow_savedmodel"\n'
GRAPH_PLATFORM = 'platform: "tensorflow_graphdef"\n'
ONE = "instance_group [ { kind: KIND_CPU count: 1 } ]\n"

SAMPLES = 43844
# Of a tone of 440 Hz, computed by TensorFlow (real-models.md §3.7).
PITCH_SUMS = {"contour": 4572.69, "note": 1597.10, "onset": 1453.33}
PITCH_KEYS = {"contour": 145, "note": 48, "onset": 48}

BROKEN = {
    "no_signature": "has no signature 'serving_default'; signatures of the graph with tags 'serve': 'logits', 'pre",
    "wrong_signature": "has no signature 'train'",
    "truncated": "is cut off, or no SavedModel",
    "no_variables": "variables.index'; a SavedModel is a whole folder",
    "half_variables": "the folder 'variables' of the SavedModel is not whole",
    "no_asset": "vocabulary.txt",
    "no_graph": "holds no 'saved_model.pb'",
    "cut_graph": "the file is cut off, or no graph of TensorFlow",
    "no_init_op": "lists 'begin', which the graph has not",
}


def tone(hertz=440.0):
    seconds = np.arange(SAMPLES) / 22050
    return (0.5 * np.sin(2 * np.pi * hertz * seconds)).astype(np.float32).reshape(1, SAMPLES, 1)


def add_model(repository, name, source, config="", **parameters):
    target = repository.directory(name, 1) / "model.savedmodel"
    shutil.copytree(MODELS / source if isinstance(source, str) else source, target)
    repository.config(name, PLATFORM + config + (parameters_section(parameters) if parameters else ""))
    return target


def add_graph(repository, name, content, config="", **parameters):
    (repository.directory(name, 1) / "model.graphdef").write_bytes(content)
    repository.config(name, GRAPH_PLATFORM + config + (parameters_section(parameters) if parameters else ""))


def write_repository(root):
    pitch = library_path("basic_pitch").with_suffix("")
    repository = Repository(root)
    # Without a configuration the folder's name tells the backend.
    shutil.copytree(pitch, repository.directory("pitch", 1) / "model.savedmodel")
    add_model(repository, "predict", "linear", TF_SIGNATURE_DEF="predict", TF_NUM_INTRA_THREADS="1")
    add_model(repository, "logits", "linear", ONE, TF_SIGNATURE_DEF="logits", TF_USE_PER_SESSION_THREADS="on")
    add_model(repository, "texts", "texts")
    add_model(repository, "memory", "memory", ONE)
    add_model(repository, "memories", "memory", ONE.replace("count: 1", "count: 2"), MAX_SESSION_SHARE_COUNT="2")
    add_graph(repository, "frozen", (MODELS / "frozen.graphdef").read_bytes())
    uninitialized = (MODELS / "uninitialized.graphdef").read_bytes()
    listed = tensor_section("input", [("x", "FP32", [2])]) + tensor_section("output", [("y", "FP32", [2])])
    listed += "max_batch_size: 8\n"
    add_graph(repository, "started", uninitialized, listed, TF_INIT_OPS_FILE="init.json")
    (repository.directory("started", 1).parent / "init.json").write_text('{"init_ops": ["start"]}')
    add_broken(repository, listed)
    return root


def add_broken(repository, listed):
    add_model(repository, "no_signature", "linear")
    add_model(repository, "wrong_signature", "linear", TF_SIGNATURE_DEF="train")
    graph = add_model(repository, "truncated", "texts") / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[:4000])
    shutil.rmtree(add_model(repository, "no_variables", "linear", TF_SIGNATURE_DEF="predict") / "variables")
    folder = add_model(repository, "half_variables", "linear", TF_SIGNATURE_DEF="predict")
    values = next((folder / "variables").glob("*.data-*"))
    values.write_bytes(values.read_bytes()[:20])
    shutil.rmtree(add_model(repository, "no_asset", "texts") / "assets")
    (add_model(repository, "no_graph", "texts") / "saved_model.pb").unlink()
    add_graph(repository, "cut_graph", (MODELS / "frozen.graphdef").read_bytes()[:700])
    add_graph(
        repository, "no_init_op", (MODELS / "uninitialized.graphdef").read_bytes(), listed, TF_INIT_OPS_FILE="init.json"
    )
    (repository.directory("no_init_op", 1) / "init.json").write_text('{"init_ops": ["begin"]}')


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    try:
        library = library_path("tensorflow")
        root = write_repository(tmp_path_factory.mktemp("tensorflow"))
    except Unavailable as reason:
        pytest.skip(str(reason))
    flags = [f"--backend-config=tensorflow,library={library}", "--exit-on-error=false", "--strict-readiness=false"]
    with ServerProcess(root, *flags) as process:
        yield process
        assert process.alive(), process.log()[-4000:]
        assert process.stop() == 0, process.log()[-4000:]


@pytest.fixture(params=["http", "grpc"])
def protocol(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def test_a_real_model_gives_the_answers_of_tensorflow(protocol):
    result = protocol.infer("pitch", {"input_2": tone()})
    for name, total in PITCH_SUMS.items():
        found = result.as_numpy(name)
        assert abs(float(found.sum()) - total) < 0.1
        assert int(found[0].mean(axis=0).argmax()) == PITCH_KEYS[name]


@pytest.mark.parametrize("signature", ["predict", "logits"])
def test_variables_and_signatures(protocol, signature):
    x = np.array(ANSWERS["linear"]["x"], np.float32)
    result = protocol.infer(signature, {"x": x})
    for name, expected in ANSWERS["linear"][signature].items():
        np.testing.assert_allclose(result.as_numpy(name), np.array(expected), rtol=1e-5)


def test_a_frozen_graph_gives_the_answers_of_the_model_it_came_from(protocol, server):
    source, *targets = [name.removesuffix(":0") for name in ANSWERS["frozen"]]
    config = json.loads(call(server, "GET", "/v2/models/frozen/config").body)
    assert [each["name"] for each in config["input"]] == [source]
    assert sorted(each["name"] for each in config["output"]) == sorted(targets)
    result = protocol.infer("frozen", {source: np.array(ANSWERS["linear"]["x"], np.float32)})
    found = {result.as_numpy(name).dtype.name: result.as_numpy(name) for name in targets}
    expected = ANSWERS["linear"]["predict"]
    np.testing.assert_allclose(found["float32"], np.array(expected["scores"]), rtol=1e-5)
    np.testing.assert_array_equal(found["int64"], np.array(expected["best"]))


def test_strings_tables_and_small_floats(protocol):
    words = ANSWERS["texts"]["words"]
    given = text_array([each for row in words for each in row], [len(words), len(words[0])])
    result = protocol.infer("texts", {"words": given})
    for name, expected in ANSWERS["texts"]["serving_default"].items():
        found = result.as_numpy(name)
        if isinstance(expected[0][0], str):
            assert [[each.decode() for each in row] for row in found] == expected
            continue
        exact = {"bfloat16": ml_dtypes.bfloat16, "half": np.float16}.get(name, np.int64)
        assert found.dtype == exact
        np.testing.assert_array_equal(found.astype(np.float64), np.array(expected, np.float64))


@pytest.mark.parametrize("model", ["memory", "memories"])
def test_what_a_model_keeps_outlives_the_request(protocol, model):
    texts = [["plain", "x" * 1000], ["schön €", ""], ["y" * 23, "z" * 22]]
    numbers = [np.array([k, -k], np.float32) for k in range(len(texts))]
    for index, (row, pair) in enumerate(zip(texts, numbers)):
        result = protocol.infer(model, {"number": pair, "text": text_array(row)})
        if index == 0:
            continue
        np.testing.assert_array_equal(result.as_numpy("number_before"), numbers[index - 1])
        assert [each.decode() for each in result.as_numpy("text_before")] == texts[index - 1]


def test_operations_that_start_a_graph_are_run(protocol):
    result = protocol.infer("started", {"x": np.array([[1, 2], [3, 4]], np.float32)})
    np.testing.assert_array_equal(result.as_numpy("y"), [[11, 22], [13, 24]])


def test_the_config_is_completed_from_the_signature(server):
    config = json.loads(call(server, "GET", "/v2/models/pitch/config").body)
    assert config["backend"] == "tensorflow" and config["platform"] == "tensorflow_savedmodel"
    assert [each["name"] for each in config["output"]] == ["contour", "note", "onset"]
    assert config["instance_group"][0]["count"] == 2 and config["max_batch_size"] == 4
    assert config["input"][0] == {**config["input"][0], "name": "input_2", "data_type": "TYPE_FP32"}
    config = json.loads(call(server, "GET", "/v2/models/texts/config").body)
    types = {each["name"]: each["data_type"] for each in config["output"]}
    assert types["bfloat16"] == "TYPE_BF16" and types["half"] == "TYPE_FP16" and types["line"] == "TYPE_STRING"


def test_requests_at_once_get_their_own_answers(server):
    x = np.array(ANSWERS["linear"]["x"], np.float32)
    expected = np.array(ANSWERS["linear"]["predict"]["scores"])
    failures = []

    def infer(name, row):
        each = PROTOCOLS[name](server)
        try:
            for _ in range(30):
                found = each.infer("predict", {"x": x[row : row + 1]}).as_numpy("scores")
                if not np.allclose(found[0], expected[row], rtol=1e-5):
                    failures.append((row, found))
        except InferenceServerException as error:
            failures.append((row, str(error)))
        finally:
            each.close()

    threads = [threading.Thread(target=infer, args=(name, row)) for name in ("http", "grpc") for row in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert failures == [] and not any(each.is_alive() for each in threads)


@pytest.mark.parametrize("model", list(BROKEN))
def test_a_broken_model_tells_what_is_wrong(server, model):
    index = json.loads(call(server, "POST", "/v2/repository/index").body)
    entry = next(each for each in index if each["name"] == model)
    assert entry["state"] == "UNAVAILABLE" and BROKEN[model] in entry["reason"], entry


def test_a_fault_of_one_request_is_told_and_stays_with_it(protocol):
    with pytest.raises(InferenceServerException, match="unexpected shape for input"):
        protocol.infer("logits", {"x": np.zeros((1, 5), np.float32)})
    with pytest.raises(InferenceServerException, match="x"):
        protocol.infer("logits", {"x": np.zeros((1, 4), np.int32)})
    assert protocol.infer("logits", {"x": np.zeros((1, 4), np.float32)}).as_numpy("logits").shape == (1, 3)


def test_the_log_tells_the_library_and_nothing_of_its_chatter(server):
    log = server.log()
    assert "TensorFlow 2.21.0 from" in log
    assert "cpu_feature_guard" not in log and "Restoring SavedModel" not in log


def lacking_server(root, **variables):
    """A server that finds no TensorFlow, unless it is installed on this machine."""
    words = ["env", "-u", "NEREID_TENSORFLOW_LIBRARY", "-u", "NEREID_OPENVINO_LIBRARY"]
    words += [f"{name}={value}" for name, value in variables.items()]
    return ServerProcess(root, "--exit-on-error=false", "--strict-readiness=false", prefix=words)


def test_without_the_library_models_run_on_openvino(tmp_path):
    try:
        pitch, openvino = library_path("basic_pitch").with_suffix(""), library_path("openvino")
    except Unavailable as reason:
        pytest.skip(str(reason))
    shutil.copytree(pitch, Repository(tmp_path).directory("pitch", 1) / "model.savedmodel")
    with lacking_server(tmp_path, NEREID_OPENVINO_LIBRARY=openvino) as server:
        if "TensorFlow models run on OpenVINO: Cannot open the TensorFlow library" not in server.log():
            assert "TensorFlow 2." in server.log()
            pytest.skip("TensorFlow is installed on this machine")
        protocol = PROTOCOLS["http"](server)
        found = protocol.infer("pitch", {"input_2": tone()}).as_numpy("contour")
        protocol.close()
        assert abs(float(found.sum()) - PITCH_SUMS["contour"]) < 0.1


def test_without_any_library_the_load_tells_what_brings_one(tmp_path):
    add_model(Repository(tmp_path), "predict", "linear", TF_SIGNATURE_DEF="predict")
    with lacking_server(tmp_path) as server:
        (entry,) = json.loads(call(server, "POST", "/v2/repository/index").body)
        if "OpenVINO 2" in server.log() or entry["state"] == "READY":
            pytest.skip("TensorFlow or OpenVINO is installed on this machine")
        assert "Cannot open the TensorFlow library" in entry["reason"]
        assert "pip install tensorflow-cpu" in entry["reason"] and "pip install openvino" in entry["reason"]
        assert call(server, "GET", "/v2/health/live").status == 200
