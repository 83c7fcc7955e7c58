"""Instances in processes of their own (isolation=process): what a crash does, and what it leaves alone."""

import os
import re
import shutil
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import inflight
from nereid_testing.isolated import PROCESS, build_crashing_library, build_hanging_library, isolated_processes
from nereid_testing.observe import statistics, wait_until
from nereid_testing.onnx_models import add_sub, identity
from nereid_testing.protocols import PROTOCOLS, status_of
from nereid_testing.python_models import is_alive, named_shared_memory
from nereid_testing.raw_http import call, post_json
from nereid_testing.repository import Repository, tensor_section

pytestmark = pytest.mark.ours

# `NEREID_CRASHES=50` takes minutes on a busy machine.
CRASHES = int(os.environ.get("NEREID_CRASHES", "12"))
ONE = "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
ROWS = np.arange(8, dtype=np.float32).reshape(1, 8)
LARGE = np.random.default_rng(1).random((1, 150_528), dtype=np.float32)
DIED = "ended while it ran this request: it was ended by SIG"


def repository_in(tmp_path):
    repository = Repository(tmp_path / "repository")
    io = tensor_section("input", [("IN", "FP32", [-1])]) + tensor_section("output", [("OUT", "FP32", [-1])])
    batching = "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 3000000 }\n"
    model = identity("FP32", ["batch", "size"])
    repository.onnx("apart", model, f"max_batch_size: 8\n{io}{ONE}{PROCESS}")
    repository.onnx("batched", model, f"max_batch_size: 8\n{io}{ONE}{PROCESS}{batching}")
    # completed from the model
    repository.onnx("together", add_sub("FP32", ["batch", 8]), ONE)
    return repository


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from nereid_testing.server import ServerProcess

    repository = repository_in(tmp_path_factory.mktemp("isolation"))
    control = ("--model-control-mode=explicit", "--load-model=*")
    with ServerProcess(repository.root, *control) as server:
        yield server
        processes = isolated_processes(server)
        assert named_shared_memory([server.process.pid, *processes]) == set()
        for model in ("apart", "batched", "together"):
            assert wait_until(lambda: inflight(server, model) in (0, None), 10)  # noqa: B023
        server.stop()
        assert wait_until(lambda: not any(map(is_alive, processes)))


def load_anew(server, model):
    """What died in one test does not count in the next one."""
    before = isolated_processes(server)
    for operation in ("unload", "load"):
        assert post_json(server, f"/v2/repository/models/{model}/{operation}", {}).status == 200
    assert wait_until(lambda: len(isolated_processes(server)) == 2 and isolated_processes(server) != before, 20)


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def process_of(server, model):
    """The process of a model's only instance, as the log tells it."""
    pids = lambda: re.findall(rf"instance '{model}_0_0' has a process of its own, pid (\d+)", server.log())  # noqa: E731
    assert wait_until(lambda: pids() and is_alive(int(pids()[-1])), 20)
    return int(pids()[-1])


@pytest.mark.parametrize("rows", [ROWS, LARGE], ids=["small", "602 KB"])
def test_tensors_pass_both_ways(client, rows):
    for _ in range(5):
        assert np.array_equal(client.infer("apart", {"IN": rows}).as_numpy("OUT"), rows)


def test_requests_of_many_clients_are_batched(server):
    arrays = [np.full((1, 1000), i, np.float32) for i in range(64)]

    def ask(array):
        each = PROTOCOLS["grpc"](server)
        try:
            return each.infer("batched", {"IN": array}).as_numpy("OUT")
        finally:
            each.close()

    with ThreadPoolExecutor(16) as pool:
        for array, answer in zip(arrays, pool.map(ask, arrays)):
            assert np.array_equal(array, answer)
    sizes = {row["batch_size"] for row in statistics(server, "batched")["batch_stats"]}
    assert max(sizes) > 1


def crash_with_eight_in_flight(server, client_class, number):
    """Stops the process of `batched`, has it get a batch of eight, and ends it. Errors, and seconds until each."""
    pid = process_of(server, "batched")
    os.kill(pid, signal.SIGSTOP)
    killed = []

    def ask(_):
        each = client_class(server)
        try:
            each.infer("batched", {"IN": ROWS})
            return None, 0, each
        except InferenceServerException as error:
            return error, time.monotonic() - killed[0], each
        finally:
            each.close()

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, i) for i in range(8)]
        assert wait_until(lambda: inflight(server, "batched") == 8, 20)
        time.sleep(0.7)  # until the batch is sent, on a busy machine, too
        killed.append(time.monotonic())
        os.kill(pid, number)
        if number != signal.SIGKILL:
            os.kill(pid, signal.SIGCONT)
        return [each.result(timeout=60) for each in answers]


@pytest.mark.parametrize(
    ("protocol", "number"), [("http", signal.SIGSEGV), ("grpc", signal.SIGSEGV), ("http", signal.SIGKILL), ("grpc", signal.SIGABRT)]
)
def test_a_crash_fails_what_is_in_flight_and_nothing_else(server, protocol, number):
    stop = threading.Event()
    failures, count = [], [0]

    def keep_asking():
        each = PROTOCOLS["grpc"](server)
        while not stop.is_set():
            try:
                pair = {"INPUT0": ROWS, "INPUT1": ROWS}
                assert np.array_equal(each.infer("together", pair).as_numpy("OUTPUT0"), ROWS + ROWS)
                count[0] += 1
            except Exception as error:  # noqa: BLE001
                failures.append(error)
        each.close()

    other = threading.Thread(target=keep_asking)
    other.start()
    before = statistics(server, "batched")["inference_stats"]["fail"]["count"]
    try:
        answers = crash_with_eight_in_flight(server, PROTOCOLS[protocol], number)
    finally:
        stop.set()
        other.join()
    assert failures == [] and count[0] > 10
    for error, _, each in answers:
        assert error is not None and "the process of instance 'batched" in error.message() and DIED in error.message()
        assert status_of(error, each) == ("INTERNAL" if protocol == "grpc" else "500")
    assert statistics(server, "batched")["inference_stats"]["fail"]["count"] == before + 8
    # started again; the next request waits for that
    client = PROTOCOLS[protocol](server)
    eight = np.repeat(ROWS, 8, axis=0)
    assert np.array_equal(client.infer("batched", {"IN": eight}).as_numpy("OUT"), eight)
    client.close()
    assert inflight(server, "batched") == 0


def test_the_error_comes_within_50_ms_of_the_crash(server):
    load_anew(server, "batched")
    times = []
    for _ in range(4):
        answers = crash_with_eight_in_flight(server, PROTOCOLS["http"], signal.SIGSEGV)
        times.append(min(seconds for _, seconds, _ in answers))
        if times[-1] < 0.05:
            return
    raise AssertionError(times)


def test_readiness_follows_the_process(server, client):
    pid = process_of(server, "apart")
    assert client.client.is_model_ready("apart")
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not client.client.is_model_ready("apart"), step_s=0.005)
    assert wait_until(lambda: client.client.is_model_ready("apart"), 20)
    assert client.client.is_model_ready("together") and client.client.is_server_ready()


def test_one_that_dies_too_often_stays_down_until_it_is_loaded_again(server):
    """Six ends within a minute; each restart waits twice as long as the one before."""
    load_anew(server, "apart")
    client = PROTOCOLS["http"](server)
    for _ in range(6):
        pid = process_of(server, "apart")
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(pid))  # noqa: B023
    assert wait_until(lambda: "the process of 'apart_0_0' is not started again" in server.log())
    with pytest.raises(InferenceServerException, match="has died too often and is not started again"):
        client.infer("apart", {"IN": ROWS})
    assert not client.client.is_model_ready("apart")
    assert post_json(server, "/v2/repository/models/apart/load", {}).status == 200
    assert np.array_equal(client.infer("apart", {"IN": ROWS}).as_numpy("OUT"), ROWS)
    client.close()


def test_a_process_that_hangs_is_ended_with_its_model(tmp_path, start):
    repository = repository_in(tmp_path)
    flags = ("--backend-config=onnxruntime,isolation-timeout-seconds=2", "--backend-config=onnxruntime,execute-timeout-seconds=1.5")
    server = start(repository.root, "--model-control-mode=explicit", "--load-model=apart", *flags)
    client = PROTOCOLS["http"](server)
    client.infer("apart", {"IN": ROWS})
    (pid,) = isolated_processes(server)
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(InferenceServerException, match="did not return within 1.5 s .execute-timeout-seconds"):
        client.infer("apart", {"IN": ROWS})
    assert time.monotonic() - begun < 5
    assert np.array_equal(client.infer("apart", {"IN": ROWS}).as_numpy("OUT"), ROWS)
    (pid,) = isolated_processes(server)
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    assert post_json(server, "/v2/repository/models/apart/unload", {}).status == 200
    assert wait_until(lambda: not is_alive(pid), 10)
    assert time.monotonic() - begun < 8
    assert isolated_processes(server) == []
    client.close()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_library_that_hangs_as_it_is_opened_fails_the_load(tmp_path, start):
    repository = repository_in(tmp_path)
    library = build_hanging_library(tmp_path)
    settings = (f"library={library}", "load-timeout-seconds=2")
    flags = [f"--backend-config=onnxruntime,{each}" for each in settings]
    server = start(repository.root, "--model-control-mode=explicit", *flags)
    answer = post_json(server, "/v2/repository/models/apart/load", {})
    assert answer.status == 400
    assert re.search("has ended: no end of '[A-Za-z]+' within 2 s .load-timeout-seconds", answer.error())
    assert isolated_processes(server) == []


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_library_that_crashes_as_it_is_opened_fails_the_load(tmp_path, start):
    library = build_crashing_library(tmp_path)
    repository = repository_in(tmp_path)
    flags = (f"--backend-config=onnxruntime,library={library}", "--backend-config=isolation=process")
    repository.echo("echo", "FP32", [4])
    server = start(repository.root, "--exit-on-error=false", "--strict-readiness=false", *flags, wait="live")
    assert wait_until(lambda: "apart" in server.log() and "SIGSEGV" in server.log(), 60)
    assert wait_until(lambda: call(server, "GET", "/v2/models/echo/ready").status == 200, 60)
    index = {row["name"]: row for row in post_json(server, "/v2/repository/index", {}).json()}
    for name in ("apart", "batched", "together"):
        assert index[name]["state"] == "UNAVAILABLE"
        assert "it was ended by SIGSEGV" in index[name]["reason"] and "try another version of the library" in index[name]["reason"]
    assert server.alive()
    assert wait_until(lambda: len(isolated_processes(server)) == 1, 20)


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_nothing_is_left_of_many_crashes(tmp_path, start):
    repository = repository_in(tmp_path)
    server = start(repository.root, "--model-control-mode=explicit", "--load-model=apart")
    client = PROTOCOLS["grpc"](server)
    folders = set(os.listdir(tempfile.gettempdir()))
    measured = []
    for _ in range(2):
        for _ in range(CRASHES // 2):
            client.infer("apart", {"IN": LARGE})
            for pid in isolated_processes(server):
                os.kill(pid, signal.SIGSEGV)
            assert wait_until(lambda: isolated_processes(server) == [])
            # so that none is one too many
            for operation in ("unload", "load"):
                assert post_json(server, f"/v2/repository/models/apart/{operation}", {}).status == 200
        client.infer("apart", {"IN": LARGE})
        measured.append((open_files(server.process.pid), server.rss_bytes()))
    (files, memory), (later_files, later_memory) = measured
    assert later_files <= files + 2, measured
    assert later_memory < memory + 40 * 1024 * 1024, measured
    assert len(isolated_processes(server)) == 1
    left = [name for name in set(os.listdir(tempfile.gettempdir())) - folders if name.startswith("nereid-isolated-")]
    assert left == []
    client.close()


def test_nothing_is_left_of_a_server_that_is_killed(tmp_path, start):
    repository = repository_in(tmp_path)
    place = tmp_path / "temporary"
    place.mkdir()
    server = start(repository.root, prefix=("env", f"TMPDIR={place}"))
    client = PROTOCOLS["http"](server)
    client.infer("apart", {"IN": LARGE})
    client.close()
    processes = isolated_processes(server)
    assert len(processes) == 2
    os.kill(server.process.pid, signal.SIGKILL)
    assert wait_until(lambda: not any(map(is_alive, processes)), 5)
    assert [name for name in os.listdir(place) if name.startswith("nereid-isolated-")] == []
    server.process.wait(10)


def test_what_cannot_be_isolated_is_said(tmp_path, start):
    repository = repository_in(tmp_path)
    bad = PROCESS.replace("process", "container")
    repository.onnx("bad", identity("FP32", ["batch", "size"]), f"max_batch_size: 8\n{bad}")
    repository.directory("script", 1)
    (repository.directory("script", 1) / "model.ts").write_text("export default class {}\n")
    io = tensor_section("input", [("IN", "FP32", [1])]) + tensor_section("output", [("OUT", "FP32", [1])])
    repository.config("script", f'backend: "typescript"\n{io}{PROCESS}')
    server = start(repository.root, "--exit-on-error=false", "--strict-readiness=false", wait="live")
    assert wait_until(lambda: call(server, "GET", "/v2/models/apart/ready").status == 200, 60)
    index = {row["name"]: row for row in post_json(server, "/v2/repository/index", {}).json()}
    assert "parameter 'isolation' of model 'bad' must be 'process' or 'none', got 'container'" in index["bad"]["reason"]
    assert "model 'script' cannot have isolation=process: models in TypeScript" in index["script"]["reason"]
