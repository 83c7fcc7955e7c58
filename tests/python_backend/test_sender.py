"""Response senders: checks in their order, windows, cancellation, and senders that nobody uses (§A6, §A10)."""

import time

import pytest
from stub_parent import StubParent, model, wire

CHECKS = """
def attempt(sender, *args, **kwargs):
    try:
        sender.send(*args, **kwargs)
        return "sent"
    except Exception as error:
        return f"{type(error).__name__}: {error}"

class Checks:
    def run(self, request):
        sender = request.get_response_sender()
        assert sender is request.get_response_sender()
        response = pb_utils.InferenceResponse()
        return [
            attempt(sender, response, flags=2),
            attempt(sender),
            attempt(sender, flags=1),
            attempt(sender, response),
            attempt(sender, response),
            attempt(sender, flags=1),
            attempt(sender, response),
            attempt(sender, flags=1),
            attempt(sender, "text"),
        ]
"""

SOURCE = (
    "import numpy as np\nimport triton_python_backend_utils as pb_utils\n"
    + CHECKS
    + """
class TritonPythonModel:
    def execute(self, requests):
        for line in Checks().run(requests[0]):
            pb_utils.Logger.log_info(line)
"""
)


def logged(parent, count):
    return [parent.expect(wire.LOG).fields["m"] for _ in range(count)]


def test_checks_of_a_model_with_one_response():
    with StubParent(SOURCE).ready() as parent:
        parent.start(parent.request(5))
        prefix = "TritonModelException: Unable to send response. "
        assert logged(parent, 9) == [
            prefix + "Unsupported flag provided.",
            "TritonModelException: Inference Response object must be provided when the response flags is set to zero.",
            prefix + "Non-decoupled model cannot send complete final before sending a response.",
            "sent",
            prefix + "Non-decoupled model cannot send more than one response.",
            "sent",
            prefix + "Non-decoupled model cannot send more than one response.",
            prefix + "Response sender has been closed.",
            "TypeError: send(): response must be a pb_utils.InferenceResponse, got <class 'str'>",
        ]
        assert parent.expect(wire.EXECUTED).fields == {"r": [None]}
        sends = [frame for frame in parent.received if frame.kind == wire.SEND]
        assert [(frame.number, frame.fields) for frame in sends] == [(5, {"r": {"o": []}}), (5, {"l": True})]


def test_checks_of_a_decoupled_model():
    with StubParent(SOURCE, decoupled=True).ready() as parent:
        parent.start(parent.request(5))
        closed = "TritonModelException: Unable to send response. Response sender has been closed."
        assert logged(parent, 9)[2:8] == ["sent", closed, closed, closed, closed, closed]


def test_a_decoupled_model_sends_from_a_thread_after_execute():
    source = model(
        """
        def execute(self, requests):
            import threading
            for request in requests:
                threading.Thread(target=self.answer, args=(request.get_response_sender(),)).start()

        def answer(self, sender):
            for n in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([n], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """
    )
    with StubParent(source, decoupled=True).ready() as parent:
        parent.start(parent.request(3))
        frames = [parent.expect(wire.SEND) for _ in range(4)]
        assert [parent.outputs(frame, 0)["OUT"].tolist() for frame in frames[:3]] == [[0], [1], [2]]
        assert frames[3].fields == {"l": True}
        with pytest.raises(TimeoutError):
            while True:
                assert parent.next(timeout=0.3).kind == wire.EXECUTED


def test_decoupled_execute_must_return_none():
    with StubParent(model("def execute(self, requests):\n    return []"), decoupled=True).ready() as parent:
        text = parent.execute(parent.request(1)).fields["error"]
        assert text.endswith("Python model 'm_0_0' is using the decoupled mode and the execute function must return None.")


def test_responses_on_their_way_are_bounded():
    source = model(
        """
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            for n in range(100):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([n], np.int32))]))
            sender.send(flags=1)
        """
    )
    with StubParent(source, decoupled=True).ready() as parent:
        parent.start(parent.request(1))
        for _ in range(wire.WINDOW):
            parent.expect(wire.SEND)
        with pytest.raises(TimeoutError):
            parent.next(timeout=0.3)
        parent.b.send(wire.CREDIT, 1, {"n": 30})
        for _ in range(30):
            parent.expect(wire.SEND)
        with pytest.raises(TimeoutError):
            parent.next(timeout=0.3)
        parent.b.send(wire.CREDIT, 1, {"n": 30})
        assert [parent.expect(wire.SEND).fields.get("l") for _ in range(7)] == [None] * 6 + [True]
        parent.expect(wire.EXECUTED)


def test_a_dropped_sender_is_reported_once():
    source = model(
        """
        def execute(self, requests):
            requests[0].get_response_sender().send(pb_utils.InferenceResponse())
            self.kept = requests[1]
        """
    )
    with StubParent(source, decoupled=True).ready() as parent:
        parent.start(parent.request(1), parent.request(2))
        assert parent.expect(wire.DROPPED).number == 1
        parent.start(parent.request(3), parent.request(4))
        assert sorted(parent.expect(wire.DROPPED).number for _ in range(2)) == [2, 3]


def test_cancellation_is_seen():
    source = model(
        """
        def execute(self, requests):
            import time
            request = requests[0]
            sender = request.get_response_sender()
            before = request.is_cancelled()
            while not request.is_cancelled():
                time.sleep(0.005)
            text = repr([before, request.is_cancelled(), sender.is_cancelled()])
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(text, pb_utils.TritonError.CANCELLED)), 1)
        """
    )
    with StubParent(source, decoupled=True).ready() as parent:
        parent.start(parent.request(9))
        time.sleep(0.1)
        parent.b.send(wire.CANCELLED, 9)
        assert parent.expect(wire.SEND).fields == {"r": {"e": [7, "[False, True, True]"]}, "l": True}


def test_a_failed_execute_closes_all_senders():
    source = model(
        """
        def initialize(self, args):
            self.senders = []

        def execute(self, requests):
            if self.senders:
                try:
                    self.senders[0].send(flags=1)
                except pb_utils.TritonModelException as error:
                    pb_utils.Logger.log_error(str(error))
                requests[0].get_response_sender().send(flags=1)
                return
            self.senders = [request.get_response_sender() for request in requests]
            raise ValueError("x")
        """
    )
    with StubParent(source, decoupled=True).ready() as parent:
        assert "ValueError: x" in parent.execute(parent.request(1), parent.request(2)).fields["error"]
        parent.execute(parent.request(3))
        log = next(frame for frame in parent.received if frame.kind == wire.LOG)
        assert log.fields["m"] == "Unable to send response. Response sender has been closed."
        assert not [frame for frame in parent.received if frame.kind == wire.DROPPED]


def test_async_decoupled_batches_run_side_by_side():
    source = model(
        """
        async def execute(self, requests):
            import asyncio
            await asyncio.sleep(0.2 if requests[0].request_id() == "slow" else 0)
            if requests[0].request_id() == "bad":
                raise ValueError("late")
            requests[0].get_response_sender().send(pb_utils.InferenceResponse(), flags=1)
        """
    )
    with StubParent(source, decoupled=True).ready() as parent:
        parent.execute(parent.request(1, id="slow"))
        parent.start(parent.request(2))
        while sum(frame.kind == wire.SEND for frame in parent.received) < 2:
            parent.next()
        assert [frame.number for frame in parent.received if frame.kind == wire.SEND] == [2, 1]
        parent.execute(parent.request(3, id="bad"))
        logs = [frame for frame in parent.received if frame.kind == wire.LOG]
        log = (logs or [parent.expect(wire.LOG)])[0].fields
        assert log["l"] == "ERROR" and "ValueError: late" in log["m"] and log["s"] == "model.py" and log["n"] == 12
        drops = [frame for frame in parent.received if frame.kind == wire.DROPPED]
        assert (drops or [parent.expect(wire.DROPPED)])[0].number == 3
