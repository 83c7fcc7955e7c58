"""The backends for trying out scheduling without a model, through real clients (qa-matrix.md §4, L0_implicit_state)."""

import itertools
import queue
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.observe import pending, wait_until
from nereid_testing.protocols import PROTOCOLS, GrpcProtocol
from nereid_testing.repository import Repository, parameters_section, tensor_section
from nereid_testing.server import ServerProcess
from nereid_testing.state_models import IDLE, control_section, state_section, zero

pytestmark = pytest.mark.ours

IDS = itertools.count(1)
FLAGS = "".join(map(control_section, ("START", "END", "READY")))
FLOAT_FLAGS = FLAGS.replace("int32_false_true", "fp32_false_true")
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
INTEGER = [("INPUT", "INT32", [1])]
STATE = state_section("INPUT_STATE", "OUTPUT_STATE", "INT32")


def model(repository, name, backend, inputs, outputs, batch=0, more="", **parameters):
    repository.directory(name, 1)
    repository.config(
        name,
        f'backend: "{backend}"\nmax_batch_size: {batch}\n'
        + tensor_section("input", inputs)
        + tensor_section("output", outputs)
        + parameters_section(parameters)
        + more,
    )


def batching(text):
    return f"sequence_batching {{ {IDLE}\n{text} }}\n"


def write_repository(repository):
    vector = [("INPUT", "INT32", [-1])], [("OUTPUT", "INT32", [-1])]
    start_ready = control_section("START") + control_section("READY")
    model(repository, "sequence", "sequence", *vector, batch=4, more=batching("direct { }" + start_ready))
    for suffix, id_type in (("", "UINT64"), ("_text", "STRING")):
        controls = FLAGS + control_section("CORRID", value=f"data_type: TYPE_{id_type}")
        more = batching("oldest { max_candidate_sequences: 8 }" + controls)
        model(repository, "dyna_sequence" + suffix, "dyna_sequence", *vector, batch=4, more=more)
    repeat = (
        [("IN", "INT32", [-1]), ("DELAY", "UINT32", [-1]), ("WAIT", "UINT32", [1])],
        [("OUT", "INT32", [1]), ("IDX", "UINT32", [1])],
    )
    model(repository, "repeat", "repeat", *repeat, more=DECOUPLED)
    model(repository, "repeat_many", "repeat", *repeat, more=DECOUPLED, response_count=300, response_fail_every=100)
    square = [("IN", "INT32", [1])], [("OUT", "INT32", [1])]
    model(repository, "square", "square", *square, more=DECOUPLED)
    model(repository, "square_faulty", "square", *square, more=DECOUPLED, CUSTOM_FAIL_COUNT=2, CUSTOM_EMPTY_COUNT=1)
    model(repository, "square_slow", "square", *square, more=DECOUPLED, CUSTOM_INFER_DELAY_NS=50_000_000)
    turns = [("INPUT", "INT32", [1])], [("OUTPUT", "INT32", [1])]
    for name, scheduling in (
        ("iterative_sequence", batching("iterative_sequence: true oldest { max_candidate_sequences: 8 }")),
        ("not_iterative", "dynamic_batching { }\n"),
    ):
        model(repository, name, "iterative_sequence", *turns, batch=4, more=DECOUPLED + scheduling)
    stateful = INTEGER + [("TEST_CASE", "INT32", [1])], [("OUTPUT", "INT32", [1])]
    for name, states in (
        ("no_implicit_state", ""),
        ("wrong_internal_state", STATE),
        ("no_state_update", state_section("INPUT_STATE", "OUTPUT_STATE", "INT32", more=zero("INT32"))),
        (
            "single_state_buffer",
            state_section("INPUT_STATE", "OUTPUT_STATE", "INT32", more="use_same_buffer_for_input_output: true"),
        ),
    ):
        model(repository, name, "implicit_state", *stateful, more=batching("direct { }" + FLOAT_FLAGS + states))
    query = [("INPUT", "UINT8", [1])], [("OUTPUT0", "UINT8", [-1]), ("OUTPUT1", "UINT8", [-1])]
    model(repository, "query", "query", *query, TEST_BYTE_SIZE=16)
    model(repository, "query_failing", "query", *query, TEST_FAIL_WITH_QUERY_RESULT=1)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("test_backends"))
    write_repository(repository)
    with ServerProcess(repository.root) as process:
        yield process
        for name in repository.model_names():
            assert wait_until(lambda: not pending(process, name), 10), f"{name} still has requests"  # noqa: B023
        assert process.alive()


@pytest.fixture(params=list(PROTOCOLS))
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def step(client, name, sequence_id, values, start=False, end=False):
    arrays = {"INPUT": np.array([values], np.int32)}
    flags = {"sequence_id": sequence_id, "sequence_start": start, "sequence_end": end}
    return client.infer(name, arrays, **flags).as_numpy("OUTPUT").ravel().tolist()


def test_sequence_adds_up(client):
    sequence_id = next(IDS)
    assert step(client, "sequence", sequence_id, [1, 2, 3], start=True) == [6, 6, 6]
    assert step(client, "sequence", sequence_id, [4]) == [10]
    assert step(client, "sequence", sequence_id, [5, 5], end=True) == [20, 20]
    assert step(client, "sequence", sequence_id, [7], start=True, end=True) == [7]


@pytest.mark.parametrize("name", ["dyna_sequence", "dyna_sequence_text"])
def test_dyna_sequence_adds_the_id_at_the_end(client, name):
    number = next(IDS)
    sequence_id = str(number) if name.endswith("text") else number
    assert step(client, name, sequence_id, [1, 2], start=True) == [3, 3]
    assert step(client, name, sequence_id, [4]) == [7]
    assert step(client, name, sequence_id, [0], end=True) == [7 + number]


def test_dyna_sequence_needs_a_number(client):
    with pytest.raises(InferenceServerException, match="correlation ID to be decodable into an integer"):
        step(client, "dyna_sequence_text", "seven", [1], start=True, end=True)


def state_step(client, name, number, test_case, sequence_id, start=False, end=False):
    arrays = {"INPUT": np.array([number], np.int32), "TEST_CASE": np.array([test_case], np.int32)}
    flags = {"sequence_id": sequence_id, "sequence_start": start, "sequence_end": end}
    return client.infer(name, arrays, **flags).as_numpy("OUTPUT").tolist()


def test_implicit_state_asks_for_a_state_that_is_not_there(client):
    for name, text in (
        ("no_implicit_state", "unable to add state 'undefined_state'. State configuration is missing for model 'no_implicit_state'."),
        ("wrong_internal_state", "state 'undefined_state' is not a valid state name."),
    ):
        with pytest.raises(InferenceServerException) as caught:
            state_step(client, name, 1, 0, next(IDS), start=True, end=True)
        assert caught.value.message() == text


def test_implicit_state_without_an_update(client):
    sequence_id = next(IDS)
    assert state_step(client, "no_state_update", 1, 1, sequence_id, start=True) == [1]
    assert [state_step(client, "no_state_update", 1, 1, sequence_id) for _ in range(10)] == [[1]] * 10
    assert state_step(client, "no_state_update", 1, 1, sequence_id, end=True) == [1]


def test_implicit_state_with_an_update(client):
    sequence_id = next(IDS)
    sums = [state_step(client, "single_state_buffer", n, 2, sequence_id, n == 1, n == 3)[0] for n in (1, 2, 3)]
    assert sums == [1, 3, 6]


def test_implicit_state_in_memory_that_grows(client):
    with pytest.raises(InferenceServerException, match="growable memory should always provide memory in GPU"):
        state_step(client, "single_state_buffer", 1, 3, next(IDS), start=True, end=True)


def test_query(client):
    arrays = {"INPUT": np.zeros(1, np.uint8)}
    result = client.infer("query", arrays)
    assert [result.as_numpy(name).tolist() for name in ("OUTPUT0", "OUTPUT1")] == [[0] * 16] * 2
    with pytest.raises(InferenceServerException, match="OUTPUT0 CPU 0; OUTPUT1 CPU 0; "):
        client.infer("query_failing", arrays)


class Stream:
    """A gRPC stream; `collect` gives what came for one request."""

    def __init__(self, server):
        self.protocol, self.answers = GrpcProtocol(server), queue.Queue()
        self.protocol.client.start_stream(lambda result, error: self.answers.put((result, error)))

    def send(self, name, arrays, **options):
        options = {"enable_empty_final_response": True, **options}
        self.protocol.client.async_stream_infer(name, self.protocol.inputs(arrays), **options)

    def collect(self, output):
        """Values or error texts until the final response, and whether that was empty."""
        found = []
        while True:
            result, error = self.answers.get(timeout=30)
            if error is not None:
                found.append(error.message())
                continue
            response = result.get_response()
            if response.outputs:
                found.append(int(result.as_numpy(output).ravel()[0]))
            if response.parameters["triton_final_response"].bool_param:
                return found, not response.outputs

    def close(self, cancel=False):
        self.protocol.client.stop_stream(cancel_requests=cancel)
        self.protocol.close()


@pytest.fixture
def stream(server):
    each = Stream(server)
    yield each
    each.close()


def repeat_arrays(values, delays, wait=0):
    return {
        "IN": np.array(values, np.int32),
        "DELAY": np.array(delays, np.uint32),
        "WAIT": np.array([wait], np.uint32),
    }


def test_repeat(stream):
    stream.send("repeat", repeat_arrays([4, 2, 0, 1], [1, 2, 3, 4]))
    assert stream.collect("OUT") == ([4, 2, 0, 1], True)
    stream.send("repeat", repeat_arrays([], []))
    assert stream.collect("OUT") == ([], True)


def test_repeat_takes_the_next_request_while_it_sends(stream):
    """The instance is occupied for WAIT only."""
    begin = time.monotonic()
    stream.send("repeat", repeat_arrays([1], [2000], 20))
    stream.send("repeat", repeat_arrays([2], [2000], 20))
    found = [stream.collect("OUT"), stream.collect("OUT")]
    assert sorted(found) == [([1], True), ([2], True)]
    assert time.monotonic() - begin < 3.8


def test_repeat_with_parameters(stream):
    stream.send("repeat_many", repeat_arrays([5, 6], [0, 0]))
    found, is_empty = stream.collect("OUT")
    assert len(found) == 300 and is_empty
    failures = [index for index, each in enumerate(found) if isinstance(each, str)]
    assert failures == [99, 199, 299]
    assert found[:2] == [5, 6]


def test_square(stream):
    stream.send("square", {"IN": np.array([3], np.int32)})
    assert stream.collect("OUT") == ([3, 3, 3], True)


def test_square_with_failures_and_empty_responses(stream):
    stream.send("square_faulty", {"IN": np.array([5], np.int32)})
    found, is_empty = stream.collect("OUT")
    assert found[:2] == [5, 5] and is_empty
    assert len(found) == 4 and all("simulated failure" in each for each in found[2:])


def test_square_stops_when_the_stream_is_cancelled(server):
    stream = Stream(server)
    stream.send("square_slow", {"IN": np.array([1000], np.int32)})
    stream.answers.get(timeout=10)
    stream.close(cancel=True)
    assert wait_until(lambda: pending(server, "square_slow") == 0, 5)


def test_iterative_sequence(stream):
    stream.send("iterative_sequence", {"INPUT": np.array([[4]], np.int32)})
    assert stream.collect("OUTPUT")[0] == [3, 2, 1, 0]


def test_iterative_sequences_run_together(stream):
    for _ in range(8):
        stream.send("iterative_sequence", {"INPUT": np.array([[3]], np.int32)})
    values = [stream.collect("OUTPUT")[0] for _ in range(8)]
    assert sorted(sum(values, [])) == [0] * 8 + [1] * 8 + [2] * 8


def test_no_turns_without_an_iterative_model(stream):
    stream.send("not_iterative", {"INPUT": np.array([[4]], np.int32)}, enable_empty_final_response=False)
    result, error = stream.answers.get(timeout=20)
    assert result is None or not result.get_response().outputs
    assert "RELEASE_RESCHEDULE" in error.message(), error
