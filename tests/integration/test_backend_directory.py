"""Backends in Python (`--backend-directory`), and models without a configuration (python-backend.md §A1)."""

import queue

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.python_models import HEAD, add_python, is_alive, stub_processes
from nereid_testing.raw_http import call
from nereid_testing.repository import Repository
from nereid_testing.server import server_command

pytestmark = pytest.mark.ours

# Multiplies by the number in the file `factor` of the model's version, with a helper beside its own file.
BACKEND = """
import factor_helper


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]})
        return config

    def initialize(self, args):
        self.factor = factor_helper.read(pb_utils.get_model_dir())

    def execute(self, requests):
        return [answer(values(r) * self.factor) for r in requests]
"""

HELPER = """
def read(folder):
    return int(open(folder + "/factor").read())
"""

USES_SIBLING = """
import sibling


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]})
        return config

    def execute(self, requests):
        return [answer(values(r) + sibling.NUMBER) for r in requests]
"""

SEES_PARAMETERS = """
class TritonPythonModel:
    def execute(self, requests):
        return [answer(np.array([r.parameters().encode()], np.object_)) for r in requests]
"""


def write_backend(root, name):
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(HEAD + BACKEND)
    (folder / "factor_helper.py").write_text(HELPER)


def infer(client, model, number=3):
    return client.infer(model, {"IN": np.array([number], np.int32)}).as_numpy("OUT").tolist()


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_a_backend_in_python(tmp_path, start, name):
    write_backend(tmp_path / "backends", "multiply")
    repository = Repository(tmp_path / "repository")
    for model, factor, more in (("twice", 2, ""), ("ten_times", 10, 'runtime: "model.py"\n')):
        (repository.directory(model, 1) / "factor").write_text(str(factor))
        repository.config(model, f'backend: "multiply"\n{more}')
    flags = [f"--backend-directory={tmp_path}/backends", "--backend-config=python,shm-default-byte-size=4194304"]
    server = start(repository.root, *flags)
    client = PROTOCOLS[name](server)
    assert infer(client, "twice") == [6] and infer(client, "ten_times") == [30]
    config = call(server, "GET", "/v2/models/twice/config").json()
    assert (config["backend"], config["runtime"]) == ("multiply", "model.py")
    client.close()
    processes = stub_processes(server)
    server.stop()
    assert len(processes) == 2 and not any(map(is_alive, processes))


def test_settings_of_python_hold_for_backends_in_python(tmp_path, start):
    write_backend(tmp_path / "backends", "multiply")
    repository = Repository(tmp_path / "repository")
    (repository.directory("twice", 1) / "factor").write_text("2")
    repository.config("twice", 'backend: "multiply"\n')
    flags = [f"--backend-directory={tmp_path}/backends", "--backend-config=python,shm-growth-byte-size=0", "--exit-on-error=false"]
    server = start(repository.root, *flags, wait="live")
    assert "shm-growth-byte-size" in server.log()


@pytest.mark.parametrize("backend", ["nothing", "../repository/other/1", "multiply/../multiply"])
def test_backends_that_are_not_there(tmp_path, start, backend):
    write_backend(tmp_path / "backends", "multiply")
    repository = Repository(tmp_path / "repository")
    (repository.directory("other", 1) / "model.py").write_text(HEAD + BACKEND)
    repository.config("other", f'backend: "{backend}"\n')
    server = start(repository.root, f"--backend-directory={tmp_path}/backends", "--exit-on-error=false", wait="live")
    [row] = call(server, "POST", "/v2/repository/index").json()
    assert row["state"] == "UNAVAILABLE" and f"unable to find backend library for backend '{backend}'" in row["reason"]


@pytest.mark.parametrize("changed", ["model.py", "sibling.py"])
def test_polling_follows_a_model_that_is_one_file(tmp_path, start, changed):
    repository = Repository(tmp_path / "repository")
    folder = repository.directory("single", 1)
    (folder / "model.py").write_text(HEAD + USES_SIBLING)
    (folder / "sibling.py").write_text("NUMBER = 1\n")
    server = start(repository.root, "--model-control-mode=poll", "--repository-poll-secs=1")
    client = PROTOCOLS["http"](server)
    assert infer(client, "single") == [4]
    [before] = stub_processes(server)
    new = {"model.py": HEAD + USES_SIBLING.replace("sibling.NUMBER", "sibling.NUMBER + 99"), "sibling.py": "NUMBER = 100\n"}
    (folder / changed).write_text(new[changed])
    assert wait_until(lambda: infer(client, "single") == [103], 20)
    assert wait_until(lambda: not is_alive(before), 20)
    # What Python leaves beside the files is no change.
    loads = server.log().count("successfully loaded 'single'")
    assert not wait_until(lambda: server.log().count("successfully loaded 'single'") > loads, 3)
    client.close()


def test_check_knows_models_of_one_file(tmp_path):
    import subprocess

    write_backend(tmp_path / "backends", "multiply")
    repository = Repository(tmp_path / "repository")
    folder = repository.directory("single", 1)
    (folder / "model.py").write_text(HEAD + USES_SIBLING)
    (folder / "sibling.py").write_text("NUMBER = 1\n")
    (repository.directory("twice", 1) / "factor").write_text("2")
    repository.config("twice", 'backend: "multiply"\n')

    def check():
        flags = [f"--model-repository={repository.root}", f"--backend-directory={tmp_path}/backends"]
        done = subprocess.run([*server_command(), "check", *flags], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    assert check() == (0, "2 models checked, no faults\n")
    (folder / "model.py").write_text("import nothing_of_this_name\n")
    code, text = check()
    assert code == 1 and "ModuleNotFoundError: No module named 'nothing_of_this_name'" in text


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_forwarded_headers_and_parameters_reach_the_model(tmp_path, start, name):
    import json

    repository = Repository(tmp_path / "repository")
    add_python(repository, "seen", SEES_PARAMETERS, outputs=[("OUT", "BYTES", [1])])
    server = start(repository.root, "--http-header-forward-pattern=x-.*", "--grpc-header-forward-pattern=x-.*")
    client = PROTOCOLS[name](server)
    result = client.infer(
        "seen", {"IN": np.array([1], np.int32)}, headers={"x-user": 'some "body" \\ ', "y-user": "nobody"},
        parameters={"number": 7, "truth": True, "text": "t"},
    )  # fmt: skip
    seen = json.loads(result.as_numpy("OUT")[0])
    # As the reference forwards them: white space behind a value is part of it.
    assert seen == {"x-user": 'some "body" \\ ', "number": 7, "truth": True, "text": "t"}
    client.close()


RESERVED = ["sequence_id", "priority", "timeout", "headers", "binary_data_output", "triton_final_response"]


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_headers_that_all_match_are_refused_when_their_names_are_reserved(tmp_path, start, name):
    repository = Repository(tmp_path / "repository")
    add_python(repository, "seen", SEES_PARAMETERS, outputs=[("OUT", "BYTES", [1])])
    server = start(repository.root, "--http-header-forward-pattern=.*", "--grpc-header-forward-pattern=.*")
    client = PROTOCOLS[name](server)
    tensors = {"IN": np.array([1], np.int32)}
    seen = client.infer("seen", tensors, headers={"x-user": "somebody"}).as_numpy("OUT")[0]
    # What names the server of a call is metadata of nobody's.
    assert b"x-user" in seen and (b'"host"' in seen.lower()) == (name == "http")
    for header in RESERVED:
        with pytest.raises(InferenceServerException, match=f"Header '{header}' is reserved for Triton usage"):
            client.infer("seen", tensors, headers={header: "1"})
    client.close()


def test_reserved_metadata_of_a_stream_are_refused(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    add_python(repository, "seen", SEES_PARAMETERS, outputs=[("OUT", "BYTES", [1])])
    server = start(repository.root, "--grpc-header-forward-pattern=.*")
    results = queue.Queue()
    tensor = grpcclient.InferInput("IN", [1], "INT32")
    tensor.set_data_from_numpy(np.array([1], np.int32))
    for headers, refused in ({"timeout": "1"}, True), ({"triton_grpc_error": "true", "x": " padded "}, False):
        with grpcclient.InferenceServerClient(server.grpc) as client:
            client.start_stream(callback=lambda result, error: results.put((result, error)), headers=headers)
            client.async_stream_infer("seen", [tensor])
            result, error = results.get(timeout=20)
            if refused:
                assert "Header 'timeout' is reserved for Triton usage" in str(error)
            else:
                assert error is None and b'"x":" padded "' in result.as_numpy("OUT")[0]


def test_log_settings_hold_for_models(tmp_path, start):
    repository = Repository(tmp_path / "repository")
    code = SEES_PARAMETERS.replace(
        "return [", "pb_utils.Logger.log_info('an info'); pb_utils.Logger.log_verbose('a detail'); return ["
    )
    add_python(repository, "talks", code, outputs=[("OUT", "BYTES", [1])])
    server = start(repository.root)
    client = PROTOCOLS["http"](server)
    lines = lambda text: [line for line in server.log().splitlines() if text in line]  # noqa: E731
    client.infer("talks", {"IN": np.array([1], np.int32)})
    assert wait_until(lambda: lines("an info")) and not lines("a detail")
    assert " model.py:" in lines("an info")[0]
    client.client.update_log_settings({"log_verbose_level": 1, "log_info": False})
    client.infer("talks", {"IN": np.array([1], np.int32)})
    assert wait_until(lambda: lines("a detail"))
    assert len(lines("an info")) == 1
    client.close()


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_a_model_comes_with_a_load_request(tmp_path, start, name):
    import json

    (tmp_path / "repository").mkdir()
    server = start(tmp_path / "repository", "--model-control-mode=explicit")
    client = PROTOCOLS[name](server)
    tensor = [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}]
    config = json.dumps({"backend": "python", "input": tensor, "output": [{**tensor[0], "name": "OUT"}]})
    method = "    def execute(self, requests):\n        return [answer(values(r) * 3) for r in requests]\n"
    code = f"{HEAD}\nclass TritonPythonModel:\n{method}"
    client.client.load_model("brought", config=config, files={"file:/1/model.py": code.encode()})
    assert client.infer("brought", {"IN": np.array([2], np.int32)}).as_numpy("OUT") == [6]
    # The name is looked at before anything of the model runs: its code would not even compile.
    for bad in ("model;x", "model'x'", "model~x", "model\\x"):
        with pytest.raises(InferenceServerException, match="Invalid stub name: contains invalid characters"):
            client.client.load_model(bad, config=config, files={"file:/1/model.py": b"print('model'x'')"})
    client.close()
