"""TorchScript models and AOTInductor packages on the real libtorch, through tritonclient, next to PyTorch's own answers."""

import json
import pickle
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.frameworks import Unavailable, library_path
from nereid_testing.observe import pending, wait_until
from nereid_testing.protocols import PROTOCOLS, text_array
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository, parameters_section, tensor_section
from nereid_testing.server import PROJECT, ServerProcess, deno
from nereid_testing.torch_models import FRAMES, torch_models
from nereid_testing.torchscript import ADD_SUB, DICT, DOUBLED, STRINGS, torchscript

# The first test waits for what is fetched and compiled.
pytestmark = [pytest.mark.ours, pytest.mark.timeout(1000)]
CACHE = PROJECT / ".cache" / "frameworks"
BUILD = (
    'import {{ buildShim, locateTorch }} from "./ffi/pytorch/mod.ts"; '
    'await buildShim(locateTorch("{library}"), "{cache}");'
)
ROW = ("FP32", [4])
PAIR_IN = [("x", *ROW), ("y", *ROW)]
PAIR_OUT = [("OUTPUT__0", *ROW), ("OUTPUT__1", *ROW)]
PARAMETERS = parameters_section(
    {
        "INFERENCE_MODE": "false",
        "DISABLE_OPTIMIZED_EXECUTION": "true",
        "DISABLE_CUDNN": "true",
        "ENABLE_JIT_PROFILING": "true",
        "ENABLE_TENSOR_FUSER": "false",
        "ENABLE_CACHE_CLEANING": "true",
        "ENABLE_WEIGHT_SHARING": "true",
        "INTRA_OP_THREAD_COUNT": "1",
    }
)
SCRIPTS = {
    "numbered": (ADD_SUB, [("INPUT__0", *ROW), ("INPUT__1", *ROW)], PAIR_OUT, ""),
    "argument_names": (ADD_SUB, [("y", *ROW), ("x", *ROW)], PAIR_OUT, PARAMETERS + "instance_group [ { count: 2 } ]"),
    "in_order": (ADD_SUB, [("first", *ROW), ("second", *ROW)], [("sum", *ROW), ("rest", *ROW)], ""),
    "doubled": (DOUBLED, [("x", *ROW)], [("out", *ROW)], "dynamic_batching { }"),
    "dictionary": (DICT, [("a", *ROW), ("b", *ROW)], [("sum", *ROW)], ""),
    "strings": (STRINGS, [("texts__0", "BYTES", [-1])], [("texts__0", "BYTES", [-1])], ""),
}
ACCUMULATED = """
def forward(self: __torch__.M, x: Tensor, start: Tensor, state: Tensor) -> Tuple[Tensor, Tensor]:
  sum = torch.add(torch.mul(state, torch.sub(1, start)), x)
  return (torch.mul(sum, 10), sum)
"""
SEQUENCE = """
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  oldest { max_candidate_sequences: 4 }
  control_input [ { name: "START__1" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ]
  state [ { input_name: "STATE__2" output_name: "STATE__1" data_type: TYPE_FP32 dims: [ 1 ] } ]
}
"""
SCRIPTS["accumulated"] = (ACCUMULATED, [("INPUT__0", "FP32", [1])], [("OUTPUT__0", "FP32", [1])], SEQUENCE)
BROKEN = {
    "too_few": (ADD_SUB, [("x", *ROW)], PAIR_OUT, "configuration expects 1 inputs, model provides 2"),
    "beyond": (ADD_SUB, PAIR_IN, [("OUTPUT__2", *ROW)], "number 2 of what forward returns"),
    "a_pickle": (pickle.dumps({"weights": [1, 2]}), [("x", *ROW)], PAIR_OUT, "a pickle of weights or of a module"),
    "truncated": (torchscript(ADD_SUB)[:300], PAIR_IN, PAIR_OUT, "failed to load model 'truncated'"),
    "no_outputs": (ADD_SUB, PAIR_IN, [], "must contain at least one output"),
    "unsigned": (ADD_SUB, [("x", *ROW), ("y", "UINT32", [4])], PAIR_OUT, "unsupported datatype TYPE_UINT32 for input 'y'"),
}
# Saved by PyTorch, but no TorchScript.
PICKLES = {"weights": "a pickle of weights or of a module", "module": "a pickle of weights or of a module"}
BROKEN_PACKAGES = {
    "net_truncated": "a package (model.pt2) is made by torch._inductor.aoti_compile_and_package",
    "net_unnamed": "unexpected inference input 'x', allowed inputs are: ARGS[0] (INPUT__0)",
}

SILERO_STATE = """
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  direct { }
  state [ {
    input_name: "STATE__1" output_name: "STATE__1" data_type: TYPE_FP32 dims: [ 2, 1, 128 ]
    initial_state [ { name: "zero" data_type: TYPE_FP32 dims: [ 2, 1, 128 ] zero_data: true } ]
  } ]
}
instance_group [ { count: 2 } ]
"""
NET_NAMES = {
    "net_numbers": ["INPUT__0", "INPUT__1", "INPUT__2", "INPUT__3", "OUTPUT__0", "OUTPUT__1", "OUTPUT__2"],
    "net_places": [
        *["ARGS[0]", "ARGS[1][a]", "ARGS[1][b]", "KWARGS[scale]"],
        *["RESULT[mixed]", "RESULT[rest][0]", "RESULT[rest][1]"],
    ],
}


def add_script(repository, name, source, inputs, outputs, extra="", batch=8):
    content = source if isinstance(source, bytes) else torchscript(source)
    (repository.directory(name, 1) / "model.pt").write_bytes(content)
    sections = tensor_section("input", inputs) + (tensor_section("output", outputs) if outputs else "")
    size = 0 if name == "strings" else batch
    repository.config(name, f'platform: "pytorch_libtorch"\nmax_batch_size: {size}\n{sections}{extra}')


def add_real_scripts(repository, made):
    frame = ("INPUT__0", "FP32", [1, 576])
    answer = ("OUTPUT__0", "FP32", [1, 1])
    state = ("STATE__1", "FP32", [2, 1, 128])
    silero = (made / "silero.pt").read_bytes()
    add_script(repository, "silero_stream", silero, [frame], [answer], SILERO_STATE, batch=0)
    add_script(repository, "silero_plain", silero, [frame, state], [answer, state], batch=0)
    add_script(repository, "picky", (made / "picky.pt").read_bytes(), [("x", "FP32", [2])], [("OUTPUT__0", "FP32", [2])])
    for name in PICKLES:
        add_script(repository, name, (made / f"{name}.pt").read_bytes(), PAIR_IN, PAIR_OUT)


def add_package(repository, name, content, tensors, columns=4, extra=""):
    (repository.directory(name, 1) / "model.pt2").write_bytes(content)
    rows = [(each, "FP32", [columns]) for each in tensors]
    sections = tensor_section("input", rows[:4]) + tensor_section("output", rows[4:])
    repository.config(name, f'platform: "torch_aoti"\nmax_batch_size: 8\n{sections}dynamic_batching {{ }}\n{extra}')


def serve(repository):
    library = library_path("torch")
    flags = [f"--backend-config=pytorch,library={library}", f"--backend-config=pytorch,cache={CACHE}"]
    return ServerProcess(repository.root, *flags, "--exit-on-error=false", "--strict-readiness=false")


def models_of(kind):
    try:
        return torch_models(kind)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def shim():
    """Compiled before a server needs it: it takes half a minute, more on a busy machine."""
    try:
        library = library_path("torch")
    except Unavailable as reason:
        pytest.skip(str(reason))
    build = [deno(), "eval", BUILD.format(library=library, cache=CACHE)]
    built = subprocess.run(build, cwd=PROJECT, capture_output=True, text=True, timeout=400)
    assert built.returncode == 0, built.stderr[-2000:]


@pytest.fixture(scope="module")
def made(shim):
    return models_of("scripts")


@pytest.fixture(scope="module")
def server(made, tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("pytorch"))
    for name, (source, inputs, outputs, extra) in SCRIPTS.items():
        add_script(repository, name, source, inputs, outputs, extra)
    for name, (source, inputs, outputs, _) in BROKEN.items():
        add_script(repository, name, source, inputs, outputs)
    add_real_scripts(repository, made)
    with serve(repository) as process:
        yield process
        assert process.alive(), process.log()[-4000:]


@pytest.fixture(params=["http", "grpc"])
def protocol(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


@pytest.fixture(scope="module")
def packed(shim):
    return models_of("package")


@pytest.fixture(scope="module")
def package_server(packed, tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("packages"))
    content = (packed / "net.pt2").read_bytes()
    shared = "instance_group [ { count: 2 } ]\n" + parameters_section({"ENABLE_WEIGHT_SHARING": "true"})
    for name, tensors in NET_NAMES.items():
        add_package(repository, name, content, tensors, extra=shared if name == "net_numbers" else "")
    # It takes four columns, and would read behind the end of three.
    add_package(repository, "net_narrow", content, NET_NAMES["net_places"], columns=3)
    add_package(repository, "net_truncated", content[:5000], NET_NAMES["net_places"])
    add_package(repository, "net_unnamed", content, ["x", *NET_NAMES["net_places"][1:]])
    with serve(repository) as process:
        yield process
        assert process.alive(), process.log()[-4000:]


@pytest.fixture(params=["http", "grpc"])
def package_protocol(request, package_server):
    each = PROTOCOLS[request.param](package_server)
    yield each
    each.close()


X = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=np.float32)
Y = np.array([[10, 20, 30, 40], [1, 1, 1, 1]], dtype=np.float32)


@pytest.mark.parametrize(
    "model,names",
    [
        ("numbered", ("INPUT__0", "INPUT__1", "OUTPUT__0", "OUTPUT__1")),
        ("argument_names", ("x", "y", "OUTPUT__0", "OUTPUT__1")),
        ("in_order", ("first", "second", "sum", "rest")),
    ],
)
def test_arguments_by_number_by_name_and_in_order(protocol, model, names):
    result = protocol.infer(model, {names[0]: X, names[1]: Y})
    np.testing.assert_array_equal(result.as_numpy(names[2]), X + Y)
    np.testing.assert_array_equal(result.as_numpy(names[3]), X - Y)


def test_a_model_that_writes_on_its_argument(protocol):
    for _ in range(3):
        np.testing.assert_array_equal(protocol.infer("doubled", {"x": X}).as_numpy("out"), 2 * X)


def test_dictionaries_in_and_out(protocol):
    np.testing.assert_array_equal(protocol.infer("dictionary", {"a": X, "b": Y}).as_numpy("sum"), X + Y)


def test_strings_pass(protocol):
    texts = text_array([b"plain", b"", "schön €".encode(), b"a\x00b"])
    assert list(protocol.infer("strings", {"texts__0": texts}).as_numpy("texts__0")) == list(texts)


def test_controls_and_states_of_sequences(protocol):
    sums = {11: 0, 12: 0, 13: 0}
    for index in range(4):
        for sequence in sums:
            value = np.array([[sequence + index]], np.float32)
            flags = {"sequence_start": index == 0, "sequence_end": index == 3}
            result = protocol.infer("accumulated", {"INPUT__0": value}, sequence_id=sequence, **flags)
            sums[sequence] += sequence + index
            assert result.as_numpy("OUTPUT__0").tolist() == [[10 * sums[sequence]]]


def test_a_real_model_gives_the_answers_of_its_framework(protocol, made):
    expected = np.load(made / "silero.npz")
    state = np.zeros((2, 1, 128), np.float32)
    for index in range(FRAMES):
        result = protocol.infer("silero_plain", {"INPUT__0": expected["frames"][index], "STATE__1": state})
        np.testing.assert_allclose(result.as_numpy("OUTPUT__0"), expected["answers"][index], atol=1e-6)
        state = result.as_numpy("STATE__1")
        np.testing.assert_allclose(state, expected["states"][index], atol=1e-5)
    # As ONNX Runtime answers for the same net (real-models.md §3.4).
    np.testing.assert_allclose(expected["answers"].ravel(), [0.023284, 0.019747, 0.018957, 0.010905], atol=2e-5)


def test_the_server_keeps_the_state_of_a_real_model_for_each_sequence(protocol, made):
    expected = np.load(made / "silero.npz")
    sequences = {1: [], 2: []}
    for index in range(FRAMES):
        for sequence, answers in sequences.items():
            result = protocol.infer(
                "silero_stream",
                {"INPUT__0": expected["frames"][index]},
                sequence_id=sequence,
                sequence_start=index == 0,
                sequence_end=index == FRAMES - 1,
            )
            answers.append(result.as_numpy("OUTPUT__0"))
    for answers in sequences.values():
        np.testing.assert_allclose(np.stack(answers), expected["answers"], atol=1e-6)


def test_a_failure_tells_the_line_of_the_user_s_source(protocol):
    ok = protocol.infer("picky", {"x": np.array([[4, 9]], np.float32)}).as_numpy("OUTPUT__0")
    np.testing.assert_array_equal(ok, [[2, 3]])
    with pytest.raises(InferenceServerException) as failure:
        protocol.infer("picky", {"x": np.array([[-1, 9]], np.float32)})
    text = failure.value.message()
    assert text.startswith("PyTorch execute failure: "), text
    assert "no negative numbers here" in text and "torch_models.py" in text, text
    assert 'raise ValueError("no negative numbers here")' in text, text


def assert_unavailable(server, model, expected):
    index = json.loads(call(server, "POST", "/v2/repository/index").body)
    entry = next(each for each in index if each["name"] == model)
    assert entry["state"] == "UNAVAILABLE" and expected in entry["reason"], entry


@pytest.mark.parametrize("model", [*BROKEN, *PICKLES])
def test_a_broken_model_tells_what_is_wrong(server, model):
    assert_unavailable(server, model, BROKEN[model][3] if model in BROKEN else PICKLES[model])


def test_wrong_datatypes_and_shapes_are_refused(protocol):
    with pytest.raises(InferenceServerException, match="x"):
        protocol.infer("doubled", {"x": X.astype(np.int32)})
    with pytest.raises(InferenceServerException, match="unexpected shape for input 'x'"):
        protocol.infer("doubled", {"x": X[:, :3].copy()})


def test_settings_are_told_in_the_log(server):
    log = server.log()
    for line in [
        "Optimized execution is disabled for model instance 'argument_names'",
        "Inference Mode is disabled for model instance 'argument_names'",
        "cuDNN is disabled for model instance 'argument_names'",
        "Intra op thread count is set to 1 for model instance 'argument_names'",
        "Reusing TorchScript model for instance 'argument_names_0_1'",
        "Falling back to enforcing strict ordering from model configuration.",
    ]:
        assert line in log, line


@pytest.mark.parametrize("model", list(NET_NAMES))
@pytest.mark.parametrize("rows", [1, 3])
def test_a_package_gives_the_answers_of_its_framework(package_protocol, packed, model, rows):
    expected = np.load(packed / "net.npz")
    names = NET_NAMES[model]
    arrays = {name: expected[f"{key}_{rows}"] for name, key in zip(names, ["x", "a", "b", "scale"])}
    result = package_protocol.infer(model, arrays)
    for name, key in zip(names[4:], ["mixed", "difference", "total"]):
        np.testing.assert_allclose(result.as_numpy(name), expected[f"{key}_{rows}"], atol=1e-6)


def test_requests_at_the_same_time_are_batched_and_answered_apart(package_server, packed):
    expected = np.load(packed / "net.npz")
    names = NET_NAMES["net_numbers"]
    arrays = {name: expected[f"{key}_1"] for name, key in zip(names, ["x", "a", "b", "scale"])}

    def ask(number):
        protocol = PROTOCOLS["grpc"](package_server)
        given = {**arrays, "INPUT__1": arrays["INPUT__1"] + np.float32(number)}
        answer = protocol.infer("net_numbers", given).as_numpy("OUTPUT__1")
        protocol.close()
        return answer

    with ThreadPoolExecutor(8) as pool:
        for number, answer in enumerate(pool.map(ask, range(24))):
            np.testing.assert_allclose(answer, expected["difference_1"] + number, atol=1e-5)
    assert wait_until(lambda: pending(package_server, "net_numbers") == 0)


def test_a_package_looks_at_the_shapes_that_it_gets(package_protocol):
    arrays = {name: np.ones((2, 3), np.float32) for name in NET_NAMES["net_places"][:4]}
    with pytest.raises(InferenceServerException, match="PyTorch execute failure: .*[Ee]xpected"):
        package_protocol.infer("net_narrow", arrays)


@pytest.mark.parametrize("model", list(BROKEN_PACKAGES))
def test_a_broken_package_tells_what_is_wrong(package_server, model):
    assert_unavailable(package_server, model, BROKEN_PACKAGES[model])
