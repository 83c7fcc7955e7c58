"""Scenarios D1–D4, D7, D8: configurations, shapes and what their errors say."""

import re

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing import onnx_models as models
from nereid_testing.protocols import PROTOCOLS, status_of, text_array
from nereid_testing.raw_http import call, infer_json
from nereid_testing.repository import Repository, tensor_section
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours

STRING_RESHAPE = "reshape { shape: [ ] }"


def write_repository(root):
    repository = Repository(root)
    repository.echo("d1", "FP32", [238], max_batch_size=8)
    repository.onnx(
        "d2",
        models.text_vector(),
        "max_batch_size: 32\n"
        + tensor_section("input", [("IN", "BYTES", [1], STRING_RESHAPE)])
        + tensor_section("output", [("OUT", "BYTES", [1], STRING_RESHAPE)]),
    )
    repository.onnx(
        "d3",
        models.text_vector(),
        "max_batch_size: 0\n"
        + tensor_section("input", [("IN", "BYTES", [1], STRING_RESHAPE)])
        + tensor_section("output", [("OUT", "BYTES", [1])]),
    )
    symbolic = models.add_sub("FP32", ["batch", 5])
    repository.onnx("d4", symbolic, "max_batch_size: 8\n")
    batcher = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 100 preferred_batch_size: [ 2 ] }\n"
    repository.onnx("d4_batcher", symbolic, batcher)
    repository.onnx("d4_fixed", models.add_sub("FP32", [3, 5]), "max_batch_size: 8\n")
    both = tensor_section("input", [("INPUT0", "FP32", [-1, 5]), ("INPUT1", "FP32", [-1, 5])]) + tensor_section(
        "output", [("OUTPUT0", "FP32", [-1, 5]), ("OUTPUT1", "FP32", [-1, 5])]
    )
    repository.onnx("d4_zero", symbolic, "max_batch_size: 0\n" + both)
    repository.onnx("d7", symbolic)
    repository.config("d7", 'name: "d7"\nbackend: "onnxruntime"\nmax_batch_size: ${triton_max_batch_size}\n')
    repository.onnx("d8", models.identity("FP32", [2]))
    for extra in ("01", "model", "configs", "-3"):
        repository.directory("d8", extra)
    (repository.directory("d8", "model") / "notes.txt").write_text("notes\n")
    (repository.directory("corrupt", 1) / "model.onnx").write_bytes(b"this is no protobuf" * 50)
    repository.directory("no_file", 1)
    repository.config("no_file", 'backend: "onnxruntime"\n')
    repository.directory("no_version")
    repository.config("no_version", 'backend: "onnxruntime"\n')
    repository.onnx("unknown_backend", symbolic, 'backend: "nonsense"\n')
    return repository


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("configuration") / "repository"
    write_repository(root)
    with ServerProcess(root, "--exit-on-error=false", "--strict-readiness=false") as running:
        yield running
        assert running.alive()


@pytest.fixture(params=list(PROTOCOLS))
def client(request, server):
    each = PROTOCOLS[request.param](server)
    yield each
    each.close()


def invalid(client):
    return "400" if client.name == "http" else "INVALID_ARGUMENT"


def index_reason(server, model):
    rows = call(server, "POST", "/v2/repository/index").json()
    found = [row for row in rows if row["name"] == model]
    assert found, rows
    return found[0].get("state"), found[0].get("reason", "")


def refusal(server, model):
    """The reason why a model was not loaded, wherever it is told: the index or, for unreadable models, the log."""
    state, reason = index_reason(server, model)
    assert state != "READY"
    return reason or server.log()


def test_D1_batch_dimension_missing_in_the_request(client):
    with pytest.raises(InferenceServerException) as caught:
        client.infer("d1", {"IN": np.zeros(238, np.float32)})
    text = caught.value.message()
    assert status_of(caught.value, client) == invalid(client)
    assert "unexpected shape for input 'IN' for model 'd1'" in text
    assert "Expected [-1,238], got [238]" in text
    assert "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension" in text
    assert client.infer("d1", {"IN": np.ones((1, 238), np.float32)}).as_numpy("OUT").shape == (1, 238)
    with pytest.raises(InferenceServerException, match="batch-size must be <= 8") as caught:
        client.infer("d1", {"IN": np.zeros((9, 238), np.float32)})
    assert status_of(caught.value, client) == invalid(client)


def test_D2_empty_reshape_of_strings(client):
    rows = [b"one", b"", b"t\x00hree", "vier €".encode()]
    got = client.infer("d2", {"IN": text_array(rows, (4, 1))}).as_numpy("OUT")
    assert got.shape == (4, 1) and got.ravel().tolist() == rows


def test_D2_json(server):
    answer = infer_json(server, "d2", [{"name": "IN", "datatype": "BYTES", "shape": [4, 1], "data": ["a", "b", "c", "d"]}])
    output = answer.json()["outputs"][0]
    assert (output["shape"], output["data"]) == ([4, 1], ["a", "b", "c", "d"])


def test_D3_empty_reshape_without_batching(server, client):
    text = refusal(server, "d3")
    assert "cannot have empty reshape for non-batching model" in text
    assert "input" in text and "reshape" in text
    with pytest.raises(InferenceServerException) as caught:
        client.infer("d3", {"IN": text_array([b"x"])})
    assert status_of(caught.value, client) in ("400", "404", "INVALID_ARGUMENT", "NOT_FOUND")


def test_D4_max_batch_size_alone_is_completed(server, client):
    config = call(server, "GET", "/v2/models/d4/config").json()
    assert config["max_batch_size"] == 8
    assert [each["name"] for each in config["input"]] == ["INPUT0", "INPUT1"]
    assert [each["dims"] for each in config["input"] + config["output"]] == [[5]] * 4
    assert config["backend"] == "onnxruntime" and "dynamic_batching" in config
    array = np.ones((8, 5), np.float32)
    assert (client.infer("d4", {"INPUT0": array, "INPUT1": array}).as_numpy("OUTPUT0") == 2).all()


def test_D4_a_configured_batcher_is_kept(server):
    batcher = call(server, "GET", "/v2/models/d4_batcher/config").json()["dynamic_batching"]
    assert (batcher["preferred_batch_size"], batcher["max_queue_delay_microseconds"]) == ([2], 100)


def test_D4_a_fixed_first_dimension_is_an_error(server):
    assert "autofill failed for model 'd4_fixed': model does not support batching" in refusal(server, "d4_fixed")


def test_D4_explicit_zero_stays_zero(server, client):
    assert call(server, "GET", "/v2/models/d4_zero/config").json()["max_batch_size"] == 0
    array = np.ones((20, 5), np.float32)
    assert client.infer("d4_zero", {"INPUT0": array, "INPUT1": array}).as_numpy("OUTPUT1").shape == (20, 5)


def test_D7_unfilled_template(server):
    text = refusal(server, "d7")
    assert re.search(r"config\.pbtxt:3:\d+", text), text
    assert "max_batch_size" in text and re.search("integer", text)
    assert "template" in text


def test_D8_version_folders(server, client):
    metadata = call(server, "GET", "/v2/models/d8").json()
    assert metadata["versions"] == ["1"]
    assert client.infer("d8", {"IN": np.ones(2, np.float32)}).as_numpy("OUT").tolist() == [1, 1]
    log = server.log()
    for skipped in ("01", "model"):
        lines = [line for line in log.splitlines() if "'d8'" in line and f"'{skipped}'" in line]
        warnings = [line for line in lines if line.startswith("W") or "WARN" in line.upper()]
        assert len(warnings) == 1, (skipped, lines)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("corrupt", "Protobuf parsing failed"),
        ("no_file", "unable to find '"),
        ("no_version", "at least one version must be available under the version policy of model 'no_version'"),
        ("unknown_backend", "nonsense"),
    ],
)
def test_models_that_cannot_be_loaded(server, client, model, text):
    """They are UNAVAILABLE with their reason; the others serve."""
    assert text in refusal(server, model)
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, {"IN": np.zeros(1, np.float32)})
    assert status_of(caught.value, client) in ("404", "NOT_FOUND", "503", "UNAVAILABLE")


def test_a_failed_start_model_ends_the_start(tmp_path):
    """--exit-on-error is on by default."""
    repository = Repository(tmp_path)
    (repository.directory("corrupt", 1) / "model.onnx").write_bytes(b"x" * 100)
    with pytest.raises(RuntimeError, match="failed to load all models"):
        with ServerProcess(tmp_path):
            pass


@pytest.mark.parametrize("kind", ["missing", "file", "unreadable"])
def test_a_bad_repository_path_ends_the_start(tmp_path, kind):
    path = tmp_path / "repository"
    if kind == "file":
        path.write_text("no directory")
    elif kind == "unreadable":
        path.symlink_to("/proc/1/root/does-not-exist")
    with pytest.raises(RuntimeError) as caught:
        with ServerProcess(path):
            pass
    assert str(path) in str(caught.value)


def test_two_repositories(tmp_path):
    for number in (1, 2):
        Repository(tmp_path / str(number)).echo(f"m{number}", "FP32", [1])
    Repository(tmp_path / "1").echo("both", "FP32", [1])
    Repository(tmp_path / "2").echo("both", "FP32", [1])
    with ServerProcess([tmp_path / "1", tmp_path / "2"], "--exit-on-error=false", wait="live") as server:
        states = {row["name"]: (row.get("state"), row.get("reason")) for row in call(server, "POST", "/v2/repository/index").json()}
        assert states["m1"] == states["m2"] == ("READY", None)
        assert states["both"] == ("UNAVAILABLE", "model appears in two or more repositories")


def test_strict_configuration_needs_a_file(tmp_path):
    repository = Repository(tmp_path)
    repository.onnx("bare", models.identity("FP32", ["n"]))
    repository.echo("full", "FP32", [1])
    flags = ("--disable-auto-complete-config", "--exit-on-error=false")
    with ServerProcess(tmp_path, *flags, wait="live") as server:
        assert call(server, "GET", "/v2/models/full/ready").status == 200
        assert call(server, "GET", "/v2/models/bare/ready").status != 200


@pytest.mark.parametrize("setting", ["default-max-batch-size=7", "onnxruntime,default-max-batch-size=7"])
def test_default_max_batch_size(tmp_path, setting):
    Repository(tmp_path).onnx("bare", models.identity("FP32", ["batch", 3]))
    with ServerProcess(tmp_path, f"--backend-config={setting}") as server:
        config = call(server, "GET", "/v2/models/bare/config").json()
        assert config["max_batch_size"] == 7 and config["dynamic_batching"]["preferred_batch_size"] == [7]


def test_explicit_mode_loads_what_is_named(tmp_path):
    repository = Repository(tmp_path)
    for name in ("one", "two", "three"):
        repository.echo(name, "FP32", [1])
    flags = ("--model-control-mode=explicit", "--load-model=one", "--load-model=three")
    with ServerProcess(tmp_path, *flags) as server:
        rows = call(server, "POST", "/v2/repository/index").json()
        assert {row["name"]: row.get("state") for row in rows} == {"one": "READY", "three": "READY", "two": None}
