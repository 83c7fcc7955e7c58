"""Every ONNX node test that passes on bare ONNX Runtime passes through the server, over HTTP binary and gRPC.

The models have no configuration: the server completes it.
"""

import shutil

import pytest

from nereid_testing.node_cases import passing_cases, same
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.raw_http import call
from nereid_testing.server import ServerProcess

CHUNK = 300
CASES = passing_cases()

pytestmark = [pytest.mark.ours, pytest.mark.slow]

if not CASES:
    pytest.skip("libonnx-testdata is neither installed nor to be had by apt-get", allow_module_level=True)


def model_name(case):
    return case.key.replace("/", "--")


@pytest.fixture(scope="module")
def chunk_server(request, tmp_path_factory):
    """A server of one chunk of the cases; replaced when the next chunk begins."""
    chunk = CASES[request.param * CHUNK : (request.param + 1) * CHUNK]
    root = tmp_path_factory.mktemp("nodes") / "repository"
    for case in chunk:
        version = root / model_name(case) / "1"
        version.mkdir(parents=True)
        shutil.copy(case.model_file, version / "model.onnx")
    flags = ("--exit-on-error=false", "--strict-readiness=false", "--model-load-thread-count=2")
    with ServerProcess(root, *flags) as server:
        server.clients = {name: make(server) for name, make in PROTOCOLS.items()}
        server.reasons = {row["name"]: row.get("reason") for row in call(server, "POST", "/v2/repository/index").json()}
        yield server
        for client in server.clients.values():
            client.close()
        assert server.alive()


CHUNKED = [
    pytest.param(index // CHUNK, name, case, id=f"{case.key}-{name}")
    for index, case in enumerate(CASES)
    for name in PROTOCOLS
]


@pytest.mark.parametrize(("chunk_server", "name", "case"), CHUNKED, indirect=["chunk_server"], scope="module")
def test_node(chunk_server, name, case):
    model = model_name(case)
    if chunk_server.reasons.get(model):
        pytest.fail(chunk_server.reasons[model], pytrace=False)
    client = chunk_server.clients[name]
    for feeds, want in case.sets:
        result = client.infer(model, feeds, outputs=case.outputs)
        for output, expected in zip(case.outputs, want):
            got = result.as_numpy(output)
            assert same(got, expected), f"{output}: got {got.dtype}{got.shape} {got.ravel()[:8]}, want {expected.dtype}{expected.shape} {expected.ravel()[:8]}"
