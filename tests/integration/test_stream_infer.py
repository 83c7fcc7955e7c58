"""ModelStreamInfer through tritonclient: order, errors inside the stream, ends."""

import queue
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.protocols import GrpcProtocol


class Stream:
    """An open stream that collects its answers."""

    def __init__(self, server, **options):
        self.protocol = GrpcProtocol(server)
        self.answers = queue.Queue()
        self.protocol.client.start_stream(lambda result, error: self.answers.put((result, error)), **options)

    def send(self, model, value, request_id="", name="IN", **options):
        array = np.atleast_1d(np.asarray(value, np.float32))
        self.protocol.client.async_stream_infer(model, self.protocol.inputs({name: array}), request_id=request_id, **options)

    def next(self, timeout=20):
        return self.answers.get(timeout=timeout)

    def close(self, cancel_requests=False):
        self.protocol.client.stop_stream(cancel_requests=cancel_requests)
        self.protocol.close()


@pytest.fixture
def stream(main_server):
    each = Stream(main_server)
    yield each
    each.close()


def test_one_answer_per_request_in_order(stream):
    for index in range(500):
        stream.send("slow_pair" if index == 0 else "identity_fp32", index if index == 0 else [[index]], str(index))
    for index in range(500):
        result, error = stream.next()
        assert error is None
        assert result.get_response().id == str(index)
        assert result.as_numpy("OUT").ravel().tolist() == [index]


def test_a_slow_request_holds_back_later_ones(stream):
    stream.send("slow_200", 1, "slow")
    stream.send("identity_fp32", [[2]], "quick")
    assert [stream.next()[0].get_response().id for _ in range(2)] == ["slow", "quick"]


def test_the_server_does_not_wait_before_it_reads_on(stream):
    """Two instances of 300 ms: four requests take two rounds, not four."""
    begin = time.monotonic()
    for index in range(4):
        stream.send("slow_pair", index, str(index))
    assert [stream.next()[0].get_response().id for _ in range(4)] == ["0", "1", "2", "3"]
    assert time.monotonic() - begin < 1.0


def test_final_response_parameter(stream, grpc):
    stream.send("identity_fp32", [[1]])
    response = stream.next()[0].get_response()
    assert response.parameters["triton_final_response"].bool_param is True
    unary = grpc.infer("identity_fp32", {"IN": np.zeros((1, 1), np.float32)}).get_response()
    assert "triton_final_response" not in unary.parameters


@pytest.mark.parametrize(
    ("model", "name", "text"),
    [
        ("nobody", "IN", "Request for unknown model: 'nobody' is not found"),
        ("identity_fp32", "WRONG", "unexpected inference input 'WRONG' for model 'identity_fp32'"),
    ],
)
def test_error_inside_the_stream(stream, model, name, text):
    stream.send("identity_fp32", [[1]], "before")
    stream.send(model, [[2]], "bad", name=name)
    stream.send("identity_fp32", [[3]], "after")
    assert stream.next()[0].as_numpy("OUT").ravel().tolist() == [1]
    result, error = stream.next()
    assert text in error.message()
    assert stream.next()[0].as_numpy("OUT").ravel().tolist() == [3]


def test_error_of_the_model_inside_the_stream(stream):
    """Every second request fails; the others are answered, in order."""
    for index in range(6):
        stream.send("fail_every_2", [[index]], str(index))
    answers = [stream.next() for _ in range(6)]
    good = [r.get_response().id for r, e in answers if e is None]
    assert len(good) == 3 and good == sorted(good)
    assert sum(e is not None for _, e in answers) == 3


def test_grpc_error_mode_ends_the_stream(main_server):
    stream = Stream(main_server, headers={"triton_grpc_error": "true"})
    stream.send("identity_fp32", [[1]])
    assert stream.next()[1] is None
    stream.send("nobody", [[1]])
    error = stream.next()[1]
    assert isinstance(error, InferenceServerException)
    assert "Request for unknown model: 'nobody' is not found" in error.message()
    stream.close()


def test_half_close_waits_for_outstanding_answers(main_server):
    stream = Stream(main_server)
    for index in range(3):
        stream.send("slow_200", index, str(index))
    stream.close()  # half-closes and waits
    assert [stream.next(timeout=1)[0].get_response().id for _ in range(3)] == ["0", "1", "2"]


def test_stream_timeout(main_server):
    stream = Stream(main_server, stream_timeout=0.4)
    stream.send("slow_1000", 1)
    error = stream.next()[1]
    assert "Deadline Exceeded" in error.message() or "DEADLINE" in str(error.status())
    stream.close()


def test_large_messages_on_a_stream(stream):
    arrays = [np.full((1, 1 << 20), index, np.float32) for index in range(6)]
    for index, array in enumerate(arrays):
        stream.send("identity_fp32", array, str(index))
    for array in arrays:
        assert stream.next()[0].as_numpy("OUT").tobytes() == array.tobytes()


def test_many_streams_at_once(main_server):
    streams = [Stream(main_server) for _ in range(20)]
    for number, each in enumerate(streams):
        for index in range(20):
            each.send("identity_fp32", [[number * 1000 + index]], str(index))
    for number, each in enumerate(streams):
        for index in range(20):
            result, error = each.next()
            assert error is None
            assert result.as_numpy("OUT").ravel().tolist() == [number * 1000 + index]
        each.close()
