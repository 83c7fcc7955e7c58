"""Sequence models of ONNX Runtime that keep implicit state, over both protocols (scheduling.md §3.6)."""

import itertools

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.observe import pending, wait_until
from nereid_testing.protocols import PROTOCOLS, text_array
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess
from nereid_testing.state_models import (
    CONTROLS,
    all_controls,
    control_section,
    from_file,
    growing,
    running_sum,
    sequence_config,
    state_section,
    two_counters,
    write_state_repository,
    zero,
)

pytestmark = pytest.mark.ours

IDS = itertools.count(1)


@pytest.fixture(scope="module")
def state_server(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("states"))
    write_state_repository(repository)
    with ServerProcess(repository.root) as server:
        yield server
        for name in repository.model_names():
            assert wait_until(lambda: not pending(server, name), 10), f"{name} still has requests"  # noqa: B023
        assert server.alive()


@pytest.fixture(params=list(PROTOCOLS))
def client(request, state_server):
    each = PROTOCOLS[request.param](state_server)
    yield each
    each.close()


class Sequence:
    """One sequence of a model."""

    def __init__(self, client, model, sequence_id=None, shape=(1,)):
        self.client, self.model, self.shape = client, model, shape
        self.id = next(IDS) if sequence_id is None else sequence_id
        self.is_new = True

    def step(self, number=0, end=False, outputs=None):
        array = number if isinstance(number, np.ndarray) else np.full(self.shape, number, np.float32)
        options = {"sequence_id": self.id, "sequence_start": self.is_new, "sequence_end": end}
        self.is_new = False
        return self.client.infer(self.model, {"IN": array}, outputs=outputs, **options)

    def out(self, *args, **options):
        return self.step(*args, **options).as_numpy("OUT").ravel().tolist()


@pytest.mark.parametrize("model", ["counters", "counters_reversed", "counters_lstm"])
def test_two_states_are_paired_as_configured(client, model):
    """The reference gives 0, 110, 1111, 1221 for sA/zA and sB/yB: it pairs by the alphabet."""
    sequence = Sequence(client, model)
    found = [sequence.out(end=index == 3)[0] for index in range(4)]
    assert found == [0, 1001, 2002, 3003]


def test_state_outputs_are_returned_only_when_asked_for(client):
    sequence = Sequence(client, "counters_shown")
    names = lambda result: sorted(o.name if hasattr(o, "name") else o["name"] for o in outputs_of(result))  # noqa: E731
    assert names(sequence.step()) == ["OUT", "yB", "zA"]
    assert names(sequence.step(outputs=["OUT"])) == ["OUT"]
    assert names(sequence.step(outputs=["zA", "OUT"])) == ["OUT", "zA"]
    assert names(sequence.step(outputs=["yB"])) == ["yB"]
    result = sequence.step(end=True)
    assert [float(result.as_numpy(name)[0]) for name in ("OUT", "zA", "yB")] == [4 + 4000, 5, 50]


def outputs_of(result):
    response = result.get_response()
    return response["outputs"] if isinstance(response, dict) else response.outputs


def test_states_are_no_inputs_or_outputs_of_the_model(client):
    sequence = Sequence(client, "counters")
    sequence.step()
    with pytest.raises(InferenceServerException, match="unexpected inference output 'zA' for model 'counters'"):
        sequence.step(outputs=["zA"])
    with pytest.raises(InferenceServerException, match="unexpected inference input|expected 1 inputs but got 2"):
        arrays = {"IN": np.zeros(1, np.float32), "sA": np.zeros(1, np.float32)}
        client.infer("counters", arrays, sequence_id=sequence.id)
    assert sequence.out(end=True) == [1001]
    metadata = client.client.get_model_metadata("counters")
    metadata = metadata if isinstance(metadata, dict) else {
        "inputs": [{"name": i.name} for i in metadata.inputs],
        "outputs": [{"name": o.name} for o in metadata.outputs],
    }
    assert [i["name"] for i in metadata["inputs"]] == ["IN"]
    assert [o["name"] for o in metadata["outputs"]] == ["OUT"]


def test_a_failed_request_leaves_the_state_as_it_is(client):
    sequence = Sequence(client, "counters")
    assert sequence.out() == [0]
    with pytest.raises(InferenceServerException, match="unexpected shape"):
        sequence.step(np.zeros(2, np.float32))
    assert sequence.out() == [1001]
    assert sequence.out(end=True) == [2002]


def test_a_state_may_grow_from_nothing(client):
    sequence = Sequence(client, "growing")
    expected = []
    for index in range(20):
        part = np.arange(index % 4, dtype=np.float32) + index
        expected += part.tolist()
        assert sequence.out(part, end=index == 19) == expected
    assert Sequence(client, "growing").out(np.ones(1, np.float32), end=True) == [1]


def test_a_large_state_is_copied_out_of_the_buffers_of_a_run(client):
    """Outputs above 16 KiB lie in memory of the runtime that is used again."""
    sequences = [Sequence(client, "growing") for _ in range(3)]
    parts = [np.full(50_000, index, np.float32) for index in range(3)]
    for _ in range(2):
        for sequence, part in zip(sequences, parts):
            sequence.step(part)
    for index, (sequence, part) in enumerate(zip(sequences, parts)):
        found = sequence.step(part, end=True).as_numpy("OUT")
        assert found.shape == (150_000,) and (found == index).all()


def test_strings_as_state(client):
    sequence = Sequence(client, "texts")
    assert sequence.out(text_array(["one", "a\0b"])) == [b""]
    assert sequence.out(text_array([""])) == [b"one", b"a\0b"]
    assert sequence.out(text_array(["x" * 100_000])) == [b""]
    assert sequence.out(text_array(["end"]), end=True) == [b"x" * 100_000]


def test_first_value_from_a_file(client):
    for _ in range(2):
        sequence = Sequence(client, "filed")
        assert [sequence.out(n, end=n == 3)[0] for n in (1, 2, 3)] == [101, 103, 106]


def test_start_resets_the_state_of_a_sequence_in_progress(client):
    sequence = Sequence(client, "filed")
    assert sequence.out(1) == [101]
    sequence.is_new = True
    assert sequence.out(2) == [102]
    assert sequence.out(3, end=True) == [105]


@pytest.mark.parametrize("model", ["batched_direct", "batched_oldest"])
@pytest.mark.parametrize("id_type", ["", "_text"])
def test_controls_and_states_together(client, model, id_type):
    sequence_id = f"sequence-{next(IDS)}" if id_type else None
    sequence = Sequence(client, model + id_type, sequence_id, shape=(1, 1))
    seen = []
    for number, end in ((5, False), (6, False), (7, True)):
        result = sequence.step(number, end=end)
        controls = tuple(int(result.as_numpy(f"GOT_{name}")[0, 0]) for name in CONTROLS)
        seen.append((float(result.as_numpy("OUT")[0, 0]), controls))
        got = result.as_numpy("GOT_CORRID")[0, 0]
        assert (got.decode() if id_type else int(got)) == sequence.id
    assert seen == [(5, (1, 0, 1)), (11, (0, 0, 1)), (18, (0, 1, 1))]


@pytest.mark.parametrize("model", ["batched_direct", "batched_oldest", "counters"])
def test_interleaved_sequences_keep_their_states_apart(client, model):
    shape = (1,) if model == "counters" else (1, 1)
    ids = [next(IDS) for _ in range(4 if model != "counters" else 1)]
    sequences = [Sequence(client, model, each, shape) for each in ids]
    sums = [0.0] * len(sequences)
    for round_number in range(6):
        for index, sequence in enumerate(sequences):
            number = (index + 1) * 10**round_number % 997
            [got] = sequence.out(number, end=round_number == 5)
            if model == "counters":
                assert got == number + 1001 * round_number
            else:
                sums[index] += number
                assert got == sums[index]


def test_completed_configuration(client):
    """Inputs and outputs that the server fills in leave the states out."""
    sequence = Sequence(client, "completed", shape=(1, 1))
    assert [sequence.out(n, end=n == 3)[0] for n in (1, 2, 3)] == [1, 3, 6]
    config = client.client.get_model_config("completed")
    config = config if isinstance(config, dict) else None
    if config is not None:
        assert [i["name"] for i in config["input"]] == ["IN"]
        assert [o["name"] for o in config["output"]] == ["OUT"]


FAULTS = {
    "wrong_type": (
        running_sum(),
        sequence_config(state_section("LAST", "NEXT", datatype="INT32")),
        "configuration expects datatype TYPE_INT32 for state 'LAST', model provides TYPE_FP32",
    ),
    "wrong_dims": (running_sum(), sequence_config(state_section("LAST", "NEXT", dims="2")), "LAST"),
    "no_such_input": (
        running_sum(),
        sequence_config(state_section("BEFORE", "NEXT")),
        "configuration specified sequence state input 'BEFORE', but model 'no_such_input' provides only IN, LAST",
    ),
    "no_such_output": (
        running_sum(),
        sequence_config(state_section("LAST", "AFTER")),
        "configuration specified sequence state output 'AFTER', but model 'no_such_output' provides only OUT, NEXT",
    ),
    "state_left_out": (two_counters(), sequence_config(state_section("sA", "zA")), "configuration expects 2 inputs, model provides 3"),
    "growable": (
        growing(),
        sequence_config(
            state_section("LAST", "NEXT", dims="-1", more="use_growable_memory: true"),
            inputs='input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }\n',
            outputs='output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }\n',
        ),
        "needs 'use_same_buffer_for_input_output' and an instance group of KIND_GPU",
    ),
    "file_missing": (
        running_sum(),
        sequence_config(state_section("LAST", "NEXT", more=from_file("none"))),
        "failed to open text file for read file_missing/initial_state/none: No such file or directory",
    ),
    "file_outside": (
        running_sum(),
        sequence_config(state_section("LAST", "NEXT", more=from_file("../config.pbtxt"))),
        "initial_state file path '../config.pbtxt' for state input 'LAST' is outside model directory",
    ),
    "no_such_control": (
        running_sum(("batch", 1)),
        sequence_config(state_section("LAST", "NEXT"), batch=4, more=control_section("START")),
        "configuration specified sequence control 'START', but model does not provide that input",
    ),
    "control_type": (
        running_sum(("batch", 1), CONTROLS),
        sequence_config(
            state_section("LAST", "NEXT"),
            batch=4,
            more=all_controls().replace("START int32_false_true", "START fp32_false_true"),
        ),
        "unable to load model 'control_type', sequence control 'START', the model expects data-type INT32 but the model configuration specifies data-type TYPE_FP32",
    ),
    "many": (
        running_sum(),
        sequence_config(
            state_section("LAST", "NEXT", more=zero("INT32", "2")) + state_section("LAST", "NEXT"),
        ),
        "does not match the state data type",
        "'initial_state' dim for input name 'LAST' doesn't match 'state' dim description. 2 != 1",
        "State input name 'LAST' specified more than once.",
        "State output name 'NEXT' specified more than once.",
    ),
}


def test_what_cannot_work_is_refused_at_load(tmp_path, start):
    repository = Repository(tmp_path / "faults")
    for name, (model, config, *_) in FAULTS.items():
        repository.onnx(name, model, config)
    server = start(repository.root, "--exit-on-error=false", "--strict-readiness=false", wait="live")
    client = PROTOCOLS["http"](server)
    assert wait_until(lambda: client.client.is_server_ready(), 20)
    index = {row["name"]: row for row in client.client.get_model_repository_index()}
    for name, (_, _, *texts) in FAULTS.items():
        assert index[name]["state"] == "UNAVAILABLE", index[name]
        for text in texts:
            assert text in index[name]["reason"], index[name]["reason"]
    client.close()
