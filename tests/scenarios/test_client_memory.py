"""D20: shared memory regions that are too small, out of bounds, the server's own, or gone while they are used."""

import json
import os
import struct
import threading
import time
import uuid
from pathlib import Path

import pytest

from nereid_testing.raw_http import call, post_json
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

pytestmark = pytest.mark.ours
OWN = "triton_python_backend_shm_region_"
OTHER_OWN = "shop_models_"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("d20") / "repository")
    repository.echo("echo", "FP32", [-1])
    repository.echo("delay_500", "FP32", [-1], parameters={"execute_delay_ms": 500})
    flags = ["--allow-client-shm=true", f"--backend-config=python,shm-region-prefix-name={OTHER_OWN}"]
    with ServerProcess(repository.root, *flags) as running:
        yield running
        assert running.alive()


@pytest.fixture
def key(server):
    name = f"d20_{uuid.uuid4().hex}"
    path = Path("/dev/shm") / name
    path.write_bytes(bytes(64))
    yield f"/{name}"
    call(server, "POST", "/v2/systemsharedmemory/unregister")
    path.unlink(missing_ok=True)


def register(server, key, name="r", **fields):
    return post_json(server, f"/v2/systemsharedmemory/region/{name}/register", {"key": key, **fields})


def infer(server, model, source=None, target=None):
    parameters = source and {"shared_memory_region": "r", **source}
    tensor = {"name": "IN", "datatype": "FP32", "shape": [8]}
    tensor |= {"parameters": parameters} if parameters else {"data": list(range(8))}
    output = {"name": "OUT"}
    if target:
        output["parameters"] = {"shared_memory_region": "r", **target}
    return post_json(server, f"/v2/models/{model}/infer", {"inputs": [tensor], "outputs": [output]})


def assert_tells_nothing(answer, *allowed):
    """No path, no name of a region of the server."""
    for word in ("/dev/shm", OTHER_OWN, str(Path.cwd()), "/proc", ".ts"):
        if word not in allowed:
            assert word not in answer.error()


def test_d20_larger_than_the_object(server, key):
    answer = register(server, key, byte_size=128)
    assert answer.status == 400
    assert answer.error().startswith("failed to register shared memory region 'r': invalid args")
    assert_tells_nothing(answer)


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1, 2**53, 2**53 - 1, 2**64 - 64, 64, 1])
def test_d20_offset_out_of_range(server, key, offset):
    answer = register(server, key, byte_size=64, offset=offset)
    assert answer.status == 400
    assert answer.error().startswith("failed to register shared memory region 'r': invalid args")
    assert call(server, "GET", "/v2/systemsharedmemory/status").json() == []


def test_d20_use_past_the_end(server, key):
    assert register(server, key, byte_size=64).status == 200
    for place in (
        {"shared_memory_offset": 33, "shared_memory_byte_size": 32},
        {"shared_memory_offset": 64, "shared_memory_byte_size": 32},
        {"shared_memory_offset": 2**53 - 1, "shared_memory_byte_size": 32},
        {"shared_memory_offset": 0, "shared_memory_byte_size": 65},
        {"shared_memory_offset": 1, "shared_memory_byte_size": 2**53 - 1},
        {"shared_memory_offset": 0, "shared_memory_byte_size": 2**63},
        {"shared_memory_offset": 2**64 - 32, "shared_memory_byte_size": 32},
    ):
        for answer in (infer(server, "echo", source=place), infer(server, "echo", target=place)):
            assert answer.status == 400, answer.body
            assert answer.error().startswith(("Invalid offset", "Integer overflow detected: byte_size "))
            assert answer.error().endswith(("region: 'r'", "region 'r'"))
            assert_tells_nothing(answer)


@pytest.mark.parametrize("prefix", ["", "/", "//"])
def test_d20_the_servers_own_regions(server, prefix):
    answer = register(server, f"{prefix}{OWN}1", byte_size=64)
    assert answer.status == 400
    assert answer.error() == (
        f"cannot register shared memory region 'r' with key '{prefix}{OWN}1' as the key contains the reserved prefix '{OWN}'"
    )
    # The prefix of this server's own regions is refused, and not told to those who only guess at it.
    answer = register(server, f"{prefix}{OTHER_OWN}9", byte_size=64)
    assert answer.status == 400 and answer.error().endswith("as the key contains a reserved prefix")


@pytest.mark.parametrize("key", ["/", "", "///", "/..", "/a/b", "/../../etc/passwd", "/a\u0000b", "/" + "x" * 300])
def test_d20_keys_that_name_nothing(server, key):
    answer = register(server, key, byte_size=64)
    assert answer.status == 400
    assert "invalid shm key" in answer.error()


def test_d20_keys_that_were_not_agreed_on(tmp_path):
    repository = Repository(tmp_path / "repository")
    repository.echo("echo", "FP32", [-1])
    name = f"shop_{uuid.uuid4().hex}"
    paths = [Path("/dev/shm") / each for each in (name, f"other_{name}")]
    with ServerProcess(repository.root, "--allow-client-shm=true", "--client-shm-key-prefix=shop_") as limited:
        for path in paths:
            path.write_bytes(bytes(64))
        try:
            assert register(limited, f"/{name}", byte_size=64).status == 200
            answer = register(limited, f"/other_{name}", name="s", byte_size=64)
            assert answer.status == 400 and answer.error().endswith("takes only keys of --client-shm-key-prefix")
        finally:
            for path in paths:
                path.unlink()


def test_d20_more_regions_than_files(tmp_path):
    """Regions leave files for connections."""
    repository = Repository(tmp_path / "repository")
    repository.echo("echo", "FP32", [-1])
    path = Path("/dev/shm") / f"d20_{uuid.uuid4().hex}"
    path.write_bytes(bytes(64))
    few = ("bash", "-c", 'ulimit -n 200 && exec "$@"', "bash")
    try:
        with ServerProcess(repository.root, "--allow-client-shm=true", prefix=few) as limited:
            answers = [register(limited, f"/{path.name}", name=f"r{index}", byte_size=64) for index in range(60)]
            assert [answer.status for answer in answers] == [200] * 50 + [503] * 10
            assert answers[-1].error().endswith("there are 50 regions, the most allowed")
            assert infer(limited, "echo").status == 200
            assert call(limited, "POST", "/v2/systemsharedmemory/unregister").status == 200
            assert register(limited, f"/{path.name}", byte_size=64).status == 200
    finally:
        path.unlink()


def test_d20_what_is_no_memory(server, tmp_path):
    """A link, a pipe and a folder in the place of an object are refused, and nothing waits for them."""
    name = f"d20_{uuid.uuid4().hex}"
    link, pipe, folder = (Path("/dev/shm") / f"{name}_{kind}" for kind in ("link", "pipe", "folder"))
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 64)
    try:
        link.symlink_to(secret)
        os.mkfifo(pipe)
        folder.mkdir()
        for each in (link, pipe, folder):
            answer = register(server, f"/{each.name}", byte_size=64)
            assert answer.status in (400, 500), answer.body
            assert answer.error().startswith(("Unable to open shared memory region", "failed to register")), answer.error()
            assert_tells_nothing(answer)
    finally:
        link.unlink()
        pipe.unlink()
        folder.rmdir()


def test_d20_unregistered_while_it_is_written_to(server, key):
    assert register(server, key, byte_size=64).status == 200
    answers = []
    place = {"shared_memory_offset": 32, "shared_memory_byte_size": 32}
    thread = threading.Thread(target=lambda: answers.append(infer(server, "delay_500", target=place)))
    thread.start()
    time.sleep(0.2)
    assert call(server, "POST", "/v2/systemsharedmemory/region/r/unregister").status == 200
    assert not answers, "unregister does not wait"
    # The name is free at once, while the old region is still held.
    assert register(server, key, byte_size=32).status == 200
    thread.join()
    assert answers[0].status == 200, answers[0].body
    values = struct.unpack("<16f", (Path("/dev/shm") / key.lstrip("/")).read_bytes())
    assert values == (0,) * 8 + tuple(range(8))
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert maps.count(key.lstrip("/")) == 1, "the second region alone is left"


def test_d20_object_cut_while_it_is_used(server, key):
    """The object shrinks while a request that will write to it runs: an error, and the server lives."""
    assert register(server, key, byte_size=64).status == 200
    answers = []
    place = {"shared_memory_byte_size": 32}
    thread = threading.Thread(target=lambda: answers.append(infer(server, "delay_500", target=place)))
    thread.start()
    time.sleep(0.2)
    os.truncate(Path("/dev/shm") / key.lstrip("/"), 0)
    thread.join()
    assert answers[0].status == 400
    assert "shared memory region: 'r'" in answers[0].error()
    assert_tells_nothing(answers[0])
    assert json.loads(call(server, "GET", "/v2").body)["name"] == "triton"
