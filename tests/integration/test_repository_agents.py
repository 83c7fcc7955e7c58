"""Repository agents: the checksum agent, agents of the user's that refuse or rewrite models, and those that misbehave."""

import contextlib
import gzip
import hashlib
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from nereid_testing import onnx_models
from nereid_testing.observe import temporary_model_folders, wait_until
from nereid_testing.protocols import PROTOCOLS, HttpProtocol
from nereid_testing.repository import Repository
from nereid_testing.server import PROJECT, ServerProcess, server_command

pytestmark = pytest.mark.ours

ARRAY = np.arange(4, dtype=np.float32)
MODEL = onnx_models.identity("FP32", [4])
EXPLICIT = "--model-control-mode=explicit"

# Writes each call to a file that its agent.json lets it write.
RECORDER = """
const note = (what) => ({ name, parameters }) => Deno.writeTextFile(parameters.log, `${parameters.who} ${what} ${name}\\n`, { append: true });
export const load = note("LOAD");
export const loadComplete = note("LOAD_COMPLETE");
export const loadFail = note("LOAD_FAIL");
export const unload = note("UNLOAD");
export const unloadComplete = note("UNLOAD_COMPLETE");
"""

# Reverses the bytes of all files of version 1, as a cipher would.
REVERSE = """
export async function load({ directory, newDirectory }) {
  await Deno.mkdir(newDirectory + "/1");
  for await (const { name } of Deno.readDir(directory + "/1")) {
    const bytes = await Deno.readFile(`${directory}/1/${name}`);
    await Deno.writeFile(`${newDirectory}/1/${name}`, bytes.reverse());
  }
  return "rewritten";
}
"""


def agents(*entries):
    """The section of a configuration: (name, parameters) each."""
    rows = []
    for name, parameters in entries:
        pairs = "".join(f'parameters {{ key: "{key}" value: "{value}" }} ' for key, value in parameters.items())
        rows.append(f'{{ name: "{name}" {pairs}}}')
    return f"model_repository_agents {{ agents [ {', '.join(rows)} ] }}\n"


def write_agent(folder, name, code, manifest=None):
    (folder / name).mkdir(parents=True)
    (folder / name / "agent.ts").write_text(code)
    if manifest is not None:
        (folder / name / "agent.json").write_text(json.dumps(manifest))


class Place:
    """Folders of one test, and servers over them."""

    def __init__(self, root):
        self.repository = Repository(root / "repository")
        self.agents, self.temporary, self.log = root / "agents", root / "temporary", root / "log"
        self.agents.mkdir()
        self.temporary.mkdir()

    def start(self, *flags, **options):
        prefix = ("env", f"TMPDIR={self.temporary}")
        return ServerProcess(self.repository.root, f"--repoagent-directory={self.agents}", *flags, prefix=prefix, **options)


@pytest.fixture
def place(tmp_path):
    each = Place(tmp_path)
    yield each
    assert temporary_model_folders(each.temporary) == [], "nothing is left"


def works(server, name):
    for protocol in PROTOCOLS.values():
        each = protocol(server)
        assert (each.infer(name, {"IN": ARRAY}).as_numpy("OUT") == ARRAY).all()
        each.close()


def load_error(server, name, protocol=HttpProtocol):
    each = protocol(server)
    try:
        with pytest.raises(InferenceServerException) as caught:
            each.client.load_model(name)
        return str(caught.value)
    finally:
        each.close()


@pytest.mark.parametrize("kind", ["MD5", "SHA256"])
def test_checksums(place, kind):
    content = MODEL.SerializeToString()
    digest = hashlib.new(kind, content).hexdigest()
    place.repository.onnx("good", MODEL, agents(("checksum", {f"{kind}:1/model.onnx": digest})))
    place.repository.onnx("bad", MODEL, agents(("checksum", {f"{kind}:1/model.onnx": "0" * len(digest)})))
    place.repository.onnx("none", MODEL, agents(("checksum", {f"{kind}:1/other": digest})))
    place.repository.onnx("outside", MODEL, agents(("checksum", {f"{kind}:../good/1/model.onnx": digest})))
    place.repository.onnx("kind", MODEL, agents(("checksum", {"CRC:1/model.onnx": digest})))
    with place.start(EXPLICIT, "--load-model=good") as server:
        works(server, "good")
        for protocol in PROTOCOLS.values():
            wanted = f"Mismatched {kind} hash for file 1/model.onnx, expect: {'0' * len(digest)}, got: {digest}"
            assert wanted in load_error(server, "bad", protocol)
        assert "1/other: No such file" in load_error(server, "none")
        assert "unexpected parameter" in load_error(server, "outside")
        assert "expected 'MD5:<path of a file of the model>' or 'SHA256:" in load_error(server, "kind")


def test_a_wrong_checksum_ends_the_start(place):
    place.repository.onnx("bad", MODEL, agents(("checksum", {"MD5:1/model.onnx": "0"})))
    server = place.start()
    with pytest.raises(RuntimeError, match="Mismatched MD5 hash for file 1/model.onnx"):
        server.__enter__()


def test_agents_are_told_in_order(place):
    """LOAD in order, the outcome in reverse order; UNLOAD in order, its end in reverse order."""
    place.log.write_text("")
    allowed = {"permissions": {"write": [str(place.log)], "read": [str(place.log)]}}
    write_agent(place.agents, "recorder", RECORDER, allowed)
    chain = agents(*(("recorder", {"log": place.log, "who": who}) for who in "ab"))
    place.repository.onnx("m", MODEL, chain)
    place.repository.onnx("junk", MODEL, chain)
    (place.repository.root / "junk" / "1" / "model.onnx").write_bytes(b"junk")
    with place.start(EXPLICIT, "--load-model=m") as server:

        def told(count):
            assert wait_until(lambda: len(place.log.read_text().splitlines()) >= count), place.log.read_text()
            lines = place.log.read_text().splitlines()
            place.log.write_text("")
            return lines

        assert told(4) == ["a LOAD m", "b LOAD m", "b LOAD_COMPLETE m", "a LOAD_COMPLETE m"]
        works(server, "m")
        assert "load failed for model 'junk'" in load_error(server, "junk")
        assert told(4) == ["a LOAD junk", "b LOAD junk", "b LOAD_FAIL junk", "a LOAD_FAIL junk"]
        protocol = HttpProtocol(server)
        protocol.client.unload_model("m")
        protocol.close()
        assert told(4) == ["a UNLOAD m", "b UNLOAD m", "b UNLOAD_COMPLETE m", "a UNLOAD_COMPLETE m"]


def test_each_agent_sees_what_the_one_before_made(place):
    """Reversed twice is as it was; in between a checksum of what the first one made."""
    write_agent(place.agents, "reverse", REVERSE)
    content = MODEL.SerializeToString()
    reversed_digest = hashlib.md5(content[::-1]).hexdigest()
    checksum = ("checksum", {"MD5:1/model.onnx": reversed_digest})
    place.repository.onnx("twice", MODEL, agents(("reverse", {}), checksum, ("reverse", {})))
    place.repository.onnx("once", MODEL, agents(("reverse", {}), checksum))
    (place.repository.root / "once" / "1" / "model.onnx").write_bytes(content[::-1])
    (place.repository.root / "once" / "config.pbtxt").write_text(
        'backend: "onnxruntime"\n' + agents(("reverse", {}), ("checksum", {"MD5:1/model.onnx": hashlib.md5(content).hexdigest()}))
    )
    with place.start(EXPLICIT, "--load-model=twice", "--load-model=once") as server:
        works(server, "twice")
        works(server, "once")
        assert len(temporary_model_folders(place.temporary)) == 3
        protocol = HttpProtocol(server)
        protocol.client.unload_model("twice")
        assert wait_until(lambda: len(temporary_model_folders(place.temporary)) == 1)
        works(server, "once")
        protocol.close()


def test_the_example_loads_a_compressed_model(tmp_path):
    place = Place(tmp_path)
    place.agents = PROJECT / "examples" / "repository_agents"
    place.repository.config("packed", 'backend: "onnxruntime"\n' + agents(("decompress", {})))
    packed = gzip.compress(MODEL.SerializeToString())
    (place.repository.directory("packed", 1) / "model.onnx.gz").write_bytes(packed)
    with place.start() as server:
        works(server, "packed")
    assert temporary_model_folders(place.temporary) == []


MISBEHAVING = {
    "refuses": ('export const load = () => { throw new Error("no licence"); }', "repo agent 'refuses': no licence"),
    "hangs": ("export const load = () => new Promise((resolve) => setTimeout(resolve, 1e7));", "took longer than 2 s"),
    "loops": ("export const load = () => { for (;;); }", "took longer than 2 s"),
    "exits": ("export const load = () => Deno.exit(0);", "ended its Worker"),
    "devours": ("export const load = () => { const all = []; for (;;) all.push({ all: [...all] }); }", "ended without an answer"),
    "spies": ('export const load = async () => { await Deno.readTextFile("/etc/passwd"); }', "Requires read access"),
    "calls": ('export const load = async () => { await fetch("http://127.0.0.1:22198/"); }', "Requires net access"),
    "empties": ('export const load = () => "rewritten";', "at least one version must be available"),
}


def test_agents_that_misbehave_harm_nobody_else(place):
    for name, (code, _) in MISBEHAVING.items():
        timeout_seconds = 2 if name in ("hangs", "loops") else 60
        write_agent(place.agents, name, code, {"timeout_seconds": timeout_seconds, "memory_mib": 64})
        place.repository.onnx(f"model_{name}", MODEL, agents((name, {})))
    place.repository.onnx("good", MODEL)
    with place.start(EXPLICIT, "--load-model=good") as server:
        for name, (_, message) in MISBEHAVING.items():
            protocol = HttpProtocol(server, concurrency=2)
            with pytest.raises(InferenceServerException) as caught:
                protocol.client.load_model(f"model_{name}")
            assert message in str(caught.value), name
            protocol.close()
            works(server, "good")
            assert temporary_model_folders(place.temporary) == []
        assert server.alive()


@pytest.mark.parametrize("name", ["nobody", "../agents/real", "a/b", "", ".."])
def test_agents_that_are_not_there(place, name):
    write_agent(place.agents, "real", "export const load = () => {};")
    place.repository.onnx("m", MODEL, agents((name, {})))
    with place.start(EXPLICIT) as server:
        error = load_error(server, "m")
        assert "failed to poll from model repository" in error
        assert ("unable to find" in error) == (name == "nobody")
        assert str(place.agents) not in error


def test_a_wrong_agent_json_is_told(place):
    write_agent(place.agents, "greedy", "export const load = () => {};", {"permissions": {"ffi": ["x"]}})
    place.repository.onnx("m", MODEL, agents(("greedy", {})))
    with place.start(EXPLICIT) as server:
        assert "'permissions.ffi' is unknown" in load_error(server, "m")


def run(place, *arguments):
    command = [*server_command(), *arguments, f"--model-repository={place.repository.root}", f"--repoagent-directory={place.agents}"]
    environment = {**os.environ, "TMPDIR": str(place.temporary)}
    return subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, timeout=60, env=environment)


def test_check_and_explain_look_at_what_agents_make(place):
    write_agent(place.agents, "reverse", REVERSE)
    write_agent(place.agents, "refuses", 'export const load = () => { throw new Error("no licence"); };')
    place.repository.config("m", 'backend: "onnxruntime"\n' + agents(("reverse", {})))
    (place.repository.directory("m", 1) / "model.onnx").write_bytes(MODEL.SerializeToString()[::-1])
    checked = run(place, "check")
    assert checked.returncode == 0, checked.stdout
    explained = run(place, "explain", "m")
    assert explained.returncode == 0 and 'input[0].data_type: "TYPE_FP32"' in explained.stdout, explained.stderr + explained.stdout
    place.repository.config("n", 'backend: "onnxruntime"\n' + agents(("refuses", {})))
    place.repository.directory("n", 1)
    before = (place.repository.root / "n" / "config.pbtxt").read_text()
    refused = run(place, "check", "--fix")
    assert refused.returncode == 1 and "n/config.pbtxt:2:44: error" in refused.stdout and "no licence" in refused.stdout
    assert (place.repository.root / "n" / "config.pbtxt").read_text() == before
    assert list(place.temporary.iterdir()) == []


def test_files_of_a_request_pass_through_agents(place):
    """An override brings a reversed model and the agent that puts it right."""
    write_agent(place.agents, "reverse", REVERSE)
    config = json.dumps({"backend": "onnxruntime", "model_repository_agents": {"agents": [{"name": "reverse"}]}})
    with place.start(EXPLICIT) as server:
        for protocol in PROTOCOLS.values():
            each = protocol(server)
            each.client.load_model("m", config=config, files={"file:1/model.onnx": MODEL.SerializeToString()[::-1]})
            assert (each.infer("m", {"IN": ARRAY}).as_numpy("OUT") == ARRAY).all()
            each.client.unload_model("m")
            assert wait_until(lambda: temporary_model_folders(place.temporary) == [])
            each.close()


def poll_server(place, *flags):
    return place.start("--model-control-mode=poll", "--repository-poll-secs=1", *flags)


def test_polling_rewrites_a_model_only_when_it_changed(place):
    """The agent runs once per change of the model's own folder; the former folder goes with the former model."""
    place.log.write_text("")
    code = REVERSE.replace("{ directory, newDirectory })", "{ directory, newDirectory, parameters })").replace(
        'return "rewritten"', 'await Deno.writeTextFile(parameters.log, "x", { append: true });\n  return "rewritten"'
    )
    write_agent(place.agents, "reverse", code, {"permissions": {"write": [str(place.log)]}})
    place.repository.config("m", 'backend: "onnxruntime"\n' + agents(("reverse", {"log": place.log})))
    file = place.repository.directory("m", 1) / "model.onnx"
    file.write_bytes(MODEL.SerializeToString()[::-1])
    with poll_server(place) as server:
        works(server, "m")
        first = temporary_model_folders(place.temporary)
        assert len(first) == 1
        time.sleep(2.5)
        assert place.log.read_text() == "x" and temporary_model_folders(place.temporary) == first
        other = onnx_models.identity("FP32", [4]).SerializeToString()
        file.write_bytes(other[::-1])

        def is_replaced():
            found = temporary_model_folders(place.temporary)
            return len(found) == 1 and found != first

        assert wait_until(is_replaced, timeout_s=15)
        works(server, "m")
        assert place.log.read_text() == "xx"
        file.unlink()
        file.parent.rmdir()
        (place.repository.root / "m" / "config.pbtxt").unlink()
        (place.repository.root / "m").rmdir()
        assert wait_until(lambda: temporary_model_folders(place.temporary) == [], timeout_s=15)


def test_an_ensemble_from_a_rewritten_folder_is_bound_anew(place):
    """Its folder stays as long as it may be bound again to models that are loaded anew."""
    copy = """
    export async function load({ directory, newDirectory }) {
      await Deno.mkdir(newDirectory + "/1");
      await Deno.copyFile(directory + "/labels.txt", newDirectory + "/labels.txt");
      return "rewritten";
    }"""
    write_agent(place.agents, "copy", copy)
    place.repository.onnx("part", MODEL)
    place.repository.directory("whole", 1)
    (place.repository.root / "whole" / "labels.txt").write_text("zero\none\ntwo\nthree\n")
    place.repository.config(
        "whole",
        'platform: "ensemble"\n'
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 }\n'
        'output { name: "OUT" data_type: TYPE_FP32 dims: 4 label_filename: "labels.txt" }\n'
        'ensemble_scheduling { step { model_name: "part" model_version: -1 '
        'input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }\n' + agents(("copy", {})),
    )
    with place.start(EXPLICIT, "--load-model=whole") as server:
        protocol = HttpProtocol(server)
        for _ in range(3):
            result = protocol.infer("whole", {"IN": ARRAY}, outputs=[protocol.output("OUT", class_count=1)])
            assert result.as_numpy("OUT")[0].endswith(b":three")
            assert len(temporary_model_folders(place.temporary)) == 1
            protocol.client.load_model("part", config='{"backend": "onnxruntime"}')
        protocol.client.unload_model("whole")
        assert wait_until(lambda: temporary_model_folders(place.temporary) == [])
        protocol.close()


def test_a_server_that_exits_takes_its_agents_along(place):
    write_agent(place.agents, "hangs", "export const load = () => new Promise((resolve) => setTimeout(resolve, 1e7));")
    place.repository.onnx("m", MODEL, agents(("hangs", {})))
    with place.start(EXPLICIT, "--exit-timeout-secs=1") as server:

        def load():
            with contextlib.suppress(Exception):  # the connection ends without an answer
                load_error(server, "m")

        def hosts():
            found = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True)
            return found.stdout.split()

        loader = threading.Thread(target=load, daemon=True)
        loader.start()
        assert wait_until(lambda: len(hosts()) == 1, timeout_s=10)
        (host,) = hosts()
        server.process.terminate()
        assert server.process.wait(timeout=20) == 1
        assert wait_until(lambda: not Path(f"/proc/{host}").exists())
        loader.join(10)
