"""A text generator that sends a response per token (decoupled), in TypeScript and in Python."""

import json
import queue

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from nereid_testing.observe import pending, wait_until
from nereid_testing.protocols import GrpcProtocol, text_array
from nereid_testing.raw_http import post_json

STORY = (
    "summarize: The user asked to fix a failing test in the parser. I read parser.py, found that empty lines were not "
    "skipped, changed the loop and ran pytest, all 42 tests pass."
)
OTHER_STORY = "summarize: The customer wrote that the new blue bicycle arrived with a broken bell and asked for a new one."


@pytest.fixture(autouse=True)
def fetched(needs_model):
    needs_model("title")


@pytest.fixture(scope="module")
def write_title(real_models):
    """The same by ONNX Runtime itself: int8 models are not the same on every processor, so no text is fixed here."""
    root = real_models["root"] / "python"
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    run = {
        name: onnxruntime.InferenceSession(str(root / name / "1" / "model.onnx"), options)
        for name in ("title_encoder", "title_decoder")
    }
    tokenizer = Tokenizer.from_file(str(root / "title" / "1" / "tokenizer.json"))
    tokenizer.no_padding()

    def write(story, limit=24):
        ids = np.array([tokenizer.encode(story).ids], np.int64)
        mask = np.ones_like(ids)
        [hidden] = run["title_encoder"].run(None, {"input_ids": ids, "attention_mask": mask})
        made, texts = [0], [""]
        while len(made) <= limit:
            feed = {"input_ids": np.array([made], np.int64), "encoder_hidden_states": hidden, "encoder_attention_mask": mask}
            made.append(int(run["title_decoder"].run(None, feed)[0][0, -1].argmax()))
            if made[-1] == 1:
                break
            texts.append(tokenizer.decode(made, skip_special_tokens=True))
        return [after[len(before) :] for before, after in zip(texts, texts[1:])]

    return write


def events(server, request):
    answer = post_json(server, "/v2/models/title/generate_stream", request)
    assert answer.status == 200, answer.body
    return [json.loads(line[len("data: ") :]) for line in answer.body.decode().split("\n\n") if line.startswith("data: ")]


def stream(server, story, **arrays):
    """The pieces of a title over a gRPC stream."""
    protocol, answers = GrpcProtocol(server), queue.Queue()
    protocol.client.start_stream(lambda result, error: answers.put((result, error)))
    inputs = protocol.inputs({"TEXT": text_array([story]), **arrays})
    protocol.client.async_stream_infer("title", inputs, enable_empty_final_response=True)
    pieces = []
    try:
        while True:
            result, error = answers.get(timeout=60)
            assert error is None, error
            if result.get_response().parameters["triton_final_response"].bool_param:
                return pieces
            pieces.append(result.as_numpy("TITLE")[0].decode())
    finally:
        protocol.client.stop_stream()
        protocol.close()


@pytest.mark.parametrize("story", [STORY, OTHER_STORY], ids=["parser", "bicycle"])
def test_a_piece_per_token(language_server, write_title, story):
    pieces = write_title(story)
    assert len(pieces) > 2
    assert [event["TITLE"] for event in events(language_server, {"TEXT": story})] == pieces
    assert stream(language_server, story) == pieces
    assert wait_until(lambda: pending(language_server, "title") == 0)


def test_the_title_of_the_story(language_server):
    """With exact int8 arithmetic, which the server asks ONNX Runtime for."""
    assert "".join(stream(language_server, STORY)) == "Diagnosed with failing test"


def test_max_tokens(language_server, write_title):
    pieces = write_title(STORY, 2)
    assert len(pieces) == 2
    assert [event["TITLE"] for event in events(language_server, {"TEXT": STORY, "MAX_TOKENS": 2})] == pieces
    assert stream(language_server, STORY, MAX_TOKENS=np.array([2], np.int32)) == pieces
    assert stream(language_server, STORY, MAX_TOKENS=np.array([0], np.int32)) == []


def test_generate_refuses_several_responses(language_server):
    answer = post_json(language_server, "/v2/models/title/generate", {"TEXT": STORY})
    assert answer.error().startswith("generate expects model to produce exactly 1 response")


def test_a_client_that_leaves_stops_the_work(language_server):
    protocol, answers = GrpcProtocol(language_server), queue.Queue()
    protocol.client.start_stream(lambda result, error: answers.put((result, error)))
    protocol.client.async_stream_infer("title", protocol.inputs({"TEXT": text_array([STORY])}))
    answers.get(timeout=60)
    protocol.client.stop_stream(cancel_requests=True)
    protocol.close()
    for model in ("title", "title_decoder"):
        assert wait_until(lambda model=model: pending(language_server, model) == 0), model
