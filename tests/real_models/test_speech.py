"""A stream of sound in pieces of any size: the model `speech` cuts frames and calls the detector, in both languages."""

import itertools
import shutil
import subprocess
import wave

import numpy as np
import pytest

from nereid_testing.observe import pending, wait_until

RATE, FRAME, CONTEXT = 16000, 512, 64
IDS = itertools.count(7000)


@pytest.fixture(autouse=True)
def fetched(needs_model):
    needs_model("speech")


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


def listen(client, samples, sizes):
    """Sends a sound in pieces of the given sizes, again and again; the probabilities of its frames."""
    sequence, start, found = next(IDS), 0, []
    for size in itertools.cycle(sizes):
        end = min(len(samples), start + size)
        options = {"sequence_id": sequence, "sequence_start": start == 0, "sequence_end": end == len(samples)}
        result = client.infer("speech", {"SAMPLES": samples[start:end].astype(np.float32)}, **options)
        found.append(result.as_numpy("SPEECH"))
        if end == len(samples):
            return np.concatenate(found)
        start = end


def frame_by_frame(client, samples):
    """The same by hand: frames of the detector, the server keeps its state."""
    count = -(-len(samples) // FRAME)
    padded = np.pad(samples, (CONTEXT, count * FRAME - len(samples))).astype(np.float32)
    sequence, found = next(IDS), []
    for index in range(count):
        frame = padded[None, index * FRAME : index * FRAME + CONTEXT + FRAME]
        options = {"sequence_id": sequence, "sequence_start": index == 0, "sequence_end": index == count - 1}
        arrays = {"input": frame, "sr": np.array([RATE], np.int64)}
        found.append(client.infer("silero_vad_stream", arrays, **options).as_numpy("output")[0, 0])
    return np.array(found)


@pytest.mark.parametrize("sizes", [(1 << 20,), (4000,), (1000, 37, 2000)], ids=["whole", "quarters", "odd"])
def test_a_spoken_sentence(language_client, spoken, sizes):
    found = listen(language_client, spoken, sizes)
    assert abs(len(found) - 170) <= 1  # the synthesizer's versions differ by some samples
    assert abs(int((found > 0.5).sum()) - 93) <= 1
    assert abs(int(np.argmax(found > 0.5)) - 33) <= 1
    assert np.allclose(found[:3], [0.00167, 0.00688, 0.00891], atol=1e-3)


def test_frames_by_hand_give_the_same(language_client, spoken):
    part = spoken[RATE : 2 * RATE]
    assert np.allclose(listen(language_client, part, (700,)), frame_by_frame(language_client, part), atol=1e-6)


def test_a_stream_that_begins_anew_knows_nothing_of_the_one_before(language_client, spoken):
    sound = spoken[RATE : RATE + 5000]
    first = listen(language_client, sound, (3000,))
    assert np.array_equal(first, listen(language_client, sound, (3000,)))


def test_two_streams_do_not_mix(language_client, language_server, spoken):
    sounds = {next(IDS): spoken[RATE : RATE + 8192], next(IDS): np.zeros(8192, np.float32)}
    alone = listen(language_client, spoken[RATE : RATE + 8192], (1024,))
    found = {sequence: [] for sequence in sounds}
    for start in range(0, 8192, 1024):
        for sequence, sound in sounds.items():
            options = {"sequence_id": sequence, "sequence_start": start == 0, "sequence_end": start == 7168}
            piece = {"SAMPLES": sound[start : start + 1024].astype(np.float32)}
            found[sequence].append(language_client.infer("speech", piece, **options).as_numpy("SPEECH"))
    with_speech, silent = (np.concatenate(each) for each in found.values())
    assert np.allclose(with_speech, alone, atol=1e-6)
    assert silent.max() < 0.01
    assert wait_until(lambda: pending(language_server, "silero_vad_stream") == 0)
