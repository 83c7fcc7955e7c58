"""One real model in three formats on OpenVINO, next to ONNX Runtime, through tritonclient."""

import json
import shutil
import threading

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.frameworks import Unavailable, library_path
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

SAMPLES = 43844
SOUND_INPUT = "serving_default_input_2:0"
# Contour, note, onset as each format calls them.
NAMES = {
    "pitch_onnx": (SOUND_INPUT, [f"StatefulPartitionedCall:{index}" for index in (0, 1, 2)]),
    "pitch_tflite": (SOUND_INPUT, [f"StatefulPartitionedCall:{index}" for index in (0, 1, 2)]),
    "pitch_savedmodel": ("input_2", ["contour", "note", "onset"]),
    "pitch_tensorflow": ("input_2", ["contour", "note", "onset"]),
}
# Of a tone of 440 Hz, computed by TensorFlow.
SUMS = [4572.69, 1597.10, 1453.33]
LOUDEST_KEYS = [145, 48, 48]


def tone(hertz=440.0):
    seconds = np.arange(SAMPLES) / 22050
    return (0.5 * np.sin(2 * np.pi * hertz * seconds)).astype(np.float32).reshape(1, SAMPLES, 1)


def write_repository(root):
    nmp = library_path("basic_pitch")
    repository = Repository(root)
    config = 'backend: "openvino"\n'
    formats = {"pitch_onnx": "model.onnx", "pitch_tflite": "model.tflite", "pitch_savedmodel": "model.savedmodel"}
    for name, filename in formats.items():
        target = repository.directory(name, 1) / filename
        source = {".onnx": nmp, ".tflite": nmp.with_suffix(".tflite")}.get(target.suffix)
        if source is None:
            shutil.copytree(nmp.with_suffix(""), target)
        else:
            shutil.copy(source, target)
        # One is completed from the file that is found, two name it.
        named = "" if name == "pitch_onnx" else f'default_model_filename: "{filename}"\n'
        repository.config(name, config + named)
    # Without a configuration the folder's name tells the backend.
    shutil.copytree(nmp.with_suffix(""), repository.directory("pitch_tensorflow", 1) / "model.savedmodel")
    shutil.copy(nmp, repository.directory("pitch_reference", 1) / "model.onnx")
    (repository.directory("truncated", 1) / "model.onnx").write_bytes(nmp.read_bytes()[:5000])
    repository.config("truncated", config)
    empty = repository.directory("no_graph", 1) / "model.savedmodel"
    empty.mkdir()
    repository.config("no_graph", config)
    return root


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    try:
        library = library_path("openvino")
        root = write_repository(tmp_path_factory.mktemp("openvino"))
    except Unavailable as reason:
        pytest.skip(str(reason))
    flags = [f"--backend-config={name},library={library}" for name in ("openvino", "tensorflow")]
    flags += ["--exit-on-error=false", "--strict-readiness=false"]
    with ServerProcess(root, *flags) as process:
        yield process
        assert process.alive(), process.log()[-4000:]


@pytest.fixture(params=["http", "grpc"])
def protocol(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


@pytest.mark.parametrize("model", list(NAMES))
def test_every_format_gives_the_answers_of_its_framework(protocol, model):
    source, targets = NAMES[model]
    result = protocol.client.infer(model, [protocol.input(source, tone())])
    reference = protocol.client.infer("pitch_reference", [protocol.input(SOUND_INPUT, tone())])
    for target, name, total, key in zip(targets, NAMES["pitch_onnx"][1], SUMS, LOUDEST_KEYS):
        found = result.as_numpy(target)
        np.testing.assert_allclose(found, reference.as_numpy(name), atol=2e-3)
        assert abs(float(found.sum()) - total) < 0.1
        assert int(found[0].mean(axis=0).argmax()) == key


def test_the_config_is_completed_from_the_model(server):
    config = json.loads(call(server, "GET", "/v2/models/pitch_onnx/config").body)
    assert config["backend"] == "openvino" and config["max_batch_size"] == 4
    assert config["input"][0]["dims"] == [SAMPLES, 1] and "dynamic_batching" in config
    assert config["instance_group"][0]["kind"] == "KIND_CPU"
    config = json.loads(call(server, "GET", "/v2/models/pitch_tensorflow/config").body)
    assert config["backend"] == "tensorflow" and config["platform"] == "tensorflow_savedmodel"
    assert config["instance_group"][0]["count"] == 2


def test_a_row_in_a_batch_is_as_it_is_alone(protocol):
    source, targets = NAMES["pitch_onnx"]
    alone = [protocol.client.infer("pitch_onnx", [protocol.input(source, tone(hertz))]) for hertz in (220, 880)]
    both = protocol.client.infer("pitch_onnx", [protocol.input(source, np.concatenate([tone(220), tone(880)]))])
    for row, each in enumerate(alone):
        for target in targets:
            np.testing.assert_allclose(both.as_numpy(target)[row], each.as_numpy(target)[0], atol=1e-4)


def test_both_runtimes_work_side_by_side(server):
    failures = []

    def infer(model, name):
        each = PROTOCOLS[name](server)
        try:
            source, targets = NAMES.get(model, NAMES["pitch_onnx"])
            for _ in range(5):
                total = each.client.infer(model, [each.input(source, tone())]).as_numpy(targets[0]).sum()
                if abs(float(total) - SUMS[0]) > 0.1:
                    failures.append((model, total))
        except InferenceServerException as error:
            failures.append((model, str(error)))
        finally:
            each.close()

    threads = [
        threading.Thread(target=infer, args=(model, name))
        for model in (*NAMES, "pitch_reference")
        for name in ("http", "grpc")
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert failures == []


@pytest.mark.parametrize(
    "model,text",
    [("truncated", "openvino error in reading the model of 'truncated'"), ("no_graph", "holds no 'saved_model.pb'")],
)
def test_a_broken_model_tells_what_is_wrong(server, model, text):
    index = json.loads(call(server, "POST", "/v2/repository/index").body)
    entry = next(each for each in index if each["name"] == model)
    assert entry["state"] == "UNAVAILABLE" and text in entry["reason"]


def test_wrong_shapes_are_refused(protocol):
    source, _ = NAMES["pitch_onnx"]
    with pytest.raises(InferenceServerException, match="unexpected shape for input"):
        protocol.client.infer("pitch_onnx", [protocol.input(source, tone()[:, :100])])
