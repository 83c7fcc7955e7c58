"""Silero VAD v6; sr is a 0-d tensor sent as [1].

`silero_vad`: the state travels with the client. `silero_vad_stream`: a sequence per stream, its state stays on the server.
"""

import itertools
import queue
import shutil
import subprocess
import wave

import numpy as np
import pytest

from nereid_testing.observe import pending, wait_until
from nereid_testing.protocols import GrpcProtocol
from nereid_testing.repository import Repository
from nereid_testing.server import ServerProcess

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


RAMP_ANSWERS = [0.023284, 0.019747, 0.018957, 0.010905]
IDS = itertools.count(1)


def ramp_frames():
    return [ramp(1, 576) * np.float32(0.1 * (index + 1)) for index in range(4)]


def frames_of(samples):
    count = -(-len(samples) // FRAME)
    padded = np.pad(samples.astype(np.float32), (CONTEXT, count * FRAME - len(samples)))
    return [padded[None, index * FRAME : index * FRAME + FRAME + CONTEXT] for index in range(count)]


class SoundStream:
    """A gRPC stream that carries one sound as one sequence."""

    def __init__(self, server, frames, model="silero_vad_stream"):
        self.protocol, self.frames, self.model = GrpcProtocol(server), frames, model
        self.id, self.sent, self.answers = next(IDS), 0, queue.Queue()
        self.protocol.client.start_stream(lambda result, error: self.answers.put((result, error)))

    def send(self):
        arrays = {"input": self.frames[self.sent], "sr": SR}
        self.protocol.client.async_stream_infer(
            self.model,
            self.protocol.inputs(arrays),
            sequence_id=self.id,
            sequence_start=self.sent == 0,
            sequence_end=self.sent == len(self.frames) - 1,
        )
        self.sent += 1

    def take(self):
        result, error = self.answers.get(timeout=60)
        assert error is None, error
        return float(result.as_numpy("output")[0, 0])

    def close(self):
        self.protocol.client.stop_stream()
        self.protocol.close()


def interleaved(server, sounds, model="silero_vad_stream", delay=0):
    """One frame of each sound in turn, each sound `delay` frames behind the one before; the probabilities of each."""
    streams = [SoundStream(server, frames_of(sound), model) for sound in sounds]
    try:
        for turn in range(max(len(stream.frames) for stream in streams) + delay * len(streams)):
            for place, stream in enumerate(streams):
                if 0 <= turn - place * delay < len(stream.frames):
                    stream.send()
        return [np.array([stream.take() for _ in stream.frames]) for stream in streams]
    finally:
        for stream in streams:
            stream.close()


def check_sentence(found):
    assert abs(len(found) - 169) <= 1  # the synthesizer's versions differ by some samples
    assert abs(int((found > 0.5).sum()) - 93) <= 1
    assert abs(int(np.argmax(found > 0.5)) * FRAME / RATE - 1.06) < 0.04
    assert found.max() > 0.999


def test_sequence_ramp(client):
    """The same numbers as with a state that the client carries, over both protocols, twice."""
    for _ in range(2):
        sequence_id, got = next(IDS), []
        for index, frame in enumerate(ramp_frames()):
            flags = {"sequence_id": sequence_id, "sequence_start": index == 0, "sequence_end": index == 3}
            result = client.infer("silero_vad_stream", {"input": frame, "sr": SR}, **flags)
            got.append(result.as_numpy("output")[0, 0])
        assert np.allclose(got, RAMP_ANSWERS, atol=1e-4), got


def test_sequence_of_a_spoken_sentence(real_server, spoken):
    [found] = interleaved(real_server, [spoken])
    check_sentence(found)
    client = GrpcProtocol(real_server)
    assert np.allclose(found, listen(client, spoken), atol=1e-6)
    client.close()


def test_zeros_in_a_second_stream_change_nothing(real_server, spoken):
    [alone] = interleaved(real_server, [spoken[: 2 * RATE]])
    first, second = interleaved(real_server, [spoken[: 2 * RATE], np.zeros(2 * RATE)])
    assert np.allclose(first, alone, atol=1e-6)
    assert second.max() <= 0.01


def test_fifty_interleaved_streams(real_server, spoken):
    """Each one frame behind the one before, so that a state in the wrong stream is seen."""
    found = interleaved(real_server, [spoken] * 50, delay=1)
    check_sentence(found[0])
    for probabilities in found:
        assert np.array_equal(probabilities, found[0])
    assert wait_until(lambda: pending(real_server, "silero_vad_stream") == 0, 10)


def test_fifty_streams_in_slots_of_their_own(tmp_path, real_repository, spoken):
    """The strategy direct without batching: an instance per stream."""
    repository = Repository(tmp_path / "direct")
    version = repository.directory("silero_vad_direct", 1)
    shutil.copy(real_repository / "silero_vad_stream" / "1" / "model.onnx", version / "model.onnx")
    config = (real_repository / "silero_vad_stream" / "config.pbtxt").read_text()
    config = config.replace("oldest { max_candidate_sequences: 64 }", "direct { }").replace("count: 1", "count: 50")
    repository.config("silero_vad_direct", config)
    with ServerProcess(repository.root) as server:
        found = interleaved(server, [spoken] * 50, "silero_vad_direct", delay=1)
        check_sentence(found[0])
        assert all(np.array_equal(each, found[0]) for each in found)
        assert wait_until(lambda: pending(server, "silero_vad_direct") == 0, 10)
