import type {
  InferRequest,
  InferResponse,
  Model,
} from "../../../../backends/typescript/model_api.ts";

const FRAME = 512;
/** So many samples of the frame before stand in front of each frame. */
const CONTEXT = 64;
const RATE = BigInt64Array.of(16000n);
/** Streams that went silent without an end are forgotten, the longest unused first. */
const MAX_STREAMS = 256;

interface Stream {
  /** The context, then samples that make no frame yet. */
  samples: Float32Array;
  /** Has the sequence of the inner model begun? */
  begun: boolean;
}

/** Cuts streams of sound into frames and calls the detector with each; its state is kept by the server. */
export default class Speech implements Model {
  readonly #streams = new Map<bigint, Stream>();

  async execute(requests: readonly InferRequest[]): Promise<InferResponse[]> {
    return await Promise.all(requests.map((request) => this.#answer(request)));
  }

  async #answer(request: InferRequest): Promise<InferResponse> {
    const id = request.input("STREAM", "UINT64").data[0]!;
    const isLast = request.input("END", "INT32").data[0] === 1;
    const stream = this.#open(id, request.input("START", "INT32").data[0] === 1);
    const frames = takeFrames(stream, request.input("SAMPLES", "FP32").data, isLast);
    if (isLast) this.#streams.delete(id);
    const speech = new Float32Array(frames.length);
    for (let index = 0; index < frames.length; index++) {
      const result = await request.infer("silero_vad_stream", {
        inputs: {
          input: { shape: [1, CONTEXT + FRAME], data: frames[index]! },
          sr: { shape: [1], data: RATE },
        },
        correlationId: id,
        sequenceStart: !stream.begun,
        sequenceEnd: isLast && index === frames.length - 1,
      });
      stream.begun = true;
      speech[index] = result.output("output", "FP32").data[0]!;
    }
    return { outputs: { SPEECH: { shape: [speech.length], data: speech } } };
  }

  #open(id: bigint, isStart: boolean): Stream {
    const known = isStart ? undefined : this.#streams.get(id);
    const stream = known ?? { samples: new Float32Array(CONTEXT), begun: false };
    this.#streams.delete(id);
    this.#streams.set(id, stream);
    if (this.#streams.size > MAX_STREAMS) {
      const [oldest] = this.#streams.keys();
      this.#streams.delete(oldest!);
    }
    return stream;
  }
}

/** Frames that are complete now, each with its context; the rest stays. The last piece is filled up with silence. */
export function takeFrames(stream: Stream, samples: Float32Array, isLast: boolean): Float32Array[] {
  const count = stream.samples.length + samples.length - CONTEXT;
  // A stream that ends has a last frame, which ends the inner sequence too.
  const frames = isLast ? Math.max(1, Math.ceil(count / FRAME)) : Math.floor(count / FRAME);
  const all = new Float32Array(CONTEXT + Math.max(count, frames * FRAME));
  all.set(stream.samples, 0);
  all.set(samples, stream.samples.length);
  const taken: Float32Array[] = [];
  for (let index = 0; index < frames; index++) {
    taken.push(all.slice(index * FRAME, (index + 1) * FRAME + CONTEXT));
  }
  stream.samples = all.slice(frames * FRAME);
  return taken;
}
