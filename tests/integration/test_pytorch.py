"""TorchScript models on the real libtorch, through tritonclient."""

import json
import pickle
import subprocess

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.frameworks import Unavailable, library_path
from nereid_testing.protocols import PROTOCOLS, text_array
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository, tensor_section
from nereid_testing.server import PROJECT, ServerProcess, deno
from nereid_testing.torchscript import ADD_SUB, DICT, DOUBLED, STRINGS, torchscript

pytestmark = pytest.mark.ours
BUILD = (
    'import {{ buildShim, locateTorch }} from "./ffi/pytorch/mod.ts"; '
    'await buildShim(locateTorch("{library}"), "{cache}");'
)
ROW = ("FP32", [4])
PAIR_OUT = [("OUTPUT__0", *ROW), ("OUTPUT__1", *ROW)]
PARAMETERS = "".join(
    f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
    for key, value in {
        "INFERENCE_MODE": "false",
        "DISABLE_OPTIMIZED_EXECUTION": "true",
        "ENABLE_JIT_PROFILING": "true",
        "ENABLE_TENSOR_FUSER": "false",
        "INTRA_OP_THREAD_COUNT": "1",
    }.items()
)
MODELS = {
    "numbered": (ADD_SUB, [("INPUT__0", *ROW), ("INPUT__1", *ROW)], PAIR_OUT, ""),
    "argument_names": (ADD_SUB, [("y", *ROW), ("x", *ROW)], PAIR_OUT, PARAMETERS),
    "doubled": (DOUBLED, [("x", *ROW)], [("out", *ROW)], "dynamic_batching { }"),
    "dictionary": (DICT, [("a", *ROW), ("b", *ROW)], [("sum", *ROW)], ""),
    "strings": (STRINGS, [("texts__0", "BYTES", [-1])], [("texts__0", "BYTES", [-1])], ""),
}
BROKEN = {
    "wrong_input": (ADD_SUB, [("x", *ROW), ("z", *ROW)], PAIR_OUT, "unexpected inference input 'z'"),
    "too_few": (ADD_SUB, [("x", *ROW)], PAIR_OUT, "lists no input for argument 'y' of forward"),
    "unplaced_output": (ADD_SUB, [("x", *ROW), ("y", *ROW)], [("sum", *ROW)], "name it OUTPUT__<index>"),
    "a_pickle": (pickle.dumps({"weights": [1, 2]}), [("x", *ROW)], PAIR_OUT, "a pickle of weights or of a module"),
    "no_outputs": (ADD_SUB, [("x", *ROW), ("y", *ROW)], [], "must list its outputs"),
}


def add_model(repository, name, source, inputs, outputs, extra="", batch=8):
    content = source if isinstance(source, bytes) else torchscript(source)
    (repository.directory(name, 1) / "model.pt").write_bytes(content)
    sections = tensor_section("input", inputs) + (tensor_section("output", outputs) if outputs else "")
    size = 0 if name == "strings" else batch
    repository.config(name, f'platform: "pytorch_libtorch"\nmax_batch_size: {size}\n{sections}{extra}')


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    try:
        library = library_path("torch")
    except Unavailable as reason:
        pytest.skip(str(reason))
    repository = Repository(tmp_path_factory.mktemp("pytorch"))
    for name, (source, inputs, outputs, extra) in MODELS.items():
        add_model(repository, name, source, inputs, outputs, extra)
    for name, (source, inputs, outputs, _) in BROKEN.items():
        add_model(repository, name, source, inputs, outputs)
    cache = PROJECT / ".cache" / "frameworks"
    # A minute and more on a busy machine, once: longer than a server may take to start in tests.
    build = [deno(), "eval", BUILD.format(library=str(library), cache=str(cache))]
    built = subprocess.run(build, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr[-2000:]
    flags = [f"--backend-config=pytorch,library={library}", f"--backend-config=pytorch,cache={cache}"]
    flags += ["--exit-on-error=false", "--strict-readiness=false"]
    with ServerProcess(repository.root, *flags) as process:
        yield process
        assert process.alive(), process.log()[-4000:]


@pytest.fixture(params=["http", "grpc"])
def protocol(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


X = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=np.float32)
Y = np.array([[10, 20, 30, 40], [1, 1, 1, 1]], dtype=np.float32)


@pytest.mark.parametrize("model,names", [("numbered", ("INPUT__0", "INPUT__1")), ("argument_names", ("x", "y"))])
def test_arguments_by_number_and_by_name(protocol, model, names):
    result = protocol.client.infer(model, [protocol.input(names[0], X), protocol.input(names[1], Y)])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT__0"), X + Y)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT__1"), X - Y)


def test_a_model_that_writes_on_its_argument(protocol):
    for _ in range(3):
        result = protocol.client.infer("doubled", [protocol.input("x", X)])
        np.testing.assert_array_equal(result.as_numpy("out"), 2 * X)


def test_dictionaries_in_and_out(protocol):
    result = protocol.client.infer("dictionary", [protocol.input("a", X), protocol.input("b", Y)])
    np.testing.assert_array_equal(result.as_numpy("sum"), X + Y)


def test_strings_pass(protocol):
    texts = text_array([b"plain", b"", "schön €".encode(), b"a\x00b"])
    result = protocol.client.infer("strings", [protocol.input("texts__0", texts)])
    assert list(result.as_numpy("texts__0")) == list(texts)


@pytest.mark.parametrize("model", list(BROKEN))
def test_a_broken_model_tells_what_is_wrong(server, model):
    index = json.loads(call(server, "POST", "/v2/repository/index").body)
    entry = next(each for each in index if each["name"] == model)
    assert entry["state"] == "UNAVAILABLE" and BROKEN[model][3] in entry["reason"], entry


def test_wrong_datatypes_are_refused(protocol):
    with pytest.raises(InferenceServerException, match="x"):
        protocol.client.infer("doubled", [protocol.input("x", X.astype(np.int32))])
