"""TypeScript models that try to end the server, to end unseen, or to do what they have not declared."""

import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import inflight
from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess
from nereid_testing.typescript_models import add_typescript

pytestmark = pytest.mark.ours

# What each model does when it is asked with another number than 0.
DEEDS = {
    "kill": "process.kill(process.pid, 'SIGKILL')",
    "kill_group": "process.kill(0, 'SIGKILL')",
    "deno_kill": "Deno.kill(Deno.pid, 'SIGKILL')",
    "named_kill": "(await import('node:process')).kill(process.pid, 'SIGKILL')",
    # What the Worker itself is made of: it can answer nothing any more.
    "no_map": "Array.prototype.map = function () { return 5; }",
    "no_atomics": "Atomics.store = Atomics.load = () => { throw 1; }",
    "no_numbers": "{ const set = DataView.prototype.setUint32; DataView.prototype.setUint32 = function (at, _, end) { set.call(this, at, 0xfffffff0, end); }; }",
    "named_exit": "(await import('node:process')).exit(3)",
}
MODEL = """
export default class M {
  async execute(requests) {
    if (requests[0].input("IN", "INT32").data[0] !== 0) DEED;
    return requests.map((request) => ({ outputs: { OUT: request.input("IN", "INT32") } }));
  }
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("escapes"))
    for name, deed in DEEDS.items():
        add_typescript(repository, name, MODEL.replace("DEED", deed))
    with ServerProcess(repository.root) as each:
        yield each
        assert each.alive(), each.log()[-4000:]


def ask(client, model, number):
    return client.infer(model, {"IN": np.array([number], np.int32)}).as_numpy("OUT").tolist()


@pytest.mark.parametrize("model", DEEDS)
def test_a_model_cannot_end_the_server_or_end_unseen(server, model):
    client = PROTOCOLS["grpc"](server)
    assert ask(client, model, 0) == [0]
    begun = time.monotonic()
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, {"IN": np.array([1], np.int32)}, client_timeout=10)
    assert time.monotonic() - begun < 5
    assert "is not healthy: it" in caught.value.message()
    # it is started again, and requests wait for that
    assert ask(client, model, 0) == [0]
    assert wait_until(lambda: inflight(server, model) == 0)
    client.close()
