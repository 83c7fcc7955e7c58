"""A wheel straight from a package index, for machines without Python: a small index on this machine is asked."""

import base64
import http.server
import io
import json
import subprocess
import threading
import zipfile

import pytest

from nereid_testing.server import PROJECT, deno

PROGRAM = """
import { downloadWheel } from "./scripts/python_index.ts";
import { ZipArchive } from "./scripts/zip_archive.ts";
const source = { registry: "pip", name: "some.package", version: "1.0", license: "", megabytes: 1 } as const;
try {
  const wheel = new ZipArchive(await downloadWheel(Deno.args[0]!, source));
  console.log(new TextDecoder().decode(wheel.read("a.txt")));
} catch (reason) {
  console.log((reason as Error).message);
}
"""


def wheel(text):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", text)
    return file.getvalue()


NAMES = ["some_package-1.0-cp311-cp311-linux_x86_64.whl", "some_package-1.0-py3-none-any.whl", "some_package-2.0-py3-none-any.whl"]
JSON = json.dumps({"files": [{"filename": name, "url": f"../../files/{name}?a=1&b=2"} for name in NAMES]})
HTML = "".join(f'<a href="../../files/{name}?a=1&amp;b=2" data-x>{name}</a>\n' for name in NAMES)


class Index(http.server.BaseHTTPRequestHandler):
    kind, seen = "json", []

    def do_GET(self):
        type(self).seen.append((self.path, self.headers.get("authorization")))
        if self.path.startswith("/files/"):
            return self.answer("application/octet-stream", wheel(self.path.split("/")[-1]))
        if self.path != "/simple/some-package/":
            return self.send_error(404)
        if self.kind == "json":
            return self.answer("application/vnd.pypi.simple.v1+json", JSON.encode())
        return self.answer("text/html", HTML.encode())

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def index():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Index.seen.clear()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(address, tmp_path):
    program = PROJECT / ".cache" / f"wheel_{tmp_path.name}.ts"
    program.parent.mkdir(exist_ok=True)
    program.write_text(PROGRAM.replace('"./scripts', '"../scripts'))
    try:
        command = [deno(), "run", "-A", "--no-lock", str(program), address]
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60).stdout.strip()
    finally:
        program.unlink()


@pytest.mark.parametrize("kind", ["json", "html"])
def test_the_wheel_for_every_machine(index, tmp_path, kind):
    Index.kind = kind
    assert fetch(f"http://{index}/simple/", tmp_path) == f"{NAMES[1]}?a=1&b=2"


def test_credentials_of_the_address(index, tmp_path):
    Index.kind = "json"
    fetch(f"http://me:s%40cret@{index}/simple", tmp_path)
    assert Index.seen[0][1] == "Basic " + base64.b64encode(b"me:s@cret").decode()


def test_an_index_that_has_nothing_or_is_not_there(index, tmp_path):
    assert fetch(f"http://{index}/other", tmp_path) == "The package index answered 404 for some.package"
    assert fetch("http://u:secret@127.0.0.1:9/simple", tmp_path) == "The package index could not be asked for some.package (TypeError)"
