"""A stand-in for the server: speaks wire.md to the Python process of one model, step by step as a test wants it."""

import fcntl
import json
import mmap
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np

RUNTIME = Path(__file__).resolve().parents[2] / "backends" / "python" / "runtime"
sys.path.append(str(RUNTIME))

import nereid_wire as wire  # noqa: E402  the one list of kinds

_HEAD = struct.Struct("<IIII")
_TYPES = {"FP32": np.float32, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8, "FP16": np.float16, "BOOL": np.bool_}
TIMEOUT_S = 30


def tensor_bytes(values, datatype):
    """Bytes of a tensor as they travel."""
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(value)) + value for value in values)
    return np.asarray(values, _TYPES.get(datatype, np.uint16)).tobytes()


class Frame:
    """One frame that came from the process."""

    def __init__(self, kind, number, fields, body):
        self.kind, self.number, self.fields, self.body = kind, number, fields, body
        #: How long an execution took, by the process's own clock.
        self.took_us = fields.pop("u", None) if kind == wire.EXECUTED else None

    def __repr__(self):
        return f"Frame({self.kind}, {self.number}, {self.fields})"


class Connection:
    """One connection of the process, with what it has sent and was not read yet."""

    def __init__(self, sock):
        self.sock = sock
        # Not select.select(), which refuses the high descriptors of a long run.
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, kind, number=0, fields=None, body=b""):
        text = json.dumps(fields or {}).encode()
        self.sock.sendall(_HEAD.pack(len(text) + len(body), kind, number, len(text)) + text + body)

    def _exactly(self, size, deadline):
        data = b""
        while len(data) < size:
            if not self._poll.poll(max(0, deadline - time.monotonic()) * 1000):
                raise TimeoutError("the process sends nothing")
            chunk = self.sock.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise EOFError("the process has ended")
            data += chunk
        return data

    def receive(self, timeout=TIMEOUT_S):
        deadline = time.monotonic() + timeout
        length, kind, number, json_length = _HEAD.unpack(self._exactly(16, deadline))
        data = self._exactly(length, deadline)
        return Frame(kind, number, json.loads(data[:json_length] or b"{}"), data[json_length:])


class StubParent:
    """Starts the process of a model. Use as a context manager; the process is gone afterwards."""

    def __init__(self, source, *, decoupled=False, outputs=("OUT",), memory=True, limits=(1 << 20, 64 << 20),
                 python=sys.executable, log=0, files=None, environment=None, module="1.model"):
        self.folder = Path(tempfile.mkdtemp(prefix="nereid-stub-"))
        self.model = self.folder / "repository" / "m"
        (self.model / "1").mkdir(parents=True)
        self.path = self.model / "1" / "model.py"
        if source is not None:
            self.path.write_text(textwrap.dedent(source))
        for name, text in (files or {}).items():
            (self.model / name).write_text(textwrap.dedent(text))
        self.received = []
        self._maps = {}
        self._segment = os.memfd_create("parent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._segment, 64 << 20)
        fcntl.fcntl(self._segment, 1033, 2)
        self.memory = memoryview(mmap.mmap(self._segment, 64 << 20))
        self.top = 0
        self.freed = []
        listener = socket.socket(socket.AF_UNIX)
        self.socket_path = str(self.folder / "s")
        listener.bind(self.socket_path)
        listener.listen(8)
        listener.settimeout(TIMEOUT_S)
        self.listener = listener
        self.errors = open(self.folder / "stderr", "w+")
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        command = [python, "-u", str(RUNTIME / "nereid_stub.py"), self.socket_path]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors)
        self.a = self._accept(b"A")
        self.b = self._accept(b"B")
        self.hello = {
            "pid": os.getpid(), "segment": self._segment, "memory": memory, "log": log,
            "limits": {"growth": limits[0], "max": limits[1]},
            "model": {
                "path": str(self.path), "module": module, "modelDirectory": str(self.model),
                "versionDirectory": str(self.model / "1"), "name": "m", "instance": "m_0_0", "decoupled": decoupled,
                "outputs": list(outputs),
            },
        }  # fmt: skip
        self.a.send(wire.HELLO, 0, self.hello)
        self.hello_result = self.expect(wire.HELLO_RESULT).fields

    def _accept(self, letter):
        connection = Connection(self.listener.accept()[0])
        assert connection._exactly(1, time.monotonic() + TIMEOUT_S) == letter
        return connection

    def accept_forked(self):
        """The connection of a child that the model has forked."""
        return self._accept(b"C")

    def output(self):
        """What the process has written to stdout and stderr."""
        self.errors.flush()
        return (self.folder / "stderr").read_text()

    def initialize(self, **args):
        """Loads the model; the answer's fields."""
        all_args = {
            "model_config": json.dumps({"name": "m", "max_batch_size": 8}), "model_instance_kind": "CPU",
            "model_instance_name": "m_0_0", "model_instance_device_id": "0", "model_repository": str(self.model),
            "model_version": "1", "model_name": "m",
        }  # fmt: skip
        self.a.send(wire.INITIALIZE, 0, {"args": {**all_args, **args}})
        return self.expect(wire.INITIALIZED).fields

    def ready(self):
        """Loads the model, which must succeed; returns itself."""
        answer = self.initialize()
        assert "error" not in answer, answer["error"]
        return self

    def auto_complete(self, config):
        self.a.send(wire.AUTO_COMPLETE, 0, {"config": config})
        return self.expect(wire.AUTO_COMPLETED).fields

    def next(self, timeout=TIMEOUT_S):
        """The next frame on A. Slots that it gives back are noted."""
        frame = self.a.receive(timeout)
        self.freed += [tuple(slot) for slot in frame.fields.get("f", ())]
        self.received.append(frame)
        return frame

    def expect(self, kind, timeout=TIMEOUT_S):
        """The next frame of that kind; other ones before it are kept in `received`."""
        while True:
            try:
                frame = self.next(timeout)
            except (EOFError, TimeoutError) as error:
                raise AssertionError(f"{error}; it wrote:\n{self.output()}") from error
            if frame.kind == kind:
                return frame

    def place(self, tensors, memory=False):
        """Fields and body of tensors (name, datatype, shape, values)."""
        fields, body = [], b""
        for name, datatype, shape, values in tensors:
            data = tensor_bytes(values, datatype)
            if memory:
                self.memory[self.top : self.top + len(data)] = data
                fields.append([name, datatype, shape, self._segment, self.top, len(data)])
                self.top += -(-max(1, len(data)) // 64) * 64
            else:
                fields.append([name, datatype, shape, -1, len(body), len(data)])
                body += data + bytes(-len(data) % 8)
        return fields, body

    def request(self, number, tensors=(), memory=False, **fields):
        """A request for `execute`: fields and body."""
        placed, body = self.place(tensors, memory)
        return {"i": number, "n": placed, **fields}, body

    def start(self, *requests, number=1):
        """Sends EXECUTE. Bodies are joined, so only the first request may have tensors in the frame with others."""
        fields, body = [], b""
        for each, data in requests:
            for tensor in each["n"]:
                if tensor[3] < 0:
                    tensor[4] += len(body)
            fields.append(each)
            body += data
        self.a.send(wire.EXECUTE, number, {"r": fields}, body)

    def execute(self, *requests, number=1):
        """Runs a batch; the EXECUTED frame."""
        self.start(*requests, number=number)
        return self.expect(wire.EXECUTED)

    def tensor(self, frame, fields):
        """The array, or the list of bytes, of a tensor of the process."""
        _name, datatype, shape, segment, offset, size = fields
        if segment < 0:
            data = frame.body[offset : offset + size]
        else:
            if segment not in self._maps:
                descriptor = os.open(f"/proc/{self.process.pid}/fd/{segment}", os.O_RDWR)
                assert fcntl.fcntl(descriptor, 1034) & 2, "sealed against shrinking"
                self._maps[segment] = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
                os.close(descriptor)
            assert offset % 64 == 0
            data = self._maps[segment][offset : offset + size]
        if datatype == "BYTES":
            values = []
            while data:
                length = struct.unpack_from("<I", data)[0]
                values.append(bytes(data[4 : 4 + length]))
                data = data[4 + length :]
            return values
        return np.frombuffer(data, _TYPES.get(datatype, np.uint16)).reshape(shape)

    def outputs(self, frame, index=0):
        """Outputs by name of a result in an EXECUTED, SEND or CALL frame."""
        results = frame.fields["r"] if "r" in frame.fields else {"o": frame.fields["n"]}
        result = results[index] if isinstance(results, list) else results
        return {fields[0]: self.tensor(frame, fields) for fields in result["o"]}

    def finalize(self):
        """Ends the model; the exit code of the process."""
        self.a.send(wire.FINALIZE)
        self.expect(wire.FINALIZED)
        return self.process.wait(TIMEOUT_S)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        for connection in (self.a, self.b):
            connection.sock.close()
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.listener.close()
            os.close(self._segment)
            self.errors.close()
            shutil.rmtree(self.folder)


HEADER = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
"""


def model(body):
    """Source of a model whose class has this body."""
    return HEADER + textwrap.indent(textwrap.dedent(body), "    ")
