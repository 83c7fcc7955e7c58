"""CUDA shared memory by IPC handle: the same tests on a real GPU, and on a stand-in with the same ABI."""

import base64
import ctypes
import queue
import re
import time
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.cuda import DeviceMemory, build_stand_in, has_compiler, real_runtime
from nereid_testing.protocols import PROTOCOLS, text_array
from nereid_testing.raw_http import call, post_json
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours
FLOATS = np.arange(16, dtype=np.float32)


def write_repository(root):
    repository = Repository(root)
    repository.echo("echo", "FP32", [-1])
    repository.echo("text", "BYTES", [-1])
    repository.echo("slow", "FP32", [-1], parameters={"execute_delay_ms": 500})
    return root


@pytest.fixture(scope="module", params=["stand-in", "GPU"])
def cuda(request, tmp_path_factory):
    """(runtime library, server) of each kind."""
    root = write_repository(tmp_path_factory.mktemp("cuda") / "repository")
    prefix = ()
    if request.param == "GPU":
        library, reason = real_runtime()
        if library is None:
            pytest.skip(reason)
    else:
        if not has_compiler():
            pytest.skip("no C compiler (cc) to build the stand-in for CUDA")
        folder = tmp_path_factory.mktemp("lib")
        library = ctypes.CDLL(str(build_stand_in(folder)))
        prefix = ("env", f"LD_LIBRARY_PATH={folder}")
    with ServerProcess(root, "--allow-client-shm=true", prefix=prefix) as server:
        yield library, server
        assert server.alive(), server.log()[-4000:]


@pytest.fixture(params=["http", "grpc"])
def protocol(request, cuda):
    each = PROTOCOLS[request.param](cuda[1])
    yield each
    each.client.unregister_cuda_shared_memory()
    each.close()


@pytest.fixture
def allocate(cuda):
    blocks = []

    def begin(byte_size, device=0):
        blocks.append(DeviceMemory(cuda[0], byte_size, device))
        return blocks[-1]

    yield begin
    for block in blocks:
        block.free()


def register(protocol, name, block, byte_size=None, device=None):
    raw = base64.b64encode(block.handle())
    size = block.byte_size if byte_size is None else byte_size
    protocol.client.register_cuda_shared_memory(name, raw, block.device if device is None else device, size)


def shared_input(protocol, name, shape, datatype, region, byte_size, offset=0):
    tensor = protocol.module.InferInput(name, shape, datatype)
    tensor.set_shared_memory(region, byte_size, offset)
    return tensor


def shared_output(protocol, name, region, byte_size, offset=0):
    tensor = protocol.module.InferRequestedOutput(name)
    tensor.set_shared_memory(region, byte_size, offset)
    return tensor


def test_tensors_in_device_memory(protocol, allocate):
    source, target = allocate(256), allocate(256)
    register(protocol, "source", source)
    register(protocol, "target", target)
    for turn in range(3):
        source.write(FLOATS + turn, 64)
        inputs = [shared_input(protocol, "IN", [16], "FP32", "source", 64, 64)]
        outputs = [shared_output(protocol, "OUT", "target", 64, 128)]
        result = protocol.client.infer("echo", inputs, outputs=outputs)
        assert result.get_output("OUT") is not None
        assert (target.read(np.float32, 16, 128) == FLOATS + turn).all()
        plain = protocol.client.infer("echo", inputs)
        assert (plain.as_numpy("OUT") == FLOATS + turn).all()


def test_text_in_device_memory(protocol, allocate):
    from tritonclient.utils import serialize_byte_tensor

    packed = serialize_byte_tensor(text_array(["one", "zwei"])).item()
    block = allocate(64)
    block.write(np.frombuffer(packed, np.uint8))
    register(protocol, "text", block)
    inputs = [shared_input(protocol, "IN", [2], "BYTES", "text", len(packed))]
    assert protocol.client.infer("text", inputs).as_numpy("OUT").tolist() == [b"one", b"zwei"]


def test_status(protocol, allocate):
    block = allocate(128)
    register(protocol, "a", block)
    register(protocol, "b", block, 64)
    if protocol.name == "http":
        got = protocol.client.get_cuda_shared_memory_status()
        assert got == [{"name": "a", "device_id": 0, "byte_size": 128}, {"name": "b", "device_id": 0, "byte_size": 64}]
        assert protocol.client.get_cuda_shared_memory_status("b") == got[1:]
    else:
        got = protocol.client.get_cuda_shared_memory_status(as_json=True)["regions"]
        assert {name: int(each["byte_size"]) for name, each in got.items()} == {"a": 128, "b": 64}
    with pytest.raises(InferenceServerException, match="registered as CUDA shared memory, not system shared memory"):
        protocol.client.get_system_shared_memory_status("a")
    with pytest.raises(InferenceServerException, match="shared memory region 'a' already in manager"):
        protocol.client.register_system_shared_memory("a", "/whatever", 64)
    protocol.client.unregister_cuda_shared_memory("a")
    with pytest.raises(InferenceServerException, match="Unable to find cuda shared memory region: 'a'"):
        protocol.client.get_cuda_shared_memory_status("a")


def test_refusals(protocol, allocate):
    block = allocate(64)
    with pytest.raises(InferenceServerException, match=r"region: 'r', invalid args \(its allocation has \d+ bytes"):
        register(protocol, "r", block, 1 << 30)
    with pytest.raises(InferenceServerException, match="region: 'r', there is no device 99"):
        register(protocol, "r", block, device=99)
    bad = bytes(64)
    raw = base64.b64encode(bad)
    with pytest.raises(InferenceServerException, match="region: 'r', cudaIpcOpenMemHandle failed with cudaError"):
        protocol.client.register_cuda_shared_memory("r", raw, 0, 64)
    short = base64.b64encode(bad[1:])
    with pytest.raises(InferenceServerException, match="raw.handle"):
        protocol.client.register_cuda_shared_memory("r", short, 0, 64)
    register(protocol, "r", block)
    inputs = [shared_input(protocol, "IN", [16], "FP32", "r", 64, 4)]
    with pytest.raises(InferenceServerException, match=r"Invalid offset \+ byte size for shared memory region: 'r'"):
        protocol.client.infer("echo", inputs)
    outputs = [shared_output(protocol, "OUT", "r", 60)]
    good = [shared_input(protocol, "IN", [16], "FP32", "r", 64)]
    with pytest.raises(InferenceServerException, match=r"\(60 bytes\) should be at least 64 bytes"):
        protocol.client.infer("echo", good, outputs=outputs)


def test_second_device(protocol, cuda, allocate):
    count = ctypes.c_int()
    cuda[0].cudaGetDeviceCount(ctypes.byref(count))
    if count.value < 2:
        pytest.skip(f"one GPU only ({count.value})")
    first, second = allocate(64, 0), allocate(64, 1)
    register(protocol, "first", first)
    register(protocol, "second", second)
    cuda[0].cudaSetDevice(0)
    first.write(FLOATS)
    inputs = [shared_input(protocol, "IN", [16], "FP32", "first", 64)]
    protocol.client.infer("echo", inputs, outputs=[shared_output(protocol, "OUT", "second", 64)])
    cuda[0].cudaSetDevice(1)
    assert (second.read(np.float32, 16) == FLOATS).all()


def open_objects(server):
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    return len(re.findall(r"/dev/shm/cuda_stand_in_", maps))


def test_unregister_while_it_is_used(cuda, allocate, protocol):
    library, server = cuda
    block = allocate(128)
    block.write(FLOATS)
    register(protocol, "r", block)
    inputs = [shared_input(protocol, "IN", [16], "FP32", "r", 64)]
    outputs = [shared_output(protocol, "OUT", "r", 64, 64)]
    if protocol.name == "http":
        running = protocol.client.async_infer("slow", inputs, outputs=outputs)
        finish = running.get_result
    else:
        answers = queue.Queue()
        protocol.client.async_infer("slow", inputs, lambda result, error: answers.put(error), outputs=outputs)
        finish = lambda: answers.get(timeout=10)  # noqa: E731
    time.sleep(0.15)
    assert call(server, "POST", "/v2/cudasharedmemory/region/r/unregister").status == 200
    assert not finish() or protocol.name == "http"
    assert (block.read(np.float32, 16, 64) == FLOATS).all()
    assert open_objects(server) == 0


def test_without_gpu(tmp_path):
    """A server that finds no CUDA says so, as the reference built without it."""
    library, _ = real_runtime()
    if library is not None:
        pytest.skip("this machine has a GPU")
    with ServerProcess(write_repository(tmp_path / "repository"), "--allow-client-shm=true") as server:
        body = {"raw_handle": {"b64": base64.b64encode(bytes(64)).decode()}, "device_id": 0, "byte_size": 64}
        answer = post_json(server, "/v2/cudasharedmemory/region/r/register", body)
        assert answer.status == 400
        assert answer.error() == "failed to register CUDA shared memory region: 'r', GPUs not supported"
