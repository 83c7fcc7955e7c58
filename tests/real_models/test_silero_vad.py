"""Silero VAD v6: the state travels with the client; sr is a 0-d tensor sent as [1]."""

import shutil
import subprocess
import wave

import numpy as np
import pytest

from nereid_testing.protocols import GrpcProtocol

FRAME, CONTEXT, RATE = 512, 64, 16000
SR = np.array([RATE], np.int64)


def ramp(*shape):
    return (((np.arange(int(np.prod(shape))) * 37) % 255) / 127.5 - 1).reshape(shape).astype(np.float32)


def listen(client, samples):
    """Probabilities of speech for each frame of 512 samples."""
    count = -(-len(samples) // FRAME)
    padded = np.pad(samples.astype(np.float32), (CONTEXT, count * FRAME - len(samples)))
    state, found = np.zeros((2, 1, 128), np.float32), []
    for index in range(count):
        frame = padded[None, index * FRAME : index * FRAME + FRAME + CONTEXT]
        result = client.infer("silero_vad", {"input": frame, "state": state, "sr": SR})
        state = result.as_numpy("stateN")
        found.append(float(result.as_numpy("output")[0, 0]))
    return np.array(found)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    if not (shutil.which("espeak-ng") and shutil.which("sox")):
        pytest.skip("espeak-ng and sox are not installed")
    folder = tmp_path_factory.mktemp("speech")
    raw, ready = folder / "raw.wav", folder / "ready.wav"
    sentence = "The quick brown fox jumps over the lazy dog"
    subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "-w", raw, sentence], check=True)
    subprocess.run(["sox", "-D", raw, "-r", str(RATE), "-c", "1", "-b", "16", ready, "pad", "1", "1"], check=True)
    with wave.open(str(ready)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768


def test_ramp(client):
    want = [0.023284, 0.019747, 0.018957, 0.010905]
    state, got = np.zeros((2, 1, 128), np.float32), []
    for index in range(4):
        result = client.infer("silero_vad", {"input": ramp(1, 576) * np.float32(0.1 * (index + 1)), "state": state, "sr": SR})
        state = result.as_numpy("stateN")
        got.append(result.as_numpy("output")[0, 0])
    assert np.allclose(got, want, atol=1e-4), got


def test_scalar_sample_rate(client):
    """The 0-d input as [] and as [1]."""
    arrays = {"input": ramp(1, 576), "state": np.zeros((2, 1, 128), np.float32)}
    answers = [client.infer("silero_vad", {**arrays, "sr": sr}).as_numpy("output") for sr in (SR, np.array(RATE, np.int64))]
    assert answers[0].tolist() == answers[1].tolist()


def test_spoken_sentence(client, spoken):
    found = listen(client, spoken)
    assert abs(len(found) - 169) <= 1  # the synthesizer's versions differ by some samples
    assert abs(int((found > 0.5).sum()) - 93) <= 1
    assert abs(int(np.argmax(found > 0.5)) * FRAME / RATE - 1.06) < 0.04
    assert found.max() > 0.999


def test_silence_and_noise(client):
    assert listen(client, np.zeros(2 * RATE)).max() < 0.02
    noise = (np.random.default_rng(0).random(2 * RATE) - 0.5) * 0.02
    assert (listen(client, noise) < 0.5).all()


def test_state_matters(client, spoken):
    """Without the carried state the answer is another one."""
    client_state = listen(client, spoken[: 3 * RATE // 2])
    state = np.zeros((2, 1, 128), np.float32)
    padded = np.pad(spoken[: 3 * RATE // 2], (CONTEXT, 0)).astype(np.float32)
    forgotten = [
        client.infer("silero_vad", {"input": padded[None, i * FRAME : i * FRAME + 576], "state": state, "sr": SR})
        .as_numpy("output")[0, 0]
        for i in range(len(client_state) - 1)
    ]
    assert np.abs(np.array(forgotten) - client_state[:-1]).max() > 0.1


def test_two_streams_at_once_do_not_mix(real_server, spoken):
    client = GrpcProtocol(real_server)
    alone = listen(client, spoken[:RATE])
    state = [np.zeros((2, 1, 128), np.float32)] * 2
    signals = [np.pad(spoken[:RATE], (CONTEXT, 0)).astype(np.float32), np.zeros(RATE + CONTEXT, np.float32)]
    found = [[], []]
    for index in range(RATE // FRAME):
        for which in (0, 1):
            frame = signals[which][None, index * FRAME : index * FRAME + 576]
            result = client.infer("silero_vad", {"input": frame, "state": state[which], "sr": SR})
            state[which] = result.as_numpy("stateN")
            found[which].append(result.as_numpy("output")[0, 0])
    assert np.allclose(found[0], alone[: len(found[0])], atol=1e-6)
    assert max(found[1]) < 0.02
    client.close()


def test_batch_in_one_request(client):
    """The batch lies in dimension 1 of the state: 4 signals in one request."""
    result = client.infer(
        "silero_vad", {"input": np.zeros((4, 576), np.float32), "state": np.zeros((2, 4, 128), np.float32), "sr": SR}
    )
    rows = result.as_numpy("output")
    assert rows.shape == (4, 1) and result.as_numpy("stateN").shape == (2, 4, 128)
    assert np.allclose(rows, rows[0], atol=1e-6)
