"""`--model-config-name`: custom configuration files under `configs/`, as the reference's own test of it."""

import json
import subprocess

import pytest

from nereid_testing import onnx_models
from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS, HttpProtocol
from nereid_testing.repository import Repository
from nereid_testing.server import PROJECT, ServerProcess, server_command

pytestmark = pytest.mark.ours

BODY = 'backend: "onnxruntime"\nversion_policy: {{ specific: {{ versions: [{}] }} }}\n'
FILES = {"config.pbtxt": "1,3", "configs/h100.pbtxt": "1", "configs/v100.pbtxt": "2", "configs/config.pbtxt": "3"}


@pytest.fixture
def repository(tmp_path):
    each = Repository(tmp_path / "repository")
    for version in (1, 2, 3):
        each.onnx("m", onnx_models.identity("FP32", [4]), version=version)
    (each.root / "m" / "configs").mkdir()
    for name, versions in FILES.items():
        (each.root / "m" / name).write_text(BODY.format(versions))
    return each


def versions_of(server, name="m"):
    """The versions that serve, as both protocols tell."""
    http, grpc = (PROTOCOLS[each](server) for each in ("http", "grpc"))
    try:
        told = http.client.get_model_metadata(name)["versions"]
        assert list(grpc.client.get_model_metadata(name).versions) == told
        config = http.client.get_model_config(name)
        assert [str(v) for v in config["version_policy"]["specific"]["versions"]] == told
        return [int(each) for each in told]
    finally:
        http.close()
        grpc.close()


@pytest.mark.parametrize(
    ("name", "versions"), [(None, [1, 3]), ("h100", [1]), ("v100", [2]), ("config", [3]), ("h200", [1, 3])]
)
def test_the_named_file_is_used_where_there_is_one(repository, name, versions):
    flags = [] if name is None else [f"--model-config-name={name}"]
    with ServerProcess(repository.root, *flags) as server:
        assert versions_of(server) == versions


def run(*arguments):
    return subprocess.run([*server_command(), *arguments], capture_output=True, text=True, cwd=PROJECT, timeout=60)


@pytest.mark.parametrize("name", ["", "../config", "a/b", "..", "x" * 300, "a\nb"])
def test_names_that_are_none_are_refused(repository, name):
    ended = run(f"--model-repository={repository.root}", f"--model-config-name={name}", "--http-port=0", "--grpc-port=0", "--metrics-port=0")
    assert ended.returncode == 1
    assert "--model-config-name" in ended.stdout + ended.stderr


def test_places_of_errors_are_in_the_named_file(repository):
    (repository.root / "m" / "configs" / "h100.pbtxt").write_text('backend: "onnxruntime"\nmax_batchsize: 0\n')
    flag = f"--model-repository={repository.root}"
    with ServerProcess(repository.root, "--model-config-name=h100", "--model-control-mode=explicit") as server:
        protocol = HttpProtocol(server)
        with pytest.raises(Exception, match=r"m/configs/h100\.pbtxt:2:1"):
            protocol.client.load_model("m")
        protocol.close()
    checked = run("check", flag, "--model-config-name=h100", "--json")
    assert checked.returncode == 1 and "configs/h100.pbtxt" in checked.stdout
    assert run("check", flag, "--model-config-name=v100").returncode == 0
    assert run("check", flag, "--model-config-name=h100", "--fix").returncode == 0
    assert (repository.root / "m" / "configs" / "h100.pbtxt").read_text() == 'backend: "onnxruntime"\nmax_batch_size: 0\n'
    assert (repository.root / "m" / "config.pbtxt").read_text() == BODY.format("1,3")


def test_explain_names_the_file(repository):
    explained = run("explain", "m", f"--model-repository={repository.root}", "--model-config-name=v100")
    assert explained.returncode == 0, explained.stderr
    assert "configs/v100.pbtxt:2" in explained.stdout


def test_a_named_file_that_is_a_link_to_elsewhere_is_refused(repository, tmp_path):
    (tmp_path / "outside.pbtxt").write_text(BODY.format("1"))
    (repository.root / "m" / "configs" / "link.pbtxt").symlink_to(tmp_path / "outside.pbtxt")
    (repository.root / "m" / "configs" / "folder.pbtxt").mkdir()
    for name, what in (("link", "leads out of the directory"), ("folder", "Is a directory")):
        with ServerProcess(repository.root, f"--model-config-name={name}", "--model-control-mode=explicit") as server:
            protocol = HttpProtocol(server)
            with pytest.raises(Exception, match=what):
                protocol.client.load_model("m")
            protocol.close()


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_a_changed_named_file_counts_at_the_next_load_or_poll(repository, mode):
    flags = ["--repository-poll-secs=1"] if mode == "poll" else ["--load-model=m"]
    with ServerProcess(repository.root, "--model-config-name=v100", f"--model-control-mode={mode}", *flags) as server:
        assert versions_of(server) == [2]
        (repository.root / "m" / "configs" / "v100.pbtxt").write_text(BODY.format("2,3"))
        if mode == "explicit":
            protocol = HttpProtocol(server)
            protocol.client.load_model("m")
            protocol.close()
        assert wait_until(lambda: versions_of(server) == [2, 3], timeout_s=15, step_s=0.2)
        # Added where there was none: goes before config.pbtxt.
        (repository.root / "m" / "configs" / "v100.pbtxt").unlink()
        if mode == "explicit":
            protocol = HttpProtocol(server)
            protocol.client.load_model("m")
            protocol.close()
        assert wait_until(lambda: versions_of(server) == [1, 3], timeout_s=15, step_s=0.2)


def test_an_override_goes_before_the_named_file(repository):
    with ServerProcess(repository.root, "--model-config-name=v100", "--model-control-mode=explicit") as server:
        for protocol in PROTOCOLS.values():
            each = protocol(server)
            config = json.dumps({"backend": "onnxruntime", "version_policy": {"specific": {"versions": [3]}}})
            each.client.load_model("m", config=config)
            assert versions_of(server) == [3]
            each.client.load_model("m")
            assert versions_of(server) == [2]
            each.close()
