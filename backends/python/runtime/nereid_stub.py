"""The process of one model instance: started by the server with the path of its socket (wire.md)."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from typing import Any, Optional


def _ignore_signals() -> None:
    """Ctrl-C must not end models before the server finalizes them. A handler, unlike SIG_IGN, is not inherited."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)


def _die_with_server() -> None:
    """On Linux the end of the server ends this process, also while it is stuck in native code."""
    if sys.platform.startswith("linux"):
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)


def _load_error(error: ImportError) -> str:
    return (
        f"Python models need NumPy, and {sys.executable} (Python {sys.version.split()[0]}) cannot import it: {error}. "
        f"Install it with `{sys.executable} -m pip install numpy`, or name another interpreter with "
        "`--backend-config=python,python-executable=PATH`"
    )


def _end(status: int) -> None:
    """Ends without the interpreter's own end, which would wait for threads of the model."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    os._exit(status)


class Stub:
    """Answers the server's frames until it says that it is enough."""

    def __init__(self, path: str) -> None:
        import nereid_link
        import nereid_session
        import nereid_wire

        self._wire = nereid_wire
        self._link = nereid_link.Link(path)
        self._session = nereid_session.session
        self._runner: Any = None
        self._fault: Optional[str] = None
        self._greet()

    def _greet(self) -> None:
        kind, _number, hello, _body = self._link.reader.read()
        if kind != self._wire.HELLO:
            raise EOFError(f"the server must greet first, it sends a frame of kind {kind}")
        self._session.link = self._link
        self._session.describe(hello)
        limits = hello["limits"]
        has_memory = bool(hello.get("memory")) and self._link.open_memory(
            hello["pid"], hello["segment"], limits["growth"], limits["max"]
        )
        try:
            import nereid_runner

            self._runner = nereid_runner.ModelRunner(hello)
        except ImportError as error:
            self._fault = _load_error(error)
        # What is there before the model is never garbage, so it need not be looked at again.
        gc.freeze()
        gc.enable()
        self._link.start()
        self._link.send(self._wire.HELLO_RESULT, 0, {"pid": os.getpid(), "memory": has_memory})

    def run(self) -> None:
        """Reads frames on the main thread, where the model's code runs."""
        wire, link = self._wire, self._link
        read = link.reader.read
        while True:
            kind, number, fields, body = read()
            if "f" in fields:
                link.take_back(fields["f"])
            if kind == wire.EXECUTE:
                self._runner.execute(number, fields["r"], body)
            elif kind == wire.INITIALIZE:
                answer = {"error": self._fault} if self._fault else self._runner.initialize(fields["args"])
                link.send(wire.INITIALIZED, 0, answer)
            elif kind == wire.AUTO_COMPLETE:
                answer = {"error": self._fault} if self._fault else self._runner.auto_complete(fields["config"])
                link.send(wire.AUTO_COMPLETED, 0, answer)
            elif kind == wire.FINALIZE:
                self._finalize()
            elif kind == wire.LOG_LEVEL:
                self._runner.set_verbose_level(fields["verbose"])
            # What the frame brought must not live until the next one comes.
            fields = body = None

    def _finalize(self) -> None:
        if self._runner is not None:
            self._runner.finalize()
        # As at the end of an interpreter: pools of processes and the like are closed there.
        atexit._run_exitfuncs()
        self._link.send(self._wire.FINALIZED, 0, {})
        _end(0)


def main() -> None:
    """Runs the model of the server at the socket that the command line names."""
    path = sys.argv[1]
    # Importing makes no garbage to speak of; looking for it costs a tenth of the start.
    gc.disable()
    # Models see the command line of an embedded interpreter; `unittest.main` in a model reads it.
    sys.argv[:] = [""]
    folder = os.path.dirname(os.path.abspath(__file__))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    _ignore_signals()
    _die_with_server()
    try:
        Stub(path).run()
    except (EOFError, OSError):
        _end(1)


if __name__ == "__main__":
    main()
