"""Clients that cancel, run out of time or go away: their requests leave the queue.

The real Triton hands requests of the default scheduler that were cancelled to its backend; ours drops them.
"""

import queue
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.observe import pending, statistics, wait_until
from nereid_testing.protocols import GrpcProtocol
from nereid_testing.raw_http import infer_path, send_and_leave

ONE = np.zeros(1, np.float32)
# The queue is given this long to become empty; a request of slow_1000 that was not removed would take longer.
PROMPT_S = 0.6
BODY = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}]}'


def submit(protocol, model, count, answers, **options):
    return [
        protocol.client.async_infer(
            model, protocol.inputs({"IN": ONE}), lambda result, error: answers.put((result, error)), **options
        )
        for _ in range(count)
    ]


def idle(server, model):
    return wait_until(lambda: pending(server, model) == 0, 10)


@pytest.mark.ours
def test_grpc_cancel_empties_the_queue(main_server, grpc):
    assert idle(main_server, "slow_1000")
    before = statistics(main_server, "slow_1000")
    answers = queue.Queue()
    first = submit(grpc, "slow_1000", 1, answers)
    time.sleep(0.1)
    waiting = submit(grpc, "slow_1000", 5, answers)
    assert wait_until(lambda: pending(main_server, "slow_1000") >= 5), "five requests wait"
    for call in waiting:
        call.cancel()
    assert wait_until(lambda: pending(main_server, "slow_1000") == 0, PROMPT_S), "they have left the queue"
    for _ in waiting:
        result, error = answers.get(timeout=5)
        assert "CANCELLED" in str(error.status()) or "ancelled" in error.message()
    result, error = answers.get(timeout=5)
    assert error is None, "the running request is not touched"
    after = statistics(main_server, "slow_1000")
    assert after["execution_count"] == before["execution_count"] + 1
    assert after["inference_stats"]["success"]["count"] == before["inference_stats"]["success"]["count"] + 1
    del first


@pytest.mark.ours
def test_http_disconnect_empties_the_queue(main_server):
    assert idle(main_server, "slow_1000")
    before = statistics(main_server, "slow_1000")["execution_count"]
    sockets = [send_and_leave(main_server, "POST", infer_path("slow_1000"), BODY)]
    time.sleep(0.1)
    sockets += [send_and_leave(main_server, "POST", infer_path("slow_1000"), BODY) for _ in range(5)]
    assert wait_until(lambda: pending(main_server, "slow_1000") >= 5)
    for each in sockets[1:]:
        each.close()
    assert wait_until(lambda: pending(main_server, "slow_1000") == 0, PROMPT_S)
    assert sockets[0].recv(65536).startswith(b"HTTP/1.1 200")
    sockets[0].close()
    assert statistics(main_server, "slow_1000")["execution_count"] == before + 1


@pytest.mark.ours
def test_grpc_deadline_removes_the_request(main_server, grpc):
    assert idle(main_server, "slow_1000")
    answers = queue.Queue()
    submit(grpc, "slow_1000", 1, answers)
    time.sleep(0.1)
    begin = time.monotonic()
    with pytest.raises(InferenceServerException) as caught:
        grpc.infer("slow_1000", {"IN": ONE}, client_timeout=0.2)
    assert "DEADLINE_EXCEEDED" in str(caught.value.status()) or "Deadline" in caught.value.message()
    assert time.monotonic() - begin < 0.6
    assert wait_until(lambda: pending(main_server, "slow_1000") == 0, PROMPT_S)
    assert answers.get(timeout=5)[1] is None


@pytest.mark.ours
def test_stream_cancel_removes_its_requests(main_server):
    assert idle(main_server, "slow_1000")
    before = statistics(main_server, "slow_1000")["execution_count"]
    protocol = GrpcProtocol(main_server)
    protocol.client.start_stream(lambda result, error: None)
    for _ in range(6):
        protocol.client.async_stream_infer("slow_1000", protocol.inputs({"IN": ONE}))
    assert wait_until(lambda: pending(main_server, "slow_1000") >= 5)
    protocol.client.stop_stream(cancel_requests=True)
    assert wait_until(lambda: pending(main_server, "slow_1000") == 0, PROMPT_S)
    protocol.close()
    time.sleep(1.2)
    assert statistics(main_server, "slow_1000")["execution_count"] <= before + 1


@pytest.mark.ours
@pytest.mark.parametrize("way", ["grpc cancel", "http disconnect", "grpc deadline"])
def test_cancel_terminates_a_run_of_the_model(main_server, grpc, way):
    """A request alone in its batch is stopped inside the runtime: the instance is free again long before its end."""
    steps = np.array([10_000_000], np.int64)  # hours
    if way == "http disconnect":
        body = b'{"inputs":[{"name":"STEPS","datatype":"INT64","shape":[1],"data":[10000000]}]}'
        connection = send_and_leave(main_server, "POST", infer_path("long_run"), body)
        time.sleep(0.5)
        connection.close()
    elif way == "grpc deadline":
        with pytest.raises(InferenceServerException):
            grpc.infer("long_run", {"STEPS": steps}, client_timeout=0.5)
    else:
        answers = queue.Queue()
        call = grpc.client.async_infer("long_run", grpc.inputs({"STEPS": steps}), lambda result, error: answers.put(error))
        time.sleep(0.5)
        call.cancel()
        assert answers.get(timeout=5) is not None
    result = grpc.infer("long_run", {"STEPS": np.array([1], np.int64)}, client_timeout=10)
    assert result.as_numpy("OUT").tolist() == [1]


def test_cancel_after_the_answer_does_nothing(main_server, grpc):
    answers = queue.Queue()
    call = grpc.client.async_infer(
        "identity_fp32", grpc.inputs({"IN": np.zeros((1, 1), np.float32)}), lambda result, error: answers.put(error)
    )
    assert answers.get(timeout=5) is None
    call.cancel()
    assert grpc.client.is_server_live()


@pytest.mark.ours
def test_many_cancelled_calls_leave_nothing_behind(main_server):
    """Open, send, cancel, 300 times: the gauge is back at 0 and the server lives."""
    protocol = GrpcProtocol(main_server)
    answers = queue.Queue()
    for _ in range(300):
        submit(protocol, "slow_pair", 1, answers)[0].cancel()
    for _ in range(300):
        answers.get(timeout=10)
    assert wait_until(lambda: pending(main_server, "slow_pair") == 0, 5)
    assert protocol.infer("slow_pair", {"IN": ONE}).as_numpy("OUT").tolist() == [0]
    protocol.close()
