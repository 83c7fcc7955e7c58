"""The demo's repository of real models, fetched as the demo fetches it, and a server for it."""

import subprocess

import pytest

from nereid_testing.protocols import PROTOCOLS
from nereid_testing.server import PROJECT, ServerProcess, deno

REPOSITORY = PROJECT / "examples" / "model_repository"
MODELS = ("silero_vad", "silero_vad_stream", "ocr_det", "ocr_rec", "ocr_cls")
BUILD = 'import { buildDemoRepository } from "./scripts/demo_repository.ts"; await buildDemoRepository(console.error);'


def is_complete():
    return all((REPOSITORY / name / "1" / "model.onnx").is_file() for name in MODELS)


@pytest.fixture(scope="session")
def real_repository():
    if not is_complete():
        run = subprocess.run([deno(), "eval", BUILD], cwd=PROJECT, capture_output=True, text=True, timeout=170)
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
