"""Models whose process or Worker dies and then hangs when it is started again: requests fail in time, unloading works."""

import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.decoupled import inflight
from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.python_models import add_python, stub_processes
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.typescript_models import add_typescript

pytestmark = pytest.mark.ours

PYTHON = """
class TritonPythonModel:
    def initialize(self, args):
        marker = os.path.dirname(__file__) + "/was_here"
        if os.path.exists(marker):
            time.sleep(1000)
        open(marker, "w").close()

    def execute(self, requests):
        os._exit(1)
"""
TYPESCRIPT = """
export default class M {
  async initialize() {
    const marker = new URL("./was_here", import.meta.url);
    try { Deno.statSync(marker); } catch { return Deno.writeTextFileSync(marker, ""); }
    await new Promise(() => {});
  }
  execute() { Deno.exit(1); }
}
"""


@pytest.mark.parametrize("language", ["python", "typescript"])
def test_a_start_that_hangs(tmp_path, start, language):
    repository = Repository(tmp_path / "repository")
    if language == "python":
        add_python(repository, "hangs", PYTHON)
    else:
        add_typescript(repository, "hangs", TYPESCRIPT, parameters={"allow_write": "$$TRITON_MODEL_DIRECTORY"})
    server = start(repository.root, "--model-control-mode=explicit", "--load-model=hangs")
    client = PROTOCOLS["grpc"](server)
    for limit in (5, 14):  # the second one waits for the start, ten seconds at most
        begun = time.monotonic()
        with pytest.raises(InferenceServerException, match="is not healthy"):
            client.infer("hangs", {"IN": np.zeros([1], np.int32)})
        assert time.monotonic() - begun < limit
    assert inflight(server, "hangs") == 0
    assert call(server, "POST", "/v2/repository/models/hangs/unload", "{}").status == 200
    assert wait_until(lambda: '"UNAVAILABLE"' in call(server, "POST", "/v2/repository/index", "{}").body.decode(), 5)
    assert stub_processes(server) == []
    client.close()
