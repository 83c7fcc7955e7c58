"""Python models that crash, exit, hang or lie: their callers get an error at once, and nothing is left behind."""

import os
import queue
import signal
import tempfile
import threading
import time

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import Stream, inflight
from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS, status_of
from nereid_testing.python_models import (
    FAULT,
    HEAD,
    add_python,
    is_alive,
    named_shared_memory,
    runtime_folders,
    stub_processes,
)
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository

pytestmark = pytest.mark.ours

# Sends two responses, then dies with the stream open.
DIES_IN_STREAM = """
class TritonPythonModel:
    def execute(self, requests):
        self.sender = sender = requests[0].get_response_sender()
        for i in range(2):
            sender.send(answer(np.array([i], np.int32)))
        threading.Timer(0.2, lambda: os._exit(5)).start()
"""

DROPS_SENDER = """
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            r.get_response_sender().send(answer(np.array([7], np.int32)))
"""

SLOW_END = """
class TritonPythonModel:
    def execute(self, requests):
        return [answer(values(r)) for r in requests]

    def finalize(self):
        time.sleep(1000)
"""


def begin(tmp_path, start, *flags, **options):
    repository = Repository(tmp_path / "repository")
    add_python(repository, "fault", FAULT, **options)
    decoupled = "model_transaction_policy { decoupled: true }\n"
    add_python(repository, "dies_in_stream", DIES_IN_STREAM, more=decoupled)
    add_python(repository, "drops_sender", DROPS_SENDER, more=decoupled)
    return start(repository.root, *flags)


@pytest.fixture
def server(tmp_path, start):
    each = begin(tmp_path, start)
    yield each
    processes = stub_processes(each)
    assert named_shared_memory([each.process.pid, *processes]) == set()
    assert wait_until(lambda: inflight(each, "fault") in (0, None), 10)
    each.stop()
    assert wait_until(lambda: not any(map(is_alive, processes)))


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def ask(client, fault):
    array = np.array([fault], np.int32)
    return client.infer("fault", {"IN": array}).as_numpy("OUT")


def error_of(client, fault):
    with pytest.raises(InferenceServerException) as caught:
        ask(client, fault)
    return caught.value


@pytest.mark.parametrize("fault", [1, 2, 4, 11, 13, 14], ids=["kill", "exit", "segv", "sys.exit", "garbage", "nan"])
def test_a_process_that_dies(client, server, fault):
    ask(client, 0)
    begun = time.monotonic()
    error = error_of(client, fault)
    assert time.monotonic() - begun < 5
    if fault == 11:  # no death: an exception like any other
        assert "SystemExit: 4" in error.message()
        assert ask(client, 0).tolist() == [0]
        return
    assert "is not healthy" in error.message() and "Failed to process the request(s) for model instance" in error.message()
    assert status_of(error, client) == ("INTERNAL" if client.name == "grpc" else "500")
    # it is started again, and requests wait for that
    assert ask(client, 0).tolist() == [0]
    assert wait_until(lambda: "has died" in server.log() and "was started again" in server.log())


def test_the_error_comes_within_50_ms_of_the_fault(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    add_python(repository, "fault", FAULT)
    server = start(repository.root)
    each = PROTOCOLS["http"](server)
    ask(each, 0)
    times = []
    for _ in range(3):
        assert wait_until(lambda: len(stub_processes(server)) == 1)
        (pid,) = stub_processes(server)
        killed = []

        def kill():
            time.sleep(0.5)
            killed.append(time.monotonic())
            os.kill(pid, signal.SIGKILL)  # noqa: B023

        thread = threading.Thread(target=kill)
        thread.start()
        error_of(each, 3)
        times.append(time.monotonic() - killed[0])
        thread.join()
        assert ask(each, 0).tolist() == [0]
    each.close()
    assert min(times) < 0.05, times


EXCEPTIONS = [
    (5, "ValueError: no luck today", "500", "INTERNAL"),
    (6, "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2", "500", "INTERNAL"),
    (7, "Expected a list in the execute return, found type", "500", "INTERNAL"),
    (8, "Expected an 'InferenceResponse' object in the execute function return list", "500", "INTERNAL"),
    (9, "without a response", "500", "INTERNAL"),
    (10, "bad", "404", "NOT_FOUND"),
]


@pytest.mark.parametrize("fault, text, http, grpc", EXCEPTIONS)
def test_a_model_that_errs(client, server, fault, text, http, grpc):
    before = stub_processes(server)
    error = error_of(client, fault)
    assert text in error.message()
    assert status_of(error, client) == (grpc if client.name == "grpc" else http)
    if fault == 5:
        assert "model.py(" in error.message() and "execute" in error.message()
    assert ask(client, 0).tolist() == [0]
    assert stub_processes(server) == before


def test_a_model_that_lies_about_its_outputs(client):
    result = client.infer("fault", {"IN": np.array([12], np.int32)})
    # the reference hands on what a model made; what was not asked for is dropped
    assert result.as_numpy("OUT") is None


def test_a_stream_whose_process_dies(server):
    stream = Stream(server)
    stream.send("dies_in_stream", {"IN": np.array([1], np.int32)})
    assert [int(stream.good().as_numpy("OUT")[0]) for _ in range(2)] == [0, 1]
    _, error = stream.next()
    assert "Stub process 'dies_in_stream_0" in error.message() and "is not healthy" in error.message()
    stream.close()
    assert wait_until(lambda: inflight(server, "dies_in_stream") == 0)


def test_a_sender_that_is_dropped(server):
    stream = Stream(server)
    stream.send("drops_sender", {"IN": np.array([1], np.int32)})
    assert int(stream.good().as_numpy("OUT")[0]) == 7
    _, error = stream.next()
    assert "without the final flag" in error.message()
    stream.close()


def test_a_model_that_hangs(tmp_path, start):
    server = begin(tmp_path, start, "--backend-config=python,execute-timeout-seconds=1")
    client = PROTOCOLS["http"](server)
    begun = time.monotonic()
    error = error_of(client, 3)
    assert 0.9 < time.monotonic() - begun < 8
    assert "is not healthy: execute() did not return within 1 s (execute-timeout-seconds)" in error.message()
    assert ask(client, 0).tolist() == [0]
    client.close()


def test_without_restarts_a_process_stays_dead(tmp_path, start):
    server = begin(tmp_path, start, "--backend-config=python,stub-restart=never")
    client = PROTOCOLS["http"](server)
    assert client.client.is_model_ready("fault")
    error_of(client, 1)
    time.sleep(0.5)
    assert not client.client.is_model_ready("fault")
    assert "is not healthy" in error_of(client, 0).message()
    client.close()


def test_a_process_that_dies_again_and_again_is_given_up(server):
    client = PROTOCOLS["http"](server)
    for _ in range(40):
        error_of(client, 2)
        if "died too often" in server.log():
            break
        time.sleep(0.2)
    begun = time.monotonic()
    assert "is not healthy" in error_of(client, 0).message()
    assert time.monotonic() - begun < 1
    assert wait_until(lambda: "died too often" in server.log())
    assert not client.client.is_model_ready("fault")
    client.close()


def test_others_are_not_harmed(tmp_path, start):
    server = begin(tmp_path, start, instances=2)
    client = PROTOCOLS["grpc"](server)
    error_of(client, 1)
    for _ in range(20):
        assert ask(client, 0).tolist() == [0]
    client.close()


def test_what_a_model_started_ends_with_it(server):
    client = PROTOCOLS["http"](server)
    ask(client, 15)
    child = _find(b"sleep\x00987654")
    assert child is not None
    error_of(client, 1)
    assert wait_until(lambda: not is_alive(child))
    client.close()


def _find(command):
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read().startswith(command):
                    return int(name)
        except OSError:
            continue
    return None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_server_ends(tmp_path, start, number):
    repository = Repository(tmp_path / "repository")
    add_python(repository, "fault", FAULT, instances=2)
    # A short path: sockets lie in it.
    with tempfile.TemporaryDirectory(prefix="nereid-test-", dir="/tmp") as place:
        leave(start(repository.root, prefix=["env", f"TMPDIR={place}"]), place, number)


def leave(server, place, number):
    client = PROTOCOLS["http"](server)
    ask(client, 0)
    client.close()
    processes = stub_processes(server)
    assert len(processes) == 2
    assert named_shared_memory([server.process.pid, *processes]) == set()
    assert len(runtime_folders(place)) == 1
    server.process.send_signal(number)
    server.process.wait(20)
    assert wait_until(lambda: not any(map(is_alive, processes)), 5)
    assert wait_until(lambda: runtime_folders(place) == [], 10)


def test_a_model_that_does_not_end(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    (repository.directory("slow_end", 1) / "model.py").write_text(HEAD + SLOW_END)
    add_python(repository, "slow_end", SLOW_END)
    server = start(repository.root, "--backend-config=python,stub-timeout-seconds=3", "--model-control-mode=explicit", "--load-model=slow_end")
    processes = stub_processes(server)
    assert call(server, "POST", "/v2/repository/models/slow_end/unload", "{}").status == 200
    assert wait_until(lambda: not any(map(is_alive, processes)), 15)
    assert server.alive()


def test_requests_behind_one_that_ends_the_process_run_on_the_next_one(server):
    """Small requests are sent to the process ahead of their turn; that must not be their end."""
    answers = queue.SimpleQueue()
    with grpc_client.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:

        def send(fault):
            tensor = grpc_client.InferInput("IN", [1], "INT32")
            tensor.set_data_from_numpy(np.array([fault], np.int32))
            client.async_infer("fault", [tensor], lambda result, error: answers.put((result, error)))

        for fault in [0] * 50 + [2] + [0] * 50:
            send(fault)
        received = [answers.get(timeout=60) for _ in range(101)]
    errors = [error for _, error in received if error is not None]
    assert len(errors) == 1 and "is not healthy" in errors[0].message()
    assert sum(result is not None for result, _ in received) == 100
