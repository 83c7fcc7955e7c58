"""What kind of file is this? An ensemble of Magika between two steps, in TypeScript and in Python."""

import io
import threading
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nereid_testing.protocols import PROTOCOLS, text_array
from nereid_testing.raw_http import call, post_json

CONTENTS = {
    "python": "import csv\nimport sys\n\n\ndef total(path):\n    with open(path, newline='') as file:\n"
    "        return sum(float(row['price']) for row in csv.DictReader(file))\n\n\n"
    "if __name__ == '__main__':\n    print(total(sys.argv[1]))\n",
    "typescript": "interface Point {\n  readonly x: number;\n  readonly y: number;\n}\n\n"
    "export function distance(a: Point, b: Point): number {\n  return Math.hypot(a.x - b.x, a.y - b.y);\n}\n\n"
    "const origin: Point = { x: 0, y: 0 };\nconsole.log(distance(origin, { x: 3, y: 4 }));\n",
    "markdown": "# Bread\n\nA *simple* bread, see [the book](https://example.org/bread).\n\n## You need\n\n"
    "- flour\n- water\n- salt\n\n```sh\noven --heat 230\n```\n",
    "csv": "day,city,rain\nmon,Bern,1.5\ntue,Bern,0.0\nwed,Bern,12.25\nthu,Bern,3.0\nfri,Bern,0.5\n",
    "shell": '#!/bin/bash\nset -euo pipefail\nfor each in *.log; do\n  gzip -9 "$each"\n  echo "packed $each"\ndone\n',
    "rust": "use std::collections::BTreeMap;\n\nfn main() {\n    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();\n"
    '    for word in "a b a".split(\' \') {\n        *seen.entry(word).or_insert(0) += 1;\n    }\n'
    '    for (word, count) in &seen {\n        println!("{word}: {count}");\n    }\n}\n',
}


@pytest.fixture(autouse=True)
def fetched(needs_model):
    needs_model("filetype")


def png_file():
    file = io.BytesIO()
    Image.new("RGB", (64, 48), "red").save(file, "PNG")
    return file.getvalue()


def wav_file():
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes((np.sin(np.arange(16000) / 20) * 9000).astype(np.int16).tobytes())
    return file.getvalue()


def test_six_sources_in_one_batch(language_client):
    result = language_client.infer("filetype", {"CONTENT": text_array(list(CONTENTS.values()), (6, 1))})
    assert [label.decode() for label in result.as_numpy("LABEL")[:, 0]] == list(CONTENTS)
    scores = result.as_numpy("SCORE")
    assert scores.shape == (6, 1) and scores.min() > 0.9, scores


def test_binary_files(language_client, real_models):
    model = (real_models["root"] / "python" / "magika" / "1" / "model.onnx").read_bytes()
    files = {"png": png_file(), "wav": wav_file(), "elf": Path("/bin/sh").read_bytes(), "onnx": model}
    result = language_client.infer("filetype", {"CONTENT": text_array(list(files.values()), (4, 1))})
    assert [label.decode() for label in result.as_numpy("LABEL")[:, 0]] == list(files)
    assert result.as_numpy("SCORE").min() > 0.99


def test_generate(language_server):
    answer = post_json(language_server, "/v2/models/filetype/generate", {"CONTENT": CONTENTS["python"]}).json()
    assert answer["LABEL"] == "python" and answer["SCORE"] > 0.9, answer


def test_the_file_itself_as_the_body(language_server):
    answer = call(
        language_server, "POST", "/v2/models/filetype/infer", png_file(), {"Inference-Header-Content-Length": "0"}
    )  # fmt: skip
    assert answer.status == 200 and b"\x03\x00\x00\x00png" in answer.body, answer.body


def test_empty_and_blank_files(language_client):
    """No answer is wrong here; that there is one matters."""
    result = language_client.infer("filetype", {"CONTENT": text_array([b"", b" \n" * 5000, b"x"], (3, 1))})
    assert result.as_numpy("SCORE").shape == (3, 1)


def test_single_requests_at_once(language_server):
    """Joined by the batcher inside the ensemble: nobody gets the answer of another."""
    wrong = []

    def ask(kind):
        client = PROTOCOLS["grpc"](language_server)
        got = client.infer("filetype", {"CONTENT": text_array([CONTENTS[kind]], (1, 1))}).as_numpy("LABEL")[0, 0].decode()
        if got != kind:
            wrong.append((kind, got))
        client.close()

    threads = [threading.Thread(target=ask, args=(kind,)) for kind in list(CONTENTS) * 4]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_magika_numbers(language_client):
    rows = np.tile(((np.arange(2048) * 37) % 256).astype(np.int32), (3, 1))
    found = language_client.infer("magika", {"bytes": rows}).as_numpy("target_label")
    assert np.allclose(found[:, [148, 0, 1]], [[0.704124, 0.000371232, 0.00277102]] * 3, atol=5e-3)
    wanted = language_client.output("target_label", class_count=1)
    text = language_client.infer("magika", {"bytes": rows[:1]}, outputs=[wanted]).as_numpy("target_label").reshape(-1)[0]
    assert text.decode().split(":")[1:] == ["148", "randombytes"]
