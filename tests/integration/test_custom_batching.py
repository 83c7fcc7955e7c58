"""Custom batching (L0_batch_custom): batching.ts decides which requests the dynamic batcher joins."""

import json
import shutil

import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing.burst import Burst
from nereid_testing.observe import batch_sizes, pending, statistics, wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.repository import Repository
from nereid_testing.server import PROJECT, ServerProcess

pytestmark = pytest.mark.ours

EXAMPLES = PROJECT / "examples" / "custom_batching"
VOLUME = (EXAMPLES / "volume_batching" / "1" / "batching.ts").read_text()
SINGLE = (EXAMPLES / "single_batching" / "1" / "batching.ts").read_text()
COUNT = 12
HELD = ("env", f"TRITONSERVER_DELAY_SCHEDULER={COUNT}")
BATCHED = "dynamic_batching { max_queue_delay_microseconds: 10000 }\n"
LIMIT = {"MAX_BATCH_VOLUME_BYTES": "12"}


def add(repository, name, path=None, text="", parameters=LIMIT, more=BATCHED):
    """An identity of 4 bytes per request, with a strategy at `path` below its folder."""
    repository.echo(name, "FP32", [1], max_batch_size=8, more=more, parameters=parameters)
    if path is not None:
        file = repository.directory(name) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """A server whose batchers wait for COUNT requests, the first time; each model has a twin for each protocol."""
    repository = Repository(tmp_path_factory.mktemp("custom") / "repository")
    for protocol in ("http", "grpc"):
        add(repository, f"plain_{protocol}")
        add(repository, f"version_{protocol}", "1/batching.ts", VOLUME)
        add(repository, f"model_{protocol}", "batching.ts", VOLUME)
        named = {**LIMIT, "TRITON_BATCH_STRATEGY_PATH": "strategies/volume.ts"}
        add(repository, f"named_{protocol}", "strategies/volume.ts", VOLUME, parameters=named)
        add(repository, f"single_{protocol}", "1/batching.ts", SINGLE)
        add(repository, f"small_{protocol}", "1/batching.ts", VOLUME, parameters={"MAX_BATCH_VOLUME_BYTES": "3"})
        add(repository, f"throws_{protocol}", "1/batching.ts", "export const includeRequest = () => { throw 1; };")
        preferred = "dynamic_batching { preferred_batch_size: [ 2 ] }\n"
        add(repository, f"preferred_{protocol}", "1/batching.ts", VOLUME, more=preferred)
    with ServerProcess(repository.root, prefix=HELD) as server:
        yield server
        assert wait_until(lambda: all(not pending(server, name) for name in repository.model_names()))
        log = server.log()
        assert log.count("Loading custom batching strategy") == 14
        # One line in 10 s for each of the two that throw, not one for each request.
        assert 2 <= log.count("includeRequest failed") <= 4
        assert server.alive()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    "model, expected",
    [
        ("plain", {8: 1, 4: 1}),
        ("version", {3: 4}),
        ("model", {3: 4}),
        ("named", {3: 4}),
        ("single", {1: 12}),
        ("small", {1: 12}),
        ("throws", {1: 12}),
        ("preferred", {2: 6}),
    ],
)
def test_the_strategy_ends_batches(held, protocol, model, expected):
    name = f"{model}_{protocol}"
    with Burst(held, protocol) as burst:
        answers = burst.results([burst.send(name, value, wait=0.01) for value in range(COUNT)])
    assert [answer.value for answer in answers] == list(range(COUNT))
    assert batch_sizes(held, name) == expected
    assert statistics(held, name)["inference_stats"]["success"]["count"] == COUNT


BROKEN = {
    "syntax": ("export function includeRequest() {\n  return a +;\n}", "syntax/1/batching.ts:2:13"),
    "export": ("export const other = 1;", "export/1/batching.ts:1:1"),
    "promise": ("\nexport async function includeRequest() {}", "promise/1/batching.ts:2:23"),
    "import": ('import { x } from "./x.ts";\nexport const includeRequest = () => x;', "import/1/batching.ts:1:19"),
    "thrown": (
        'export const includeRequest = () => true;\nexport function initialize() {\n  throw new Error("Failure test case");\n}',
        "Failure test case at thrown/1/batching.ts:3:9",
    ),
    "limit": (VOLUME, "Unable to find MAX_BATCH_VOLUME_BYTES parameter in model config"),
}


@pytest.fixture(scope="module")
def explicit(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("custom") / "repository")
    for name, (text, _) in BROKEN.items():
        add(repository, name, "1/batching.ts", text, parameters={})
    add(repository, "changing", "1/batching.ts", SINGLE)
    add(repository, "unused", "1/batching.ts", SINGLE, more="")
    add(repository, "upload")
    path = {"TRITON_BATCH_STRATEGY_PATH": "batching.ts"}
    add(repository, "sequence", "batching.ts", SINGLE, parameters=path, more="sequence_batching { }\n")
    add(repository, "outside", parameters={"TRITON_BATCH_STRATEGY_PATH": "../changing/1/batching.ts"})
    with ServerProcess(repository.root, "--model-control-mode=explicit") as server:
        yield server, repository
        assert server.alive()
        assert server.stop() == 0


@pytest.fixture(params=["http", "grpc"])
def client(request, explicit):
    each = PROTOCOLS[request.param](explicit[0])
    yield each
    each.close()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_strategy_fails_the_load(client, name):
    with pytest.raises(InferenceServerException) as failure:
        client.client.load_model(name)
    assert BROKEN[name][1] in failure.value.message()
    assert "file://" not in failure.value.message()


def test_the_error_has_the_code_that_the_strategy_gave_it(client):
    with pytest.raises(InferenceServerException):
        client.client.load_model("limit")
    rows = client.client.get_model_repository_index()
    rows = rows if isinstance(rows, list) else json.loads(json.dumps([{"name": r.name, "reason": r.reason} for r in rows.models]))
    reason = next(row["reason"] for row in rows if row["name"] == "limit")
    assert reason.startswith("Not found: ")


def test_the_parameter_is_checked(client):
    for name, text in {
        "sequence": "TRITON_BATCH_STRATEGY_PATH cannot be specified with sequence batcher, using default batching strategy",
        "outside": "Batching library path not found: ../changing/1/batching.ts",
    }.items():
        with pytest.raises(InferenceServerException) as failure:
            client.client.load_model(name)
        assert text in failure.value.message()


def test_a_strategy_without_dynamic_batching_is_told(client, explicit):
    client.client.load_model("unused")
    assert "unused/1/batching.ts is not used: model 'unused' has no dynamic_batching" in explicit[0].log()


def test_clients_cannot_bring_a_strategy(client, explicit):
    server, repository = explicit
    config = json.dumps({
        "backend": "identity",
        "max_batch_size": 8,
        "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
        "dynamic_batching": {},
    })
    files = {"file:1/batching.ts": b"console.log('client code ran');\n" + SINGLE.encode(), "file:1/model": b""}
    with pytest.raises(InferenceServerException) as failure:
        client.client.load_model("upload", config=config, files=files)
    assert "upload/1/batching.ts came with the load request" in failure.value.message()
    assert "client code ran" not in server.log()


def test_a_changed_strategy_is_loaded_anew(tmp_path):
    repository = Repository(tmp_path / "repository")
    add(repository, "m", "1/batching.ts", SINGLE)
    shutil.copytree(repository.directory("m"), repository.root / "other")
    flags = ("--model-control-mode=poll", "--repository-poll-secs=1")
    with ServerProcess(repository.root, *flags, prefix=("env", "TRITONSERVER_DELAY_SCHEDULER=4")) as server:
        def sizes(protocol):
            with Burst(server, protocol) as burst:
                burst.results([burst.send("m", value, wait=0.01) for value in range(4)])
            return batch_sizes(server, "m")

        assert sizes("http") == {1: 4}
        (repository.directory("m", 1) / "batching.ts").write_text("export const includeRequest = () => true;")
        loading = "Loading custom batching strategy"
        assert wait_until(lambda: server.log().count(loading) == 3, timeout_s=15)
        assert wait_until(lambda: batch_sizes(server, "m") == {}, timeout_s=15)
        assert sizes("grpc") == {4: 1}
        (repository.directory("m", 1) / "batching.ts").write_text("export const includeRequest = () => true")
        (repository.directory("m", 1) / "batching.ts").write_text("export const includeRequest = 1;")
        assert wait_until(lambda: "includeRequest must be a function" in server.log(), timeout_s=15)
        with Burst(server, "http") as burst:
            assert burst.send("m", 7).result(20).value == 7, "what served before goes on"


LIFE = """
export function initialize(context) {
  context.log.info(`begin ${context.modelName} ${context.modelVersion} ${context.config.max_batch_size}`);
  return context;
}
export const includeRequest = () => true;
export function finalize(context) {
  context.log.info(`end ${context.modelName}`);
  throw new Error("too late");
}
"""


def test_a_strategy_lives_as_long_as_its_version(tmp_path):
    repository = Repository(tmp_path / "repository")
    add(repository, "m", "1/batching.ts", LIFE)
    with ServerProcess(repository.root, "--model-control-mode=explicit", "--load-model=m") as server:
        assert "begin m 1 8" in server.log()
        for protocol in PROTOCOLS.values():
            client = protocol(server)
            client.client.unload_model("m")
            assert wait_until(lambda: server.log().count("end m") == server.log().count("begin m"))
            client.client.load_model("m")
            client.close()
        assert server.stop() == 0
        log = server.log()
        assert log.count("begin m") == log.count("end m") == 3
        assert "finalize failed: too late at m/1/batching.ts:9:9" in log


def test_the_examples_are_served():
    with ServerProcess(EXAMPLES) as server:
        assert server.log().count("Loading custom batching strategy") == 2


def test_a_strategy_of_a_backend_holds_for_its_models(tmp_path):
    repository = Repository(tmp_path / "repository")
    add(repository, "m")
    add(repository, "own", "batching.ts", VOLUME)
    folder = tmp_path / "backends" / "identity"
    folder.mkdir(parents=True)
    (folder / "batching.ts").write_text(SINGLE)
    flag = f"--backend-directory={tmp_path / 'backends'}"
    with ServerProcess(repository.root, flag, prefix=("env", "TRITONSERVER_DELAY_SCHEDULER=6")) as server:
        for protocol, name in [("http", "m"), ("grpc", "own")]:
            with Burst(server, protocol) as burst:
                burst.results([burst.send(name, value, wait=0.01) for value in range(6)])
        assert batch_sizes(server, "m") == {1: 6}
        assert batch_sizes(server, "own") == {3: 2}
