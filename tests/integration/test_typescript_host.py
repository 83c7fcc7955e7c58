"""What models in TypeScript ask of the server (traces, model control, states), and Workers that end again and again."""

import json
import os
import pty
import subprocess
import threading
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import Stream, inflight
from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.sequence_models import flag_controls, sequence_config
from nereid_testing.server import ServerProcess
from nereid_testing.state_models import state_section, zero
from nereid_testing.typescript_models import DECOUPLED, add_typescript

pytestmark = pytest.mark.ours

TRACED = """
export default class M {
  async execute(requests) {
    return await Promise.all(requests.map(async (request) => {
      request.trace?.mark("HALF_WAY");
      const { outputs } = await request.infer("called", { inputs: { IN: request.inputs.IN } });
      const context = request.trace === undefined ? "untraced" : request.trace.context ?? "no context";
      return { outputs: { OUT: outputs.OUT }, parameters: { context } };
    }));
  }
}
"""

# IN is a JSON text: [method, ...arguments]; answers what came of it.
CONTROL = """
export default class M {
  execute(requests, ctx) {
    return Promise.all(requests.map(async (request) => {
      const [method, ...values] = JSON.parse(request.input("IN", "BYTES").data.text(0));
      let text;
      try {
        text = JSON.stringify(await ctx[method](...values) ?? null);
      } catch (error) {
        text = `${error.code}: ${error.message}`;
      }
      return { outputs: { OUT: { shape: [1], data: [text] } } };
    }));
  }
}
"""

SUMS = """
export default class M {
  execute(requests) {
    return requests.map((request) => {
      const { shape, data } = request.input("INPUT", "INT32");
      const last = request.input("LAST", "INT32").data[0];
      const next = { shape, data: Int32Array.of(last + data[0]) };
      return { outputs: { OUTPUT: next, NEXT: next } };
    });
  }
}
"""

RESCHEDULES = """
export default class M {
  execute(requests) {
    for (const request of requests) request.reschedule();
  }
}
"""

THROWS_ODD_THINGS = """
export default class M {
  execute(requests) {
    const error = new Error("odd");
    switch (requests[0].input("IN", "INT32").data[0]) {
      case 1:
        error.cause = error;
        break;
      case 2:
        error.message = 42;
        error.code = "NOT_FOUND";
        break;
      case 3:
        throw { get [Symbol.for("Deno.customInspect")]() { throw error; } };
      case 4:
        error.stack = null;
    }
    throw error;
  }
}
"""

DROPS = """
export default class M {
  execute(requests) {
    for (const request of requests) request.send;
    // Garbage is collected when there is some.
    this.timer ??= setInterval(() => { this.garbage = new Array(1e6).fill({}); }, 5);
  }
}
"""

LEAKS = """
const kept = [];
export default class M {
  execute(requests) {
    const end = Date.now() + 150;
    kept.push(new Uint8Array(40 * 2 ** 20).fill(1));
    while (Date.now() < end);
    return requests.map(() => ({ outputs: { OUT: { shape: [1], data: Int32Array.of(kept.length) } } }));
  }
}
"""

HANGS_AGAIN = """
export default class M {
  async initialize(ctx) {
    const flag = `${ctx.modelDirectory}/started`;
    try {
      Deno.statSync(flag);
    } catch {
      return Deno.writeTextFileSync(flag, "");
    }
    while (true);
  }
  execute() {
    Deno.exit(1);
  }
}
"""

TAMPERS = """
const memories = [];
addEventListener("message", ({ data }) => {
  const memory = data instanceof SharedArrayBuffer ? data : data?.buffer;
  if (memory instanceof SharedArrayBuffer) memories.push(memory);
});
const { setUint32 } = DataView.prototype;
export default class M {
  execute(requests) {
    // Whatever is written into frames from now on is something else.
    DataView.prototype.setUint32 = function (at, value, isLittle) {
      setUint32.call(this, at, 0xfffffff0, isLittle);
    };
    for (const memory of memories) new Uint8Array(memory).fill(0xff);
    return requests.map(() => ({ outputs: { OUT: { shape: [1], data: Int32Array.of(1) } } }));
  }
}
"""

READS = """
export default class M {
  execute(requests) {
    return requests.map((request) => {
      let text = "read";
      try {
        Deno.readTextFileSync(request.input("IN", "BYTES").data.text(0));
      } catch (error) {
        text = error.name;
      }
      return { outputs: { OUT: { shape: [1], data: [text] } } };
    });
  }
}
"""

TEXT = [("IN", "BYTES", [1])], [("OUT", "BYTES", [1])]


def one(value):
    return {"IN": np.array([value], np.int32)}


def failure(client, model, arrays, **options):
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, arrays, **options)
    return caught.value.message()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("typescript_host"))
    add_typescript(repository, "bystander", "echo")
    add_typescript(repository, "reschedules", RESCHEDULES)
    add_typescript(repository, "reschedules_decoupled", RESCHEDULES, more=DECOUPLED)
    add_typescript(repository, "odd", THROWS_ODD_THINGS)
    add_typescript(repository, "drops", DROPS)
    add_typescript(repository, "leaks", LEAKS, parameters={"memory_limit_mib": "400"})
    for protocol in PROTOCOLS:
        add_typescript(repository, f"tampers_{protocol}", TAMPERS)
        add_typescript(repository, f"exits_{protocol}", "fault")
    state = state_section("LAST", "NEXT", "INT32", more=zero("INT32"))
    config = sequence_config("typescript", "direct { }", flag_controls("START", "END", "READY") + state, max_batch_size=0)
    add_typescript(repository, "sums", SUMS, None)
    repository.config("sums", config)
    with ServerProcess(repository.root) as each:
        yield each
        for model in ("odd", "drops", "leaks", "sums"):
            assert wait_until(lambda: inflight(each, model) == 0, 10), model  # noqa: B023


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def test_implicit_state(client):
    for sequence_id in (5, 2**63 - 1):
        sums = []
        for index, value in enumerate([3, 4, 5]):
            options = {"sequence_id": sequence_id, "sequence_start": index == 0, "sequence_end": index == 2}
            sums.append(int(client.infer("sums", {"INPUT": np.array([value], np.int32)}, **options).as_numpy("OUTPUT")[0]))
        assert sums == [3, 7, 12]


def test_no_further_turn_outside_of_iterative_sequences(client, server):
    assert "RELEASE_RESCHEDULE" in failure(client, "reschedules", one(1))
    stream = Stream(server)
    stream.send("reschedules_decoupled", one(1))
    _, error = stream.next()
    assert "RELEASE_RESCHEDULE" in str(error)
    stream.close()


@pytest.mark.parametrize("fault", [1, 2, 3, 4])
def test_whatever_is_thrown_is_answered(client, fault):
    message = failure(client, "odd", one(fault))
    assert {1: "Caused by: Error: odd", 2: "42", 3: "a value that throws", 4: "odd"}[fault] in message


def test_a_request_that_a_model_dropped_is_answered(client):
    assert "dropped the request without a final response" in failure(client, "drops", one(1))


def test_memory_that_grows_over_many_requests_is_seen_in_time(server):
    each = PROTOCOLS["grpc"](server)
    ended = "Worker of model instance 'leaks_0' ended: it has "
    counts = []
    while ended not in server.log() and len(counts) < 50:
        try:
            counts.append(int(each.infer("leaks", one(1)).as_numpy("OUT")[0]))
        except InferenceServerException as error:
            assert "MiB of memory, the limit is 400 MiB (memory_limit_mib)" in error.message()
    assert ended in server.log()
    # it is started again, and requests wait for that
    assert int(each.infer("leaks", one(1)).as_numpy("OUT")[0]) < len(counts)
    assert each.infer("bystander", one(7)).as_numpy("OUT").tolist() == [7]
    each.close()


def test_a_model_that_tampers_with_its_memory_harms_nobody_else(client, server):
    message = failure(client, f"tampers_{client.name}", one(1))
    assert "is not healthy: it sent a message that cannot be" in message
    assert client.infer("bystander", one(7)).as_numpy("OUT").tolist() == [7]


def test_a_worker_that_ends_again_and_again_stays_down(client, server):
    model = f"exits_{client.name}"
    log = f"'{model}_0' ends again and again, it stays down"
    # Between the ends there are 0.1, 0.2, 0.4, 0.8 and 1.6 seconds.
    assert wait_until(lambda: "Deno.exit(3)" in failure(client, model, one(12)) and log in server.log(), 30)
    assert server.log().count(f"Worker of model instance '{model}_0' was started again") == 5
    begun = time.monotonic()
    assert "is not healthy" in failure(client, model, one(0))
    assert time.monotonic() - begun < 2
    assert not client.client.is_model_ready(model)
    assert client.infer("bystander", one(7)).as_numpy("OUT").tolist() == [7]


def test_traces_go_on_with_calls_and_have_marks_of_the_model(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    repository.echo("called", "INT32", [-1])
    add_typescript(repository, "traced", TRACED)
    file = tmp_path / "trace.json"
    server = start(
        repository.root, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1", f"--trace-config=triton,file={file}"
    )
    each = PROTOCOLS["http"](server)
    result = each.infer("traced", one(1))
    assert result.get_response()["parameters"]["context"] == "no context"
    each.close()
    server.stop()
    text = file.read_text().rstrip().rstrip(",")
    entries = json.loads(text if text.endswith("]") else text + "]")
    ids = {each["model_name"]: each for each in entries if "model_name" in each}
    assert ids["called"]["parent_id"] == ids["traced"]["id"]
    marks = [stamp for each in entries for stamp in each.get("timestamps", []) if stamp["name"] == "HALF_WAY"]
    assert len(marks) == 1 and marks[0]["ns"] > 0


def test_nobody_at_a_terminal_is_asked_for_permissions(tmp_path):
    repository = Repository(tmp_path / "repository")
    add_typescript(repository, "reads", READS, TEXT)
    server = ServerProcess(repository.root)
    terminal, end = pty.openpty()
    # The runtime asks when input and errors are a terminal.
    server.process = subprocess.Popen(server.command, stdin=end, stderr=end, stdout=end, start_new_session=True)
    os.close(end)
    seen = []
    reader = threading.Thread(target=read_all, args=(terminal, seen))
    reader.start()
    try:
        server._wait_until_up(time.monotonic() + 30)
        each = PROTOCOLS["http"](server)
        text = np.array([b"/etc/hostname"], np.object_)
        assert each.infer("reads", {"IN": text}, {"IN": "BYTES"}).as_numpy("OUT").tolist() == [b"NotCapable"]
        each.close()
    finally:
        server.stop()
    reader.join(10)
    os.close(terminal)
    assert b"Allow?" not in b"".join(seen)


def read_all(terminal, seen):
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            return
        if not data:
            return
        seen.append(data)


def test_model_control(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    repository.echo("called", "INT32", [-1])
    add_typescript(repository, "control", CONTROL, TEXT)
    server = start(repository.root, "--model-control-mode=explicit", "--load-model=control")
    each = PROTOCOLS["grpc"](server)

    def ask(*values):
        text = np.array([json.dumps(values).encode()], np.object_)
        answer = each.infer("control", {"IN": text}, {"IN": "BYTES"}).as_numpy("OUT")[0].decode()
        return json.loads(answer) if answer[0] in "ntf[{" and ":" not in answer else answer

    assert ask("isModelReady", "called").startswith("NOT_FOUND: ")
    assert ask("loadModel", "called") is None
    assert ask("isModelReady", "called") is True
    assert each.infer("called", one(3)).as_numpy("OUT").tolist() == [3]
    override = {"config": json.dumps({"backend": "identity", "max_batch_size": 2})}
    assert ask("loadModel", "called", override) is None
    config = json.loads(call(server, "GET", "/v2/models/called/config").body)
    assert config["max_batch_size"] == 2
    assert ask("unloadModel", "called") is None
    assert wait_until(lambda: ask("isModelReady", "called") is False, 10)
    assert "failed to load 'nobody'" in ask("loadModel", "nobody")
    assert ask("isModelReady", "nobody").startswith("NOT_FOUND: ")
    each.close()


def test_a_model_whose_restart_hangs_can_be_unloaded(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    parameters = {"allow_write": "$$TRITON_MODEL_DIRECTORY"}
    add_typescript(repository, "hangs_again", HANGS_AGAIN, parameters=parameters)
    server = start(repository.root, "--model-control-mode=explicit", "--load-model=hangs_again")
    each = PROTOCOLS["grpc"](server)
    assert "Deno.exit(1)" in failure(each, "hangs_again", one(1))
    time.sleep(1)
    begun = time.monotonic()
    each.client.unload_model("hangs_again")
    assert wait_until(lambda: not each.client.is_model_ready("hangs_again"), 10)
    server.stop()
    assert time.monotonic() - begun < 20
    each.close()
