"""The server without --allow-ffi: ONNX models run on onnxruntime-web, everything else has its way or its clear refusal."""

import shutil

import numpy as np
import onnxruntime
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.onnx_models import identity
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.raw_http import call, post_json
from nereid_testing.server import PROJECT, ServerProcess, deno, server_command

pytestmark = pytest.mark.ours
PERMISSIONS = ("--no-prompt", "--allow-net", "--allow-read", "--allow-write", "--allow-env", "--allow-sys")
EXAMPLES = PROJECT / "examples" / "model_repository"
# Shapes of the inputs of real models; what is not here has no example in this checkout.
REAL_MODELS = {"ocr_cls": (2, 3, 48, 192), "ocr_det": (1, 3, 64, 64), "ocr_rec": (1, 3, 48, 64)}


class RestrictedServer(ServerProcess):
    """A server that may not call native code."""

    def __init__(self, repository, *flags):
        super().__init__(repository, *flags)
        own = [deno(), "run", *PERMISSIONS, str(PROJECT / "mod.ts")]
        self.command = [*own, *self.command[len(server_command()) :]]


@pytest.fixture(scope="module")
def real_models():
    return {name: EXAMPLES / name / "1" / "model.onnx" for name in REAL_MODELS}


@pytest.fixture(scope="module")
def server(tmp_path_factory, real_models):
    root = tmp_path_factory.mktemp("web") / "repository"
    for name in ("plain", "chosen", "on_gpu"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.onnx").write_bytes(identity("FP32", ["batch", 4], "INPUT0", "OUTPUT0").SerializeToString())
    (root / "chosen" / "config.pbtxt").write_text('backend: "onnxruntime_web"\n')
    (root / "on_gpu" / "config.pbtxt").write_text("instance_group { kind: KIND_GPU }\n")
    for name, path in real_models.items():
        if path.exists():
            (root / name / "1").mkdir(parents=True)
            shutil.copy(path, root / name / "1" / "model.onnx")
    flags = ("--log-verbose=1", "--exit-on-error=false", "--strict-readiness=false", "--allow-client-shm=true")
    with RestrictedServer(root, *flags) as running:
        yield running
        assert running.alive()


@pytest.fixture(params=sorted(PROTOCOLS))
def client(request, server):
    opened = PROTOCOLS[request.param](server)
    yield opened
    opened.close()


@pytest.mark.parametrize("model", ["plain", "chosen"])
def test_models_are_served(client, model):
    floats = np.arange(8, dtype=np.float32).reshape(2, 4)
    result = client.infer(model, {"INPUT0": floats})
    assert np.array_equal(result.as_numpy("OUTPUT0"), floats)


def test_configurations_are_completed(server):
    config = call(server, "GET", "/v2/models/plain/config").json()
    assert config["max_batch_size"] == 4
    assert config["input"][0]["dims"] == [4]
    assert config["instance_group"][0]["kind"] == "KIND_CPU"


def test_the_log_says_what_is_missing_and_why(server):
    lines = server.log().splitlines()
    assert sum("ONNX models run on onnxruntime-web: " in line and "--allow-ffi" in line for line in lines) == 1
    assert sum("no regions of shared memory" in line for line in lines) == 1


def test_shared_memory_is_refused_with_the_reason(server):
    body = {"key": "/key", "offset": 0, "byte_size": 16}
    answer = post_json(server, "/v2/systemsharedmemory/region/r/register", body)
    assert answer.status == 501
    assert "--allow-ffi" in answer.error()


def test_wrong_shapes_are_refused(client):
    with pytest.raises(InferenceServerException, match="unexpected shape"):
        client.infer("plain", {"INPUT0": np.zeros((2, 5), np.float32)})


def test_a_gpu_is_used_through_webgpu(server, client):
    adapters = call(server, "GET", "/v2/devices").json()["webgpu"]["adapters"]
    if not any(each["source"] == "navigator.gpu" for each in adapters):
        pytest.skip("navigator.gpu has no adapter here")
    floats = np.arange(8, dtype=np.float32).reshape(2, 4)
    for _ in range(3):
        assert np.array_equal(client.infer("on_gpu", {"INPUT0": floats}).as_numpy("OUTPUT0"), floats)
    config = call(server, "GET", "/v2/models/on_gpu/config").json()
    assert config["parameters"]["nereid.device.on_gpu_0"]["string_value"].startswith("webgpu")


@pytest.mark.parametrize("model", sorted(REAL_MODELS))
def test_real_models_answer_like_the_native_runtime(client, real_models, model):
    path = real_models[model]
    if not path.exists():
        pytest.skip("the examples' models are not installed (deno task demo does it)")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (name,) = (each.name for each in session.get_inputs())
    shape = REAL_MODELS[model]
    values = (((np.arange(np.prod(shape)) * 37) % 255) / 127.5 - 1).reshape(shape).astype(np.float32)
    wanted = session.run(None, {name: values})
    result = client.infer(model, {name: values})
    for output, want in zip(session.get_outputs(), wanted):
        assert np.allclose(result.as_numpy(output.name), want, rtol=1e-3, atol=1e-4)
