"""Calls of other models, model control and metrics (§A5, §A6, §A9)."""

import numpy as np
import pytest
from stub_parent import StubParent, model, wire

CALL = """
import asyncio
import json
import numpy as np
import triton_python_backend_utils as pb_utils


def call(**more):
    x = pb_utils.Tensor("X", np.arange(4, dtype=np.float32))
    return pb_utils.InferenceRequest(model_name="other", requested_output_names=["Y", "W"], inputs=[x], **more)


def answer(value):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(repr(value)))


def facts(response):
    if response.has_error():
        return [int(response.error().code()), response.error().message()]
    return [(t.name(), t.as_numpy().tolist()) for t in response.output_tensors()] + [response.parameters()]


class TritonPythonModel:
"""


def caller(body):
    return CALL + "\n".join(f"    {line}" for line in body.strip().splitlines()) + "\n"


def reply_with(parent, question, values=(7.0, 8.0), memory=False, **fields):
    placed, body = parent.place([("Y", "FP32", [len(values)], values)], memory)
    parent.b.send(wire.REPLY, question.number, {"o": placed, **fields}, body)


def told(parent):
    return parent.expect(wire.EXECUTED).fields["r"][0]["e"][1]


SYNC = caller("""
def execute(self, requests):
    trace = requests[0].trace()
    return [answer(facts(call(request_id="q", correlation_id=2**60, flags=1, timeout=11_000_000_000, trace=trace,
                              model_version=3, parameters={"k": "v"}).exec()))]
""")


def test_a_call_and_its_answer():
    with StubParent(SYNC).ready() as parent:
        parent.start(parent.request(77, y=True))
        question = parent.expect(wire.CALL)
        tensor = question.fields.pop("n")
        assert question.fields == {
            "m": "infer", "model": "other", "version": 3, "id": "q", "c": {"n": str(2**60)}, "g": 1, "t": 11_000_000_000,
            "p": '{"k": "v"}', "o": ["W", "Y"], "y": 77,
        }  # fmt: skip
        assert parent.tensor(question, tensor[0]).tolist() == [0, 1, 2, 3]
        reply_with(parent, question, p='{"z": 1}')
        assert told(parent) == "[('Y', [7.0, 8.0]), '{\"z\": 1}']"


@pytest.mark.parametrize("fields", [{"e": [3, "no"]}, {"error": [3, "no"]}])
def test_a_call_that_fails_gives_an_error_response(fields):
    with StubParent(SYNC).ready() as parent:
        parent.start(parent.request(1))
        parent.b.send(wire.REPLY, parent.expect(wire.CALL).number, fields)
        assert told(parent) == "[3, 'no']"


def test_large_answers_go_back_when_they_are_not_used_any_more():
    with StubParent(SYNC).ready() as parent:
        parent.start(parent.request(1))
        reply_with(parent, parent.expect(wire.CALL), np.zeros(8000), memory=True)
        done = parent.expect(wire.EXECUTED)
        assert len(done.fields["f"]) == 1


def test_calls_from_coroutines_run_side_by_side():
    source = caller("""
async def execute(self, requests):
    responses = await asyncio.gather(*[call().async_exec() for _ in range(3)])
    return [answer([r.output_tensors()[0].as_numpy()[0] for r in responses])]
""").replace("repr(value)", "repr([float(v) for v in value])")
    with StubParent(source).ready() as parent:
        parent.start(parent.request(1))
        questions = [parent.expect(wire.CALL) for _ in range(3)]
        for value, question in reversed(list(enumerate(questions))):
            reply_with(parent, question, [value])
        assert told(parent) == "[0.0, 1.0, 2.0]"


def test_a_coroutine_that_gives_up_cancels_its_call():
    source = caller("""
async def execute(self, requests):
    try:
        await asyncio.wait_for(call().async_exec(), 0.05)
    except asyncio.TimeoutError:
        return [answer("late")]
""")
    with StubParent(source).ready() as parent:
        parent.start(parent.request(1))
        question = parent.expect(wire.CALL)
        assert parent.expect(wire.CALL_CANCEL).number == question.number
        assert told(parent) == "'late'"
        reply_with(parent, question, np.zeros(8000), memory=True)
        assert len(parent.expect(wire.FREE).fields["f"]) == 1


STREAM = caller("""
def execute(self, requests):
    stream = call().exec(decoupled=True)
    first = [facts(next(stream))]
    rest = [facts(response) for response in stream]
    again = len(list(stream))
    try:
        next(stream)
        end = "more"
    except StopIteration:
        end = "end"
    return [answer([first, rest, again, end])]
""")


def item(parent, question, value=None, last=False):
    fields, body = ({}, b"")
    if value is not None:
        placed, body = parent.place([("Y", "FP32", [1], [value])])
        fields["r"] = {"o": placed}
    parent.b.send(wire.ITEM, question.number, {**fields, **({"l": True} if last else {})}, body)


def test_a_stream_is_an_iterator_that_can_be_read_again():
    with StubParent(STREAM).ready() as parent:
        parent.start(parent.request(1))
        question = parent.expect(wire.CALL)
        assert question.fields["m"] == "stream"
        item(parent, question, 1)
        item(parent, question, 2)
        item(parent, question, last=True)
        assert told(parent) == "[[[('Y', [1.0]), '']], [[('Y', [2.0]), ''], ['{}']], 3, 'end']"


def test_a_stream_that_cannot_begin_has_one_error():
    with StubParent(STREAM).ready() as parent:
        parent.start(parent.request(1))
        parent.b.send(wire.REPLY, parent.expect(wire.CALL).number, {"error": [2, "unknown"]})
        assert told(parent) == "[[[2, 'unknown']], [[2, 'unknown']], 1, 'end']", "once read, it begins anew"


def test_the_window_of_a_stream_opens_as_items_are_read():
    source = caller("""
def execute(self, requests):
    return [answer(len(list(call().exec(decoupled=True))))]
""")
    with StubParent(source).ready() as parent:
        parent.start(parent.request(1))
        question = parent.expect(wire.CALL)
        for _ in range(40):
            item(parent, question, 1)
        granted = [parent.expect(wire.CALL_CREDIT) for _ in range(2)]
        assert [(frame.number, frame.fields["n"]) for frame in granted] == [(question.number, 16)] * 2
        item(parent, question, 1, last=True)
        assert told(parent) == "41"


def test_a_stream_can_be_cancelled_and_left():
    source = caller("""
def execute(self, requests):
    stream = call().exec(decoupled=True)
    next(stream)
    stream.cancel()
    del stream
    return [answer("left")]
""")
    with StubParent(source).ready() as parent:
        parent.start(parent.request(1))
        question = parent.expect(wire.CALL)
        item(parent, question, 1)
        assert parent.expect(wire.CALL_CANCEL).number == question.number
        assert told(parent) == "'left'"
        placed, _ = parent.place([("Y", "FP32", [8000], np.zeros(8000))], memory=True)
        parent.b.send(wire.ITEM, question.number, {"r": {"o": placed}})
        assert parent.expect(wire.CALL_CREDIT).fields["n"] == 1
        while not parent.freed:
            parent.next(timeout=5)


def test_a_coroutine_gets_the_iterator_with_the_first_item():
    source = caller("""
async def execute(self, requests):
    waiting = asyncio.ensure_future(call().async_exec(decoupled=True))
    await asyncio.sleep(0.2)
    early = waiting.done()
    pb_utils.Logger.log_info("go on")
    stream = await waiting
    return [answer([early] + [len(r.output_tensors()) for r in stream])]
""")
    with StubParent(source).ready() as parent:
        parent.start(parent.request(1))
        question = parent.expect(wire.CALL)
        parent.expect(wire.LOG)
        item(parent, question, 1)
        item(parent, question, last=True)
        assert told(parent) == "[False, 1, 0]"


def test_calls_are_for_execute_only():
    source = caller("""
def initialize(self, args):
    try:
        call().exec()
    except pb_utils.TritonModelException as error:
        raise ValueError(str(error))
""")
    with StubParent(source) as parent:
        assert parent.initialize()["error"].startswith("ValueError: BLS is only supported during the 'execute' function.\n")


def test_inputs_that_do_not_fit_are_an_error_response():
    source = caller("""
def execute(self, requests):
    big = pb_utils.Tensor("X", np.zeros(3 << 20, np.uint8))
    request = pb_utils.InferenceRequest(model_name="o", requested_output_names=[], inputs=[big])
    return [answer(facts(request.exec())), answer(facts(next(request.exec(decoupled=True))))]
""")
    with StubParent(source, limits=(1 << 20, 2 << 20)).ready() as parent:
        done = parent.execute(parent.request(1), parent.request(2))
        assert all("Failed to increase the shared memory pool size" in each["e"][1] for each in done.fields["r"])


def test_forked_children_call_on_their_own_connection():
    source = caller("""
def execute(self, requests):
    import multiprocessing
    kept = requests[0].inputs()[0].as_numpy()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return [answer(pool.apply(ask))]
""").replace("class Triton", """
def ask():
    pb_utils.Logger.log_info("from the child")
    return facts(call().exec())


class Triton""")
    with StubParent(source).ready() as parent:
        parent.start(parent.request(1, [("A", "FP32", [8000], np.zeros(8000))], memory=True))
        child = parent.accept_forked()
        for turn in range(1):
            question = child.receive()
            assert question.kind == wire.CALL and question.fields["n"][0][3] == -1
            placed, body = parent.place([("Y", "FP32", [1], [turn])])
            child.send(wire.REPLY, question.number, {"o": placed}, body)
        assert told(parent) == "[('Y', [0.0]), '']"
        assert "from the child" in parent.output()
        assert not [frame for frame in parent.received if frame.kind == wire.DROPPED]


def test_forked_children_end_with_the_process():
    source = caller("""
def initialize(self, args):
    import multiprocessing
    self.pool = multiprocessing.get_context("fork").Pool(2)
    print("children", [p.pid for p in self.pool._pool], flush=True)
""")
    import os
    import time

    with StubParent(source).ready() as parent:
        children = eval(parent.output().split("children ")[1])
        parent.process.kill()
        with pytest.raises(EOFError):
            parent.next(timeout=5)
        deadline = time.monotonic() + 5
        while any(os.path.exists(f"/proc/{pid}/maps") and open(f"/proc/{pid}/stat").read().split()[2] != "Z" for pid in children):
            assert time.monotonic() < deadline
            time.sleep(0.05)


CONTROL = caller("""
def initialize(self, args):
    seen = []
    def attempt(function, *args, **kwargs):
        try:
            seen.append(function(*args, **kwargs))
        except Exception as error:
            seen.append(f"{type(error).__name__}: {error}")
    attempt(pb_utils.load_model, "a")
    attempt(pb_utils.load_model, "a", config="{}", files={"file:1/model.py": b"text"})
    attempt(pb_utils.load_model, "a", files=[1])
    attempt(pb_utils.load_model, model_name=None)
    attempt(pb_utils.unload_model, "a", unload_dependents=True)
    attempt(pb_utils.is_model_ready, "a", "1")
    raise ValueError(json.dumps(seen))
""")


def test_model_control():
    with StubParent(CONTROL) as parent:
        parent.a.send(wire.INITIALIZE, 0, {"args": {}})
        first = parent.expect(wire.CALL)
        assert first.fields == {"m": "load", "model": "a", "config": ""}
        parent.b.send(wire.REPLY, first.number, {"v": None})
        second = parent.expect(wire.CALL)
        assert second.fields["files"] == [["file:1/model.py", -1, 0, 4]] and second.body[:4] == b"text"
        parent.b.send(wire.REPLY, second.number, {"error": [4, "no control"]})
        third = parent.expect(wire.CALL)
        assert third.fields == {"m": "unload", "model": "a", "dependents": True}
        parent.b.send(wire.REPLY, third.number, {"error": [2, "gone"]})
        fourth = parent.expect(wire.CALL)
        assert fourth.fields == {"m": "ready", "model": "a", "version": "1"}
        parent.b.send(wire.REPLY, fourth.number, {"v": True})
        text = parent.expect(wire.INITIALIZED).fields["error"]
        import json

        assert json.loads(text[len("ValueError: ") : text.index("\n\nAt")]) == [
            None,
            "TritonModelException: Failed to load model: no control",
            "TritonModelException: failed to load model 'a', files should be a dictionary of file paths and file contents",
            "TypeError: load_model(): model_name must be a str, got <class 'NoneType'>",
            "TritonModelException: Failed to unload model: gone",
            True,
        ]


METRICS = caller("""
def initialize(self, args):
    family = pb_utils.MetricFamily(name="n", description="d", kind=pb_utils.MetricFamily.COUNTER)
    metric = family.Metric(labels={"l": "v"})
    metric.increment(2)
    value = metric.value()
    histogram = pb_utils.MetricFamily("h", "d", pb_utils.MetricFamily.HISTOGRAM)
    seen = [value]
    def attempt(function, *args, **kwargs):
        try:
            seen.append(function(*args, **kwargs))
        except Exception as error:
            seen.append(f"{type(error).__name__}: {error}")
    attempt(histogram.Metric)
    attempt(family.Metric, buckets=[1.0])
    attempt(histogram.Metric, buckets=(1,))
    attempt(family.Metric, labels=[1])
    attempt(metric.increment, "x")
    metric.set(float("-inf"))
    del family
    attempt(metric.value)
    del metric
    raise ValueError(json.dumps(seen))
""")


def test_metrics():
    with StubParent(METRICS) as parent:
        parent.a.send(wire.INITIALIZE, 0, {"args": {}})
        questions = []
        for value in (10, 20, None, 2.0, 11, None):
            questions.append(parent.expect(wire.CALL))
            parent.b.send(wire.REPLY, questions[-1].number, {"v": value})
        assert [question.fields for question in questions] == [
            {"m": "family", "kind": "counter", "name": "n", "description": "d"},
            {"m": "metric", "family": 10, "labels": {"l": "v"}},
            {"m": "increment", "metric": 20, "x": 2.0},
            {"m": "value", "metric": 20},
            {"m": "family", "kind": "histogram", "name": "h", "description": "d"},
            {"m": "set", "metric": 20, "x": "-Infinity"},
        ]
        text = parent.expect(wire.INITIALIZED).fields["error"]
        gone = "TritonModelException: Invalid metric operation as the corresponding 'MetricFamily' has been deleted. "
        assert "[2.0, \"TritonModelException: Failed to create metric. Missing required buckets." .replace('"', '"') in text
        for part in ("Unexpected buckets found.", "Buckets must be a list.", "Labels must be a dictionary.",
                     "TypeError: increment(): the value must be a number", gone[:60]):  # fmt: skip
            assert part in text, text
        drops = []
        while len(drops) < 3:
            frames = [frame for frame in parent.received if frame.kind == wire.CALL and frame.fields["m"] == "drop"]
            drops = [{key: value for key, value in frame.fields.items() if key != "m"} for frame in frames]
            if len(drops) < 3:
                parent.next()
        assert sorted(drops, key=str) == [{"family": 10}, {"family": 11}, {"metric": 20}]


def test_slots_are_not_lost_with_a_call_that_is_too_large():
    source = CALL + """
    def execute(self, requests):
        import nereid_wire
        if not hasattr(self, "kept"):
            self.kept = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
            return [answer("kept")]
        nereid_wire.MAX_FRAME_BYTES, limit = 500, nereid_wire.MAX_FRAME_BYTES
        self.kept = None
        refused = call(parameters={"text": "x" * 1000}).exec()
        nereid_wire.MAX_FRAME_BYTES = limit
        return [answer(facts(refused))]
"""
    with StubParent(source) as parent:
        parent.initialize()
        request = parent.request(1, [("A", "FP32", [8000], np.zeros(8000))], memory=True)
        slot = request[0]["n"][0][3:5]
        assert slot not in parent.execute(request).fields.get("f", [])
        done = parent.execute(parent.request(2), number=2)
        assert "is larger than the 500 bytes" in done.fields["r"][0]["e"][1]
        assert slot in done.fields["f"]
        assert parent.finalize() == 0
