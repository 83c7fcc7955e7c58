"""All frameworks in one process: each opened when a model asks for it, right answers side by side, a clean end."""

import json
import os
import random
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.frameworks import Unavailable, library_path
from nereid_testing.onnx_models import add_sub
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.python_models import ADD_SUB as PYTHON_ADD_SUB
from nereid_testing.python_models import add_python
from nereid_testing.raw_http import call, post_json
from nereid_testing.repository import Repository, tensor_section
from nereid_testing.server import PROJECT, ServerProcess, deno
from nereid_testing.tensorrt import build_stand_ins, identity_plan, write_plan
from nereid_testing.torchscript import ADD_SUB as TORCH_ADD_SUB
from nereid_testing.torchscript import torchscript

# The first test may wait for libraries that are fetched and compiled.
pytestmark = [pytest.mark.ours, pytest.mark.timeout(600)]

CACHE = PROJECT / ".cache" / "frameworks"
ON_CPU = "instance_group [ { kind: KIND_CPU count: 2 } ]\n"
ON_GPU = "instance_group [ { kind: KIND_GPU } ]\n"
SAMPLES = 43844
SOUND_INPUT = "serving_default_input_2:0"
# Contour, note, onset of a tone of 440 Hz, computed by TensorFlow (real-models.md §3.7).
SUMS = [4572.69, 1597.10, 1453.33]
ONNX_NAMES = (SOUND_INPUT, [f"StatefulPartitionedCall:{index}" for index in (0, 1, 2)])
SAVED_MODEL_NAMES = ("input_2", ["contour", "note", "onset"])
# Where the library of a framework is seen in the process; the others have none of their own in it.
MARKS = {
    "onnxruntime": "libonnxruntime",
    "openvino": "libopenvino_c",
    "tensorflow": "libtensorflow_cc",
    "pytorch": "libtorch_cpu",
    "tensorrt": "libnvinfer",
}


def tone():
    seconds = np.arange(SAMPLES) / 22050
    return (0.5 * np.sin(2 * np.pi * 440 * seconds)).astype(np.float32).reshape(1, SAMPLES, 1)


TONE = tone()


@dataclass
class Party:
    """One framework with its models: names to functions that send a request and check its answer."""

    models: dict
    flags: list = field(default_factory=list)
    variables: dict = field(default_factory=dict)
    prepare: object = None


def pitch(model, names):
    source, targets = names

    def check(protocol, _number):
        result = protocol.infer(model, {source: TONE})
        for target, total in zip(targets, SUMS):
            assert abs(float(result.as_numpy(target).sum()) - total) < 0.1, (model, target)

    return check


def pair(model, inputs, outputs):
    def check(protocol, number):
        left = np.float32([[number, 2, 3, 4]])
        right = np.float32([[10, 20, 30, number]])
        result = protocol.infer(model, dict(zip(inputs, (left, right))))
        np.testing.assert_array_equal(result.as_numpy(outputs[0]), left + right)
        np.testing.assert_array_equal(result.as_numpy(outputs[1]), left - right)

    return check


def same(model):
    def check(protocol, number):
        given = np.float32([[number, -1, 2.5, 0], [3, 2, 1, number]])
        np.testing.assert_array_equal(protocol.infer(model, {"INPUT0": given}).as_numpy("OUTPUT0"), given)

    return check


ONNX_PAIR = (("INPUT0", "INPUT1"), ("OUTPUT0", "OUTPUT1"))


def onnxruntime(repository, _scratch):
    nmp = library_path("basic_pitch")
    shutil.copy(nmp, repository.directory("onnx_pitch", 1) / "model.onnx")
    repository.config("onnx_pitch", 'backend: "onnxruntime"\n' + ON_CPU)
    return Party({"onnx_pitch": pitch("onnx_pitch", ONNX_NAMES)})


def openvino(repository, _scratch):
    library = library_path("openvino")
    shutil.copy(library_path("basic_pitch"), repository.directory("openvino_pitch", 1) / "model.onnx")
    repository.config("openvino_pitch", 'backend: "openvino"\n' + ON_CPU)
    return Party(
        {"openvino_pitch": pitch("openvino_pitch", ONNX_NAMES)}, [f"--backend-config=openvino,library={library}"]
    )


def tensorflow(repository, _scratch):
    library = library_path("tensorflow")
    folder = library_path("basic_pitch").with_suffix("")
    shutil.copytree(folder, repository.directory("tensorflow_pitch", 1) / "model.savedmodel")
    return Party(
        {"tensorflow_pitch": pitch("tensorflow_pitch", SAVED_MODEL_NAMES)},
        [f"--backend-config=tensorflow,library={library}"],
    )


def pytorch(repository, _scratch):
    library = library_path("torch")
    (repository.directory("torch_pair", 1) / "model.pt").write_bytes(torchscript(TORCH_ADD_SUB))
    sections = tensor_section("input", [("x", "FP32", [4]), ("y", "FP32", [4])])
    sections += tensor_section("output", [("OUTPUT__0", "FP32", [4]), ("OUTPUT__1", "FP32", [4])])
    repository.config("torch_pair", f'platform: "pytorch_libtorch"\nmax_batch_size: 8\n{sections}{ON_CPU}')
    return Party(
        {"torch_pair": pair("torch_pair", ("x", "y"), ("OUTPUT__0", "OUTPUT__1"))},
        [f"--backend-config=pytorch,library={library}", f"--backend-config=pytorch,cache={CACHE}"],
    )


def tensorrt(repository, scratch):
    folder, reason = build_stand_ins(scratch / "stand_ins")
    if folder is None:
        raise Unavailable(reason)
    write_plan(repository, "plan", identity_plan())
    report = scratch / "report"
    return Party({"plan": same("plan")}, [], {"LD_LIBRARY_PATH": str(folder), "STAND_IN_REPORT": str(report)})


def onnxruntime_web(repository, _scratch):
    on_cpu = "instance_group [ { kind: KIND_CPU } ]\n"
    repository.onnx("web_pair", add_sub("FP32", [1, 4]), 'backend: "onnxruntime_web"\n' + on_cpu)
    return Party({"web_pair": pair("web_pair", *ONNX_PAIR)})


def python(repository, _scratch):
    inputs = [("A", "FP32", [4]), ("B", "FP32", [4])]
    outputs = [("SUM", "FP32", [4]), ("DIFFERENCE", "FP32", [4])]
    add_python(repository, "python_pair", PYTHON_ADD_SUB, inputs=inputs, outputs=outputs, max_batch_size=8)
    return Party({"python_pair": pair("python_pair", ("A", "B"), ("SUM", "DIFFERENCE"))})


def webgpu(repository, _scratch):
    """WebGPU in the native library and by navigator.gpu, on a Vulkan driver that runs on the CPU."""
    program = PROJECT / "tests" / "native" / "webgpu" / "software_vulkan.ts"
    found = subprocess.run([deno(), "run", "-A", str(program)], capture_output=True, text=True, timeout=200)
    if found.returncode:
        raise Unavailable(found.stderr)
    for name, backend in {"webgpu_pair": "onnxruntime", "navigator_pair": "onnxruntime_web"}.items():
        repository.onnx(name, add_sub("FP32", [1, 4]), f'backend: "{backend}"\n{ON_GPU}')
    models = {name: pair(name, *ONNX_PAIR) for name in ("webgpu_pair", "navigator_pair")}
    return Party(models, ["--backend-config=onnxruntime,webgpu-software=true"], json.loads(found.stdout))


MAKERS = [onnxruntime, openvino, tensorflow, pytorch, tensorrt, onnxruntime_web, python, webgpu]


@dataclass
class Everyone:
    """The server and who takes part; `missing` tells why the others do not."""

    server: ServerProcess
    parties: dict
    missing: dict

    def models(self):
        return {name: check for party in self.parties.values() for name, check in party.models.items()}


def gather(scratch, makers):
    repository = Repository(scratch / "repository")
    parties, missing = {}, {}
    for make in makers:
        try:
            parties[make.__name__] = make(repository, scratch)
        except Unavailable as reason:
            missing[make.__name__] = str(reason)
    return repository, parties, missing


def start_words(parties):
    """Flags of all, and words in front of the command that set all their variables."""
    flags = [flag for party in parties.values() for flag in party.flags]
    variables = {}
    for party in parties.values():
        for name, value in party.variables.items():
            variables[name] = f"{variables[name]}:{value}" if name in variables else value
    return flags, ("env", *(f"{name}={value}" for name, value in variables.items()))


@pytest.fixture(scope="module")
def everyone(tmp_path_factory):
    repository, parties, missing = gather(tmp_path_factory.mktemp("together"), MAKERS)
    flags, prefix = start_words(parties)
    with ServerProcess(repository.root, "--model-control-mode=explicit", *flags, prefix=prefix) as server:
        yield Everyone(server, parties, missing)


def mapped_libraries(server):
    """Names of the frameworks whose library is in the process."""
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    files = {os.path.basename(line.split(maxsplit=5)[5]) for line in maps.splitlines() if "/" in line}
    return {name for name, mark in MARKS.items() if any(mark in file for file in files)}


def load(server, model, timeout=300):
    # The first load of TorchScript compiles a library where it is not kept.
    answer = call(server, "POST", f"/v2/repository/models/{model}/load", timeout=timeout)
    assert answer.status == 200, (model, answer.body, server.log()[-3000:])


@pytest.mark.parametrize("framework", [make.__name__ for make in MAKERS])
def test_a_library_is_opened_when_a_model_asks_for_it(everyone, framework):
    """Tests run in this order: each model is loaded here, before the tests below use it."""
    if framework in everyone.missing:
        pytest.skip(everyone.missing[framework])
    server = everyone.server
    before = mapped_libraries(server)
    if framework in MARKS:
        assert framework not in before
    for model, check in everyone.parties[framework].models.items():
        load(server, model)
        protocol = PROTOCOLS["http"](server)
        check(protocol, 1)
        protocol.close()
    added = mapped_libraries(server) - before
    if framework == "webgpu":
        assert added <= {"onnxruntime"}
    else:
        assert added == ({framework} & set(MARKS))


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_all_answer_one_after_the_other(everyone, name):
    protocol = PROTOCOLS[name](everyone.server)
    models = everyone.models()
    order = sorted(models) * 4
    random.Random(name).shuffle(order)
    for number, model in enumerate(order):
        models[model](protocol, number)
    protocol.close()


def run_at_once(everyone, rounds):
    """Failures of all models under requests over both protocols at once."""
    failures = []

    def work(model, check, name):
        protocol = PROTOCOLS[name](everyone.server)
        try:
            for number in range(rounds):
                check(protocol, number)
        except (AssertionError, InferenceServerException) as error:
            failures.append((model, name, str(error)[:500]))
        finally:
            protocol.close()

    threads = [
        threading.Thread(target=work, args=(model, check, name))
        for model, check in everyone.models().items()
        for name in ("http", "grpc")
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert not any(each.is_alive() for each in threads)
    return failures


def test_all_answer_at_once(everyone):
    assert run_at_once(everyone, 6) == []


def test_models_come_and_go_under_load(everyone):
    """Every model of a native library is unloaded and loaded again while the others answer."""
    server = everyone.server
    models = everyone.models()
    stop = threading.Event()
    failures = []

    def ask(model, check):
        protocol = PROTOCOLS["grpc"](server)
        number = 0
        while not stop.is_set():
            number += 1
            try:
                check(protocol, number)
            except InferenceServerException as error:
                # It is being unloaded.
                if "not found" not in str(error) and "not ready" not in str(error) and "no available" not in str(error):
                    failures.append((model, str(error)))
            except AssertionError as error:
                failures.append((model, str(error)[:500]))
            # A processor that is busy with answers would make the loads slow.
            time.sleep(0.2)
        protocol.close()

    threads = [threading.Thread(target=ask, args=each) for each in models.items()]
    for each in threads:
        each.start()
    try:
        for model in models:
            # Each of these compiles a runtime of its own, which takes long beside all the others.
            if model in ("web_pair", "navigator_pair"):
                continue
            assert post_json(server, f"/v2/repository/models/{model}/unload", {}).status == 200
            load(server, model)
    finally:
        stop.set()
        for each in threads:
            each.join(60)
    assert failures == [] and not any(each.is_alive() for each in threads)
    assert run_at_once(everyone, 2) == []


def test_the_process_ends_cleanly_after_all_of_them(everyone):
    server = everyone.server
    assert mapped_libraries(server) == set(MARKS) - set(everyone.missing)
    assert server.stop() == 0, server.log()[-4000:]
    for word in ("free():", "malloc", "corrupt", "terminate called", "panicked", "uncaught error"):
        assert word not in server.log(), server.log()[-4000:]


def test_a_process_that_ends_at_once_after_its_first_answers_ends_cleanly(tmp_path_factory):
    """Threads that the libraries started a moment ago are still on their way."""
    repository, parties, _ = gather(tmp_path_factory.mktemp("short"), [tensorflow, pytorch, webgpu])
    flags, prefix = start_words(parties)
    with ServerProcess(repository.root, "--model-control-mode=explicit", *flags, prefix=prefix) as server:
        everyone = Everyone(server, parties, {})
        for model in everyone.models():
            load(server, model)
        assert run_at_once(everyone, 1) == []
        assert server.stop() == 0, server.log()[-4000:]
