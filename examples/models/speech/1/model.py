"""Cuts streams of sound into frames and calls the detector with each; its state is kept by the server."""

from collections import OrderedDict

import numpy as np
import triton_python_backend_utils as pb_utils

FRAME = 512
CONTEXT = 64  # so many samples of the frame before stand in front of each frame
RATE = np.array([16000], np.int64)
MAX_STREAMS = 256  # streams that went silent without an end are forgotten, the longest unused first


class Stream:
    def __init__(self):
        self.samples = np.zeros(CONTEXT, np.float32)  # the context, then samples that make no frame yet
        self.begun = False

    def take_frames(self, samples, is_last):
        """Frames that are complete now, each with its context; the last piece is filled up with silence."""
        samples = np.concatenate([self.samples, samples])
        count = len(samples) - CONTEXT
        # A stream that ends has a last frame, which ends the inner sequence too.
        frames = max(1, -(-count // FRAME)) if is_last else count // FRAME
        samples = np.pad(samples, (0, max(0, frames * FRAME - count)))
        self.samples = samples[frames * FRAME :]
        return [samples[None, index * FRAME : (index + 1) * FRAME + CONTEXT] for index in range(frames)]


class TritonPythonModel:
    def initialize(self, args):
        self.streams = OrderedDict()

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        flag = lambda name: pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0]
        stream_id, is_last = int(flag("STREAM")), flag("END") == 1
        stream = self.open(stream_id, flag("START") == 1)
        frames = stream.take_frames(pb_utils.get_input_tensor_by_name(request, "SAMPLES").as_numpy(), is_last)
        if is_last:
            self.streams.pop(stream_id)
        speech = np.zeros(len(frames), np.float32)
        for index, frame in enumerate(frames):
            flags = 0 if stream.begun else pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
            if is_last and index == len(frames) - 1:
                flags |= pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
            speech[index] = self.detect(frame, stream_id, flags)
            stream.begun = True
        return pb_utils.InferenceResponse([pb_utils.Tensor("SPEECH", speech)])

    def detect(self, frame, stream_id, flags):
        response = pb_utils.InferenceRequest(
            model_name="silero_vad_stream",
            requested_output_names=["output"],
            inputs=[pb_utils.Tensor("input", frame), pb_utils.Tensor("sr", RATE)],
            correlation_id=stream_id,
            flags=flags,
        ).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "output").as_numpy()[0, 0]

    def open(self, stream_id, is_start):
        stream = Stream() if is_start else self.streams.pop(stream_id, None) or Stream()
        self.streams[stream_id] = stream
        self.streams.move_to_end(stream_id)
        if len(self.streams) > MAX_STREAMS:
            self.streams.popitem(last=False)
        return stream
