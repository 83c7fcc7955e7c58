"""TypeScript models that throw, exit, hang or lie: their callers get an error at once, nobody else is harmed."""

import threading
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import Stream, inflight
from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS, status_of
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess
from nereid_testing.typescript_models import DECOUPLED, add_typescript

pytestmark = pytest.mark.ours

EXITS_IN_STREAM = """
export default class M {
  async *stream(request) {
    for (let i = 0; i < 2; i++) yield { outputs: { OUT: { shape: [1], data: Int32Array.of(i) } } };
    setTimeout(() => Deno.exit(5), 100);
    await new Promise(() => {});
  }
}
"""

THROWS_IN_STREAM = """
export default class M {
  *stream(request) {
    yield { outputs: { OUT: { shape: [1], data: Int32Array.of(0) } } };
    yield { outputs: { OUT: { shape: [1], data: Float32Array.of(0) } } };
    throw new Error("enough");
  }
}
"""


EXITS = {12: "Deno.exit(3)", 13: "process.exit(4)", 14: "close()"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("typescript_faults"))
    add_typescript(repository, "fault", "fault")
    add_typescript(repository, "limited_15", "fault", parameters={"execute_timeout_seconds": "1"})
    add_typescript(repository, "limited_17", "fault", parameters={"memory_limit_mib": "600"})
    add_typescript(repository, "bystander", "echo")
    add_typescript(repository, "exits_in_stream", EXITS_IN_STREAM, more=DECOUPLED)
    add_typescript(repository, "throws_in_stream", THROWS_IN_STREAM, more=DECOUPLED)
    for fault in EXITS:
        add_typescript(repository, f"exit_{fault}", "fault")
    with ServerProcess(repository.root) as each:
        yield each
        assert wait_until(lambda: inflight(each, "fault") == 0, 10)


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def ask(client, fault, model="fault"):
    return client.infer(model, {"IN": np.array([fault], np.int32)}).as_numpy("OUT").tolist()


def error_of(client, fault, model="fault"):
    with pytest.raises(InferenceServerException) as caught:
        ask(client, fault, model)
    return caught.value


FAILED = "Failed to process the request(s) for model instance 'fault_0', message: "
WRONG = {
    1: ["RangeError: boom", "model.ts:", "at "],
    3: ["InferRequest(s) size is:1, and InferResponse(s) size is:0"],
    4: ["Expected a list in the return of `execute`"],
    5: ["Output 'OUT' is configured as INT32, but its data is a Float32Array (FP32)"],
    6: ["has the shape [2], which takes 2 elements, but its data has 1"],
    7: ["Shape of tensor 'OUT' must be a list of whole numbers"],
    8: ["Tensor 'OUT' is said to be FP32, but its data is a Int32Array"],
    9: ["undefined"],
    11: ["TypeError: async boom", "model.ts:"],
    18: ["Response must have outputs or error"],
    19: ["Maximum call stack size exceeded"],
    20: ["undefined"],
    21: ["Parameter 'p' must be a boolean, bigint, number or string"],
    22: ["Output 'OUT' must have the shape [-1], got [1,1]"],
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_a_model_does_wrong(client, fault):
    error = error_of(client, fault)
    assert error.message().startswith(FAILED)
    for text in WRONG[fault]:
        assert text in error.message()
    assert "worker_batch" not in error.message(), "frames of the server help nobody"
    assert status_of(error, client) == ("INTERNAL" if client.name == "grpc" else "500")
    assert ask(client, 0) == [0]


@pytest.mark.parametrize(
    ("fault", "message", "grpc", "http"), [(2, "no such thing", "NOT_FOUND", "404"), (10, "later", "UNAVAILABLE", "503")]
)
def test_errors_with_a_code_are_the_models_own(client, fault, message, grpc, http):
    error = error_of(client, fault)
    assert error.message() == message
    assert status_of(error, client) == (grpc if client.name == "grpc" else http)


@pytest.mark.parametrize("fault", EXITS)
def test_a_model_that_exits(client, server, fault):
    model = f"exit_{fault}"
    assert ask(client, 0, model) == [0]
    begun = time.monotonic()
    error = error_of(client, fault, model)
    assert time.monotonic() - begun < 2
    assert "is not healthy" in error.message() and EXITS[fault] in error.message()
    assert "model.ts:" in error.message()
    # it is started again, and requests wait for that
    assert ask(client, 0, model) == [0]
    assert wait_until(lambda: "was started again" in server.log())


@pytest.mark.parametrize(
    ("fault", "text"), [(15, "`execute` took longer than 1 s"), (17, "the limit is 600 MiB")], ids=["loop", "hog"]
)
def test_a_model_that_hangs_or_hogs_is_ended_and_harms_nobody(server, fault, text):
    errors = []
    each, other = PROTOCOLS["grpc"](server), PROTOCOLS["http"](server)
    thread = threading.Thread(target=lambda: errors.append(error_of(each, fault, f"limited_{fault}")))
    thread.start()
    while thread.is_alive():
        begun = time.monotonic()
        assert ask(other, 7, "bystander") == [7]
        assert time.monotonic() - begun < 2
        time.sleep(0.05)
    assert text in errors[0].message()
    assert ask(other, 0, f"limited_{fault}") == [0]


def test_a_loop_whose_client_has_gone_is_ended(server):
    each = PROTOCOLS["grpc"](server)
    with pytest.raises(InferenceServerException):
        each.infer("fault", {"IN": np.array([15], np.int32)}, client_timeout=0.5)
    assert wait_until(lambda: "its clients have gone, and it does not stop" in server.log(), 10)
    assert ask(each, 0) == [0]
    each.close()


def test_a_lost_promise_is_logged_and_harms_nobody(client, server):
    assert ask(client, 16) == [16]
    assert wait_until(lambda: "Error: lost promise" in server.log())


def test_a_stream_whose_worker_exits_ends_with_an_error(server):
    stream = Stream(server)
    stream.send("exits_in_stream", {"IN": np.zeros([1], np.int32)})
    assert [stream.good().as_numpy("OUT").tolist() for _ in range(2)] == [[0], [1]]
    _, error = stream.next()
    assert "is not healthy" in error.message() and "Deno.exit(5)" in error.message()
    assert wait_until(lambda: inflight(server, "exits_in_stream") == 0)
    stream.close()


def test_a_stream_that_throws_ends_with_its_error(server):
    stream = Stream(server)
    stream.send("throws_in_stream", {"IN": np.zeros([1], np.int32)})
    assert stream.good().as_numpy("OUT").tolist() == [0]
    _, error = stream.next()
    assert "is configured as INT32" in error.message()
    _, error = stream.next()
    assert "Error: enough" in error.message() and "model.ts:6" in error.message()
    stream.close()


BROKEN = {
    "syntax": ("export default class M {\n  x = = 3;\n}\n", ["Expression expected", "model.ts:2:7"]),
    "no_default": ("export class M {\n  execute() {}\n}\n", ["default export", "'M'"]),
    "no_class": ("export default 5;\n\n", ["must be a class, got 5"]),
    "import": ('import x from "./missing.ts";\nexport default class M { x = x; }\n', ["missing.ts", "model.ts:1:15"]),
    "top": ("\nthrow new Error('at the top');\n", ["Error: at the top", "model.ts:2:7"]),
    "initialize": (
        "export default class M {\n  initialize() { throw new Error('no way'); }\n  execute() {}\n}\n",
        ["Error: no way", "model.ts:2:"],
    ),
    "no_execute": ("export default class M {\n}\n", ["does not implement `execute`"]),
    "stream_only": ("export default class M {\n  *stream() {}\n}\n", ["is for decoupled models"]),
    "exit": ("export default class M {\n  initialize() { Deno.exit(1); }\n  execute() {}\n}\n", ["Deno.exit(1)"]),
    "never": ("export default class M {\n  initialize() { while (true); }\n  execute() {}\n}\n", ["longer than 2 s"]),
    "complete": (
        "export default class M {\n  static autoCompleteConfig(c) { c.addInput({ name: 'IN', dataType: 'TYPE_FP64', dims: [1] }); }\n  execute() {}\n}\n",
        ["configuration expects datatype TYPE_INT32 for input 'IN', model provides TYPE_FP64"],
    ),
}


def test_broken_models_are_load_errors_that_say_where(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    for name, (source, _) in BROKEN.items():
        add_typescript(repository, name, source, parameters={"initialize_timeout_seconds": "2"})
    add_typescript(repository, "good", "echo")
    add_typescript(repository, "no_file", "echo", more='default_model_filename: "other.ts"\n')
    add_typescript(repository, "bad_name", "echo", more='default_model_filename: "model.py"\n')
    server = start(repository.root, "--exit-on-error=false", "--strict-readiness=false", wait="live")
    each = PROTOCOLS["http"](server)
    assert wait_until(lambda: call(server, "GET", "/v2/models/good/ready").status == 200, 30)

    def reasons():
        return {row["name"]: row.get("reason", "") for row in each.client.get_model_repository_index()}

    assert wait_until(lambda: all(reason for name, reason in reasons().items() if name != "good"), 30)
    found = reasons()
    for name, (_, texts) in BROKEN.items():
        for text in texts:
            assert text in found[name], f"{name}: {found[name]}"
    assert "TypeScript model file not found in" in found["no_file"]
    assert "must end in .ts" in found["bad_name"]
    assert ask(each, 3, "good") == [3]
    each.close()
