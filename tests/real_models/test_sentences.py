"""Sentences as vectors: tokenizer, MiniLM and pooling as an ensemble, in TypeScript and in Python."""

import threading

import numpy as np
import pytest
from tokenizers import Tokenizer

from nereid_testing.protocols import PROTOCOLS, text_array

SENTENCES = [
    "How do I reset my password?",
    "I forgot my login credentials",
    "The weather is lovely today",
    "Triton is an inference server.",
]
FIRST_NUMBERS = [0.00537335, -0.0611107, -0.0712812, -0.0342299, -0.0427872]
COSINES = [1, 0.6776, -0.0363, 0.0418]


@pytest.fixture(autouse=True)
def fetched(needs_model):
    needs_model("sentence_embedding")


def embed(client, *sentences):
    return client.infer("sentence_embedding", {"TEXT": text_array(sentences, (len(sentences), 1))}).as_numpy("EMBEDDING")


def test_four_sentences(language_client):
    found = embed(language_client, *SENTENCES)
    assert found.shape == (4, 384)
    assert np.allclose(found[0, :5], FIRST_NUMBERS, atol=1e-4)
    assert np.allclose(found[0] @ found.T, COSINES, atol=1e-3)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_a_row_alone_equals_the_row_in_a_padded_batch(language_client):
    assert np.allclose(embed(language_client, SENTENCES[1])[0], embed(language_client, *SENTENCES)[1], atol=1e-4)


def test_tokens(language_client):
    result = language_client.infer("minilm_tokens", {"TEXT": text_array(["How do I reset my password?", "Hi"], (2, 1))})
    assert result.as_numpy("input_ids").tolist() == [
        [101, 2129, 2079, 1045, 25141, 2026, 20786, 1029, 102],
        [101, 7632, 102, 0, 0, 0, 0, 0, 0],
    ]
    assert result.as_numpy("attention_mask").sum(1).tolist() == [9, 3]
    assert not result.as_numpy("token_type_ids").any()


HARD_TEXTS = ["", " ", "Café naïve ÅNGSTRÖM", "日本語 テキスト", "🙂👩‍👩‍👧", "ﬁne​line", "[CLS] [MASK] x", "a" * 500, "one two " * 400]


def test_tokens_of_hard_texts(language_client, real_models):
    """Both languages give the tokens of the Rust library itself."""
    tokenizer = Tokenizer.from_file(str(real_models["root"] / "python" / "minilm_tokens" / "1" / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.no_padding()
    for text in HARD_TEXTS:
        found = language_client.infer("minilm_tokens", {"TEXT": text_array([text], (1, 1))}).as_numpy("input_ids")[0]
        assert found.tolist() == tokenizer.encode(text).ids, text


def test_single_requests_of_mixed_length(language_server):
    wrong = []

    def ask(sentence):
        client = PROTOCOLS["http"](language_server)
        length = float(np.linalg.norm(embed(client, sentence)[0]))
        if abs(length - 1) > 1e-4:
            wrong.append((sentence, length))
        client.close()

    threads = [threading.Thread(target=ask, args=(sentence,)) for sentence in SENTENCES * 4]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
