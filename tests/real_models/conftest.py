"""Servers of real models, fetched as the demo fetches them.

`real_server`: the demo's repository. `language_server`: the same models with their steps in TypeScript and in Python.
"""

import json
import subprocess
import sys

import pytest

from nereid_testing.observe import wait_until
from nereid_testing.protocols import PROTOCOLS
from nereid_testing.raw_http import call
from nereid_testing.server import PROJECT, ServerProcess, deno

REPOSITORY = PROJECT / "examples" / "model_repository"
MODELS = ("silero_vad", "silero_vad_stream", "ocr_det", "ocr_rec", "ocr_cls")
BUILD = 'import { buildDemoRepository } from "./scripts/demo_repository.ts"; await buildDemoRepository(console.error);'
REAL_MODELS = PROJECT / ".cache" / "real_models"
LANGUAGES = ("typescript", "python")
FETCH_LIMIT_S = 170
LOAD_LIMIT_S = 100
NO_MODELS = ("iris", "pictures")  # one that is refused, and a folder of pictures
# The interpreter of the tests has what the models in Python import.
PYTHON_FLAG = f"--backend-config=python,python-executable={sys.executable}"


def is_complete():
    return all((REPOSITORY / name / "1" / "model.onnx").is_file() for name in MODELS)


@pytest.fixture(scope="session")
def real_repository():
    run = subprocess.run([deno(), "eval", BUILD], cwd=PROJECT, capture_output=True, text=True, timeout=FETCH_LIMIT_S)
    if not is_complete():
        pytest.skip(f"the models could not be fetched: {(run.stderr or run.stdout)[-500:]}")
    return REPOSITORY


@pytest.fixture(scope="session")
def real_server(real_repository):
    with ServerProcess(real_repository) as server:
        yield server
        assert server.alive()


@pytest.fixture(params=list(PROTOCOLS))
def client(request, real_server):
    each = PROTOCOLS[request.param](real_server)
    yield each
    each.close()


@pytest.fixture(scope="session")
def real_models():
    """Names of the real models that could be fetched; their repositories are then in REAL_MODELS."""
    command = [deno(), "run", "-A", "tests/real_models/build_repositories.ts", str(REAL_MODELS)]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=FETCH_LIMIT_S)
    assert run.returncode == 0, run.stderr[-2000:]
    *said, names = run.stdout.splitlines()
    failures = "\n".join(line for line in said if "failed" in line)
    return {"root": REAL_MODELS, "names": json.loads(names), "failures": failures}


def wait_for_models(server, names):
    """Without strict readiness the server is ready before its models are."""
    is_ready = lambda name: call(server, "GET", f"/v2/models/{name}/ready").status == 200  # noqa: E731
    missing = lambda: [name for name in names if not is_ready(name)]  # noqa: E731
    assert wait_until(lambda: not missing(), LOAD_LIMIT_S, 0.2), f"{missing()}:\n{server.log()[-6000:]}"


@pytest.fixture(scope="session", params=LANGUAGES)
def language_server(request, real_models):
    if not real_models["names"]:
        pytest.skip(f"no model could be fetched: {real_models['failures']}")
    flags = [PYTHON_FLAG, "--exit-on-error=false", "--strict-readiness=false"]
    with ServerProcess(REAL_MODELS / request.param, *flags) as server:
        wait_for_models(server, [name for name in real_models["names"] if name not in NO_MODELS])
        yield server
        assert server.alive()


@pytest.fixture
def needs_model(real_models):
    """needs_model(name, …) skips a test whose models could not be fetched, with what the registry's client said."""

    def check(*names):
        missing = [name for name in names if name not in real_models["names"]]
        if missing:
            pytest.skip(f"{', '.join(missing)} could not be fetched: {real_models['failures']}")

    return check


@pytest.fixture(params=list(PROTOCOLS))
def language_client(request, language_server):
    each = PROTOCOLS[request.param](language_server)
    yield each
    each.close()


@pytest.fixture(scope="session")
def picture(real_models):
    """picture(name): the bytes of a photograph or scan."""

    def read(name):
        path = REAL_MODELS / "pictures" / name
        if not path.is_file():
            pytest.skip(f"the pictures could not be fetched: {real_models['failures']}")
        return path.read_bytes()

    return read
