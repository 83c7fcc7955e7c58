"""`execute` and what surrounds it, against a stand-in for the server (python-backend.md §A8)."""

import time

import numpy as np
import pytest
from stub_parent import StubParent, model, wire

ADD = model(
    """
    def execute(self, requests):
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", a + 1)]))
        return responses
    """
)


def answer(body):
    return model("def execute(self, requests):\n" + "\n".join(f"    {line}" for line in body.splitlines()))


def test_small_tensors_travel_in_the_frame():
    with StubParent(ADD) as parent:
        assert parent.hello_result == {"pid": parent.process.pid, "memory": True}
        assert parent.initialize() == {"isReady": False}
        first = parent.request(7, [("A", "FP32", [1, 4], [1, 2, 3, 4])])
        second = parent.request(8, [("A", "FP32", [1, 2], [5, 6])])
        done = parent.execute(first, second, number=42)
        assert done.number == 42
        assert parent.outputs(done, 0)["OUT"].tolist() == [[2, 3, 4, 5]]
        assert parent.outputs(done, 1)["OUT"].tolist() == [[6, 7]]
        assert [each["o"][0][3] for each in done.fields["r"]] == [-1, -1]
        assert parent.finalize() == 0


def test_large_tensors_travel_in_memory_and_go_back_with_the_answer():
    values = np.arange(100_000, dtype=np.float32)
    with StubParent(ADD).ready() as parent:
        for turn in range(5):
            request = parent.request(turn, [("A", "FP32", [100_000], values)], memory=True)
            done = parent.execute(request)
            assert np.array_equal(parent.outputs(done)["OUT"], values + 1)
            slot = done.fields["r"][0]["o"][0][3:5]
            assert slot[0] >= 0
            taken = request[0]["n"][0]
            assert done.fields["f"] == [[taken[3], taken[4]]]
            parent.b.send(wire.FREE, 0, {"f": [slot]})
            time.sleep(0.05)
        assert done.fields["r"][0]["o"][0][4] == 0, "its own slots are used again"


def test_inputs_stay_while_an_array_over_them_lives():
    source = model(
        """
        def initialize(self, args):
            self.kept = []

        def execute(self, requests):
            array = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
            array[0] = 9
            if not self.kept:
                self.kept.append(array[10:20])
            else:
                self.kept.clear()
            return [pb_utils.InferenceResponse()]
        """
    )
    with StubParent(source).ready() as parent:
        parent.execute(parent.request(1, [("A", "FP32", [8000], np.ones(8000))], memory=True))
        assert parent.freed == []
        assert parent.memory[:4].tobytes() == np.float32(9).tobytes(), "inputs are writable"
        done = parent.execute(parent.request(2, [("A", "FP32", [8000], np.ones(8000))], memory=True))
        assert len(done.fields["f"]) == 2


def test_without_another_frame_slots_go_back_on_their_own():
    source = model(
        """
        def execute(self, requests):
            import threading, time
            array = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
            threading.Thread(target=lambda kept: time.sleep(0.1), args=(array,)).start()
            return [pb_utils.InferenceResponse()]
        """
    )
    with StubParent(source).ready() as parent:
        parent.execute(parent.request(1, [("A", "FP32", [8000], np.ones(8000))], memory=True))
        assert len(parent.expect(wire.FREE, timeout=5).fields["f"]) == 1


def test_without_memory_everything_travels_in_frames():
    with StubParent(ADD, memory=False).ready() as parent:
        assert parent.hello_result["memory"] is False
        values = np.arange(200_000, dtype=np.float32)
        done = parent.execute(parent.request(1, [("A", "FP32", [200_000], values)]))
        assert np.array_equal(parent.outputs(done)["OUT"], values + 1)


def test_bytes_tensors():
    source = answer(
        """array = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
assert array.dtype == np.object_ and array.shape == (2, 2), array
array[0, 0] = "grün"
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])]"""
    )
    with StubParent(source).ready() as parent:
        done = parent.execute(parent.request(1, [("A", "BYTES", [2, 2], [b"a", b"", b"\x00\xff", b"d" * 20_000])]))
        assert parent.outputs(done)["OUT"] == ["grün".encode(), b"", b"\x00\xff", b"d" * 20_000]


def test_tensors_pass_through_without_becoming_arrays():
    source = answer(
        """tensors = requests[0].inputs()
return [pb_utils.InferenceResponse(tensors)]"""
    )
    with StubParent(source, outputs=["A", "B", "C"]).ready() as parent:
        tensors = [("A", "BYTES", [2], [b"x", b"yz"]), ("B", "BF16", [2], [16256, 1]), ("C", "BOOL", [2], [True, False])]
        outputs = parent.outputs(parent.execute(parent.request(1, tensors)))
        assert outputs["A"] == [b"x", b"yz"]
        assert outputs["B"].tolist() == [16256, 1]
        assert outputs["C"].tolist() == [True, False]


def test_only_requested_outputs_are_sent():
    source = answer(
        """make = lambda name: pb_utils.Tensor(name, np.zeros(1, np.int32))
return [pb_utils.InferenceResponse([make("X"), make("Y"), make("Z")]) for _ in requests]"""
    )
    with StubParent(source, outputs=["X", "Y"]).ready() as parent:
        done = parent.execute(parent.request(1), parent.request(2, o=["Y", "missing"]))
        assert list(parent.outputs(done, 0)) == ["X", "Y"]
        assert list(parent.outputs(done, 1)) == ["Y"]


def test_what_a_request_says():
    source = answer(
        """r = requests[0]
facts = [r.request_id(), r.correlation_id(), r.flags(), r.timeout(), r.parameters(), sorted(r.requested_output_names()),
         r.trace().get_context(), r.is_cancelled(), len(r.inputs())]
return [pb_utils.InferenceResponse(error=pb_utils.TritonError(repr(facts), pb_utils.TritonError.NOT_FOUND))]"""
    )
    with StubParent(source, outputs=["P", "Q"]).ready() as parent:
        done = parent.execute(parent.request(1))
        assert done.fields["r"] == [{"e": [2, "['', 0, 0, 0, '{}', ['P', 'Q'], None, False, 0]"]}]
        full = {"id": "i", "c": {"n": "18446744073709551615"}, "g": 3, "t": 11_000_000_000, "p": '{"a": 1}', "o": ["P"], "x": "ctx"}
        done = parent.execute(parent.request(2, **full))
        expected = ["i", 2**64 - 1, 3, 11_000_000_000, '{"a": 1}', ["P"], "ctx", False, 0]
        assert done.fields["r"] == [{"e": [2, repr(expected)]}]


def test_errors_and_parameters_of_responses():
    source = answer(
        """return [pb_utils.InferenceResponse(parameters={"k": 1, "s": "t", "b": True}),
        pb_utils.InferenceResponse(error=pb_utils.TritonError("broken"))]"""
    )
    with StubParent(source).ready() as parent:
        done = parent.execute(parent.request(1), parent.request(2))
        assert done.fields["r"] == [{"o": [], "p": '{"k": 1, "s": "t", "b": true}'}, {"e": [1, "broken"]}]


@pytest.mark.parametrize(
    "body, text",
    [
        ("return 5", "Expected a list in the execute return, found type '<class 'int'>'."),
        ("return []", "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
         "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n"),
        ("return ['x']", "Expected an 'InferenceResponse' object in the execute function return list, found type "
         "'<class 'str'>'."),
        ("requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)\n"
         "return [pb_utils.InferenceResponse()]",
         "Expected a None object in the execute function return list for reschduled request, found type "
         "'<class 'nereid_response.InferenceResponse'>'."),
        ("requests[0].get_response_sender().send(pb_utils.InferenceResponse())\nreturn [pb_utils.InferenceResponse()]",
         "Unable to send response. Non-decoupled model cannot send more than one response."),
        ("raise ValueError('odd')", "ValueError: odd\n\nAt:\n  {path}(8): execute\n"),
        ("pb_utils.Tensor('', np.zeros(1))",
         "TritonModelException: Tensor name cannot be an empty string.\n\nAt:\n  {path}(8): execute\n"),
        ("raise SystemExit(3)", "SystemExit: 3\n\nAt:\n  {path}(8): execute\n"),
    ],
)  # fmt: skip
def test_wrong_returns(body, text):
    with StubParent(answer(body)).ready() as parent:
        done = parent.execute(parent.request(1))
        expected = text.replace("{path}", str(parent.path))
        assert done.fields["error"] == f"Failed to process the request(s) for model 'm_0_0', message: {expected}"
        assert parent.execute(parent.request(2)).fields["error"], "the process goes on"


def test_traces_show_the_innermost_function_first():
    source = model(
        """
        def execute(self, requests):
            return self.helper(requests)

        def helper(self, requests):
            return [1 / 0 for _ in requests]
        """
    )
    with StubParent(source).ready() as parent:
        text = parent.execute(parent.request(1)).fields["error"]
        lines = text.split("\n\nAt:\n")[1].splitlines()
        assert text.split("message: ")[1].startswith("ZeroDivisionError: division by zero\n")
        assert lines[-2:] == [f"  {parent.path}(12): helper", f"  {parent.path}(9): execute"]


def test_missing_execute():
    with StubParent(model("pass")).ready() as parent:
        text = parent.execute(parent.request(1)).fields["error"]
        assert text.endswith(f"message: Python model {parent.path} does not implement `execute` method.")


def test_rescheduled_requests():
    source = answer(
        """requests[1].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
return [pb_utils.InferenceResponse(), None]"""
    )
    with StubParent(source).ready() as parent:
        done = parent.execute(parent.request(1), parent.request(2))
        assert done.fields == {"r": [{"o": []}, None], "k": [1]}
        with pytest.raises(TimeoutError):
            parent.next(timeout=0.3)


def test_a_request_that_is_never_answered_is_reported():
    with StubParent(answer("return None")).ready() as parent:
        done = parent.execute(parent.request(11))
        assert done.fields == {"r": [None]}
        assert parent.expect(wire.DROPPED).number == 11


def test_executions_that_wait_run_in_their_order():
    with StubParent(ADD).ready() as parent:
        for number in range(1, 9):
            request, body = parent.request(number, [("A", "FP32", [1], [number])])
            parent.a.send(wire.EXECUTE, 100 + number, {"r": [request]}, body)
        for number in range(1, 9):
            done = parent.expect(wire.EXECUTED)
            assert done.number == 100 + number
            assert parent.outputs(done)["OUT"].tolist() == [number + 1]


def test_async_execute():
    source = model(
        """
        async def execute(self, requests):
            import asyncio
            await asyncio.sleep(0.01)
            if requests[0].request_id() == "bad":
                raise ValueError("late")
            return [pb_utils.InferenceResponse() for _ in requests]
        """
    )
    with StubParent(source).ready() as parent:
        done = parent.execute(parent.request(1))
        assert done.fields == {"r": [{"o": []}]}
        assert done.took_us >= 10_000
        text = parent.execute(parent.request(2, id="bad")).fields["error"]
        assert text.endswith(f"message: ValueError: late\n\nAt:\n  {parent.path}(12): execute\n")


def test_a_response_that_needs_too_much_memory_fails_alone():
    source = answer(
        """n = int(pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()[0])
make = lambda count: pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(count, np.uint8))])
return [make(100_000), make(n)]"""
    )
    with StubParent(source, limits=(1 << 20, 2 << 20)).ready() as parent:
        done = parent.execute(parent.request(1, [("A", "INT32", [1], [3 << 20])]), parent.request(2))
        good, bad = done.fields["r"]
        assert len(good["o"]) == 1
        code, text = bad["e"]
        assert code == 1
        assert text.startswith("Failed to process the request(s) for model 'm_0_0', message: Failed to increase the shared memory pool size")
        parent.b.send(wire.FREE, 0, {"f": [good["o"][0][3:5]]})
        done = parent.execute(parent.request(3, [("A", "INT32", [1], [500_000])]), parent.request(4))
        assert [len(each["o"]) for each in done.fields["r"]] == [1, 1]


def test_outputs_wait_until_memory_comes_back():
    source = answer("return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(900_000, np.uint8))])]")
    with StubParent(source, limits=(1 << 20, 1 << 20)).ready() as parent:
        first = parent.execute(parent.request(1))
        parent.start(parent.request(2))
        with pytest.raises(TimeoutError):
            parent.next(timeout=0.3)
        parent.b.send(wire.FREE, 0, {"f": [first.fields["r"][0]["o"][0][3:5]]})
        assert len(parent.expect(wire.EXECUTED).fields["r"][0]["o"]) == 1


def test_arrays_of_any_order_and_kind():
    source = answer(
        """big = np.arange(40_000, dtype=np.int64).reshape(200, 200)
make = lambda name, array: pb_utils.Tensor(name, array)
return [pb_utils.InferenceResponse([make("T", big.T), make("S", np.arange(10, dtype=np.int32)[::2]),
        make("Z", np.zeros((0, 3), np.float32)), make("N", np.float32([7]).reshape(())),
        make("F", np.array([b"a", b"bc"])), make("H", np.float16([1.5]))])]"""
    )
    with StubParent(source, outputs=list("TSZNFH")).ready() as parent:
        outputs = parent.outputs(parent.execute(parent.request(1)))
        assert np.array_equal(outputs["T"], np.arange(40_000).reshape(200, 200).T)
        assert outputs["S"].tolist() == [0, 2, 4, 6, 8]
        assert outputs["Z"].shape == (0, 3)
        assert outputs["N"].tolist() == 7
        assert outputs["F"] == [b"a", b"bc"]
        assert outputs["H"].tolist() == [1.5]
