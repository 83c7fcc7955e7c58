"""Loading, its faults, readiness, the end, and the process around the model (§A1, §A2)."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from stub_parent import RUNTIME, StubParent, model, wire


def loading_error(source, **options):
    with StubParent(source, **options) as parent:
        answer = parent.initialize()
        return answer["error"], str(parent.path)


def test_syntax_errors_show_the_line():
    text, path = loading_error("x = 1\ndef broken(:\n    pass\n")
    assert text.startswith("SyntaxError: ") and "(model.py, line 2)" in text
    assert f'File "{path}", line 2\n' in text and "def broken(:" in text


def test_missing_modules_name_the_interpreter():
    text, path = loading_error("\nimport no_such_module_anywhere\n")
    assert text.startswith(f"ModuleNotFoundError: No module named 'no_such_module_anywhere'\n\nAt:\n  {path}(2): <module>\n")
    assert sys.executable in text


@pytest.mark.parametrize(
    "source, text",
    [
        ("x = 1", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'\n\nAt:\n  {path}(1): "),
        ("TritonPythonModel = 5", "TypeError: 'int' object is not callable\n\nAt:\n  {path}(1): "),
        (model("def __init__(self):\n    raise RuntimeError('no')"), "RuntimeError: no\n\nAt:\n  {path}(8): __init__\n"),
        (model("def initialize(self, args):\n    raise KeyError('k')"), "KeyError: 'k'\n\nAt:\n  {path}(8): initialize\n"),
        (model("def initialize(self, args):\n    import sys; sys.exit(4)"), "SystemExit: 4\n\nAt:\n  {path}(8): initialize\n"),
        ("raise ValueError('top')", "ValueError: top\n\nAt:\n  {path}(1): <module>\n"),
        (None, "Python model file not found in '{path}'"),
    ],
)  # fmt: skip
def test_broken_models(source, text):
    error, path = loading_error(source)
    assert error.startswith(text.replace("{path}", path)), error


def test_without_numpy_the_error_says_what_to_do(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('not here')\n")
    text, _path = loading_error(model("pass"), environment={"PYTHONPATH": str(tmp_path)})
    assert text.startswith(f"Python models need NumPy, and {sys.executable} (Python ")
    assert f"`{sys.executable} -m pip install numpy`" in text and "not here" in text


def test_a_model_that_ends_the_process_ends_it():
    with StubParent(model("def initialize(self, args):\n    import os; os._exit(7)")) as parent:
        parent.a.send(wire.INITIALIZE, 0, {"args": {}})
        with pytest.raises(EOFError):
            parent.next()
        assert parent.process.wait(5) == 7


def test_what_a_model_sees():
    source = """
    import sys, os, json
    import triton_python_backend_utils as pb_utils
    import sibling, beside

    class TritonPythonModel:
        def initialize(self, args):
            facts = [__name__, sys.argv, sys.path[-3:], sibling.NAME, beside.NAME, pb_utils.get_model_dir(), args,
                     os.environ["PROBE"], os.getcwd()]
            raise ValueError(json.dumps(facts))
    """
    files = {"1/sibling.py": "NAME = 's'", "beside.py": "NAME = 'b'"}
    with StubParent(source, files=files, environment={"PROBE": "seen"}) as parent:
        text = parent.initialize()["error"]
        facts = json.loads(text[len("ValueError: ") : text.index("\n\nAt:")])
        model_directory = str(parent.model)
        args = facts.pop(6)
        assert facts == [
            "1.model", [""], [f"{model_directory}/1", model_directory, str(RUNTIME)], "s", "b", f"{model_directory}/1",
            "seen", os.getcwd(),
        ]  # fmt: skip
        assert set(args) == {
            "model_config", "model_instance_kind", "model_instance_name", "model_instance_device_id", "model_repository",
            "model_version", "model_name",
        }  # fmt: skip


def test_the_same_code_as_a_backend_of_its_own():
    with StubParent(model("pass"), module="model").ready() as parent:
        assert parent.finalize() == 0


def test_auto_complete():
    source = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            config.set_max_batch_size(4)
            config.add_input({"name": "I", "data_type": "TYPE_FP32", "dims": [-1]})
            config.add_output({"name": "O", "data_type": "TYPE_FP32", "dims": [-1]})
            config.set_dynamic_batching()
            config.set_model_transaction_policy({"decoupled": True})
            return config
    """
    empty = {"name": "m", "max_batch_size": 0, "input": [], "output": []}
    with StubParent(source) as parent:
        assert parent.auto_complete(empty) == {
            "config": {
                "name": "m", "max_batch_size": 4, "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [-1]}],
                "output": [{"name": "O", "data_type": "TYPE_FP32", "dims": [-1]}], "dynamic_batching": {},
                "model_transaction_policy": {"decoupled": True},
            }
        }  # fmt: skip
    with StubParent(model("pass")) as parent:
        assert parent.auto_complete(empty) == {"config": empty}
    with StubParent(source.replace("return config", "return 5")) as parent:
        text = "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."
        assert parent.auto_complete(empty) == {"error": text}
    with StubParent(source) as parent:
        error = parent.auto_complete({**empty, "max_batch_size": 8})["error"]
        assert error == (
            "ValueError: configuration specified max_batch_size 8, but in auto-complete-config function for model 'm' "
            f"specified max_batch_size 4\n\nAt:\n  {parent.path}(7): auto_complete_config\n"
        )


def ready_answers(body, count=1):
    with StubParent(model(body)) as parent:
        assert parent.initialize() == {"isReady": True}
        for number in range(count):
            parent.b.send(wire.IS_READY, number)
        return [parent.expect(wire.READY).fields for _ in range(count)]


def test_is_ready():
    assert ready_answers("def is_ready(self):\n    return False") == [{"v": False}]
    assert ready_answers("async def is_ready(self):\n    return True", 2) == [{"v": True}] * 2
    assert ready_answers("def is_ready(self):\n    return 1") == [{"error": "is_ready() must return a boolean value"}]
    (answer,) = ready_answers("def is_ready(self):\n    raise ValueError('v')")
    assert answer["error"].startswith("ValueError: v\n\nAt:\n")


def test_is_ready_answers_while_execute_runs():
    source = model(
        """
        def execute(self, requests):
            import time
            time.sleep(1)
            return [pb_utils.InferenceResponse()]

        def is_ready(self):
            return True
        """
    )
    with StubParent(source).ready() as parent:
        parent.start(parent.request(1))
        parent.b.send(wire.IS_READY, 5)
        assert parent.next().kind == wire.READY
        parent.expect(wire.EXECUTED)


def test_finalize_comes_last_and_its_faults_are_logged():
    source = model(
        """
        def finalize(self):
            print("the end is written")
            raise ValueError("f")
        """
    )
    with StubParent(source).ready() as parent:
        assert parent.finalize() == 0
        log = next(frame for frame in parent.received if frame.kind == wire.LOG)
        assert log.fields["l"] == "INFO" and "ValueError: f" in log.fields["m"]
        assert "the end is written" in parent.output()


def test_signals_do_not_end_the_process():
    with StubParent(model("def execute(self, requests):\n    return [pb_utils.InferenceResponse()]")).ready() as parent:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(parent.process.pid, number)
        time.sleep(0.1)
        parent.execute(parent.request(1))


@pytest.mark.parametrize("connection", ["a", "b"])
def test_the_end_of_a_connection_ends_the_process(connection):
    source = model("def execute(self, requests):\n    import time; time.sleep(60)")
    with StubParent(source).ready() as parent:
        if connection == "b":
            parent.start(parent.request(1))
        getattr(parent, connection).sock.close()
        assert parent.process.wait(5) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG")
def test_the_death_of_the_server_ends_a_process_that_is_stuck(tmp_path):
    """The server here is a process of its own, which is killed while native code holds the interpreter."""
    script = f"""
import sys, time
sys.path[:0] = [{str(os.path.dirname(__file__))!r}]
from stub_parent import StubParent, model
source = model('''
def execute(self, requests):
    import ctypes
    print("stuck", flush=True)
    ctypes.PyDLL(None).sleep(60)
''')
parent = StubParent(source).ready()
parent.start(parent.request(1))
while "stuck" not in parent.output():
    time.sleep(0.02)
print(parent.process.pid, parent.folder, flush=True)
time.sleep(60)
"""
    server = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pid, folder = server.stdout.readline().split()
    server.kill()
    server.wait()
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}") or open(f"/proc/{pid}/stat").read().split()[2] == "Z"
    subprocess.run(["rm", "-rf", folder], check=True)


def test_the_log_names_the_caller():
    source = model(
        """
        def initialize(self, args):
            pb_utils.Logger.log_info("a")
            pb_utils.Logger.log("b", pb_utils.Logger.WARNING)
            pb_utils.Logger.log_error("c")
            pb_utils.Logger.log_verbose("d")
        """
    )
    with StubParent(source).ready() as parent:
        logs = [frame.fields for frame in parent.received if frame.kind == wire.LOG]
        assert logs == [
            {"l": level, "s": "model.py", "n": line, "m": text}
            for level, line, text in (("INFO", 9, "a"), ("WARNING", 10, "b"), ("ERROR", 11, "c"))
        ]
    with StubParent(source, log=1).ready() as parent:
        assert parent.received[-2].fields["l"] == "VERBOSE"


def test_the_verbose_level_can_change():
    source = model("def execute(self, requests):\n    pb_utils.Logger.log_verbose('v')\n    return [pb_utils.InferenceResponse()]")
    with StubParent(source).ready() as parent:
        parent.execute(parent.request(1))
        parent.a.send(wire.LOG_LEVEL, 0, {"verbose": 1})
        parent.execute(parent.request(2))
        assert [frame.fields["m"] for frame in parent.received if frame.kind == wire.LOG] == ["v"]
