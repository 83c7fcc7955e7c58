import { Tokenizer } from "npm:@huggingface/tokenizers@0.2.0";
import type {
  InferRequest,
  InferResponse,
  Model,
  ModelContext,
  OutputTensor,
} from "../../../../backends/typescript/model_api.ts";

const START = 0;
const END = 1;
const DEFAULT_TOKENS = 24;

/** A text -> a title, token by token: the likeliest one after those before. */
export default class Title implements Model {
  #tokenizer: Tokenizer | undefined;
  #maxTextTokens = Infinity;

  async initialize(context: ModelContext): Promise<void> {
    const file = await Deno.readTextFile(`${context.versionDirectory}/tokenizer.json`);
    const settings = JSON.parse(file) as {
      readonly truncation: { readonly max_length: number } | null;
    };
    this.#tokenizer = new Tokenizer(settings, {});
    this.#maxTextTokens = settings.truncation?.max_length ?? Infinity;
  }

  async *stream(request: InferRequest): AsyncGenerator<InferResponse> {
    const most = request.inputs["MAX_TOKENS"] === undefined
      ? DEFAULT_TOKENS
      : request.input("MAX_TOKENS", "INT32").data[0]!;
    const ids = this.#encode(request.input("TEXT", "BYTES").data.text(0));
    const mask = tokenTensor(ids.map(() => 1));
    const encoded = await request.infer("title_encoder", {
      inputs: { input_ids: tokenTensor(ids), attention_mask: mask },
      outputs: ["last_hidden_state"],
    });
    const hidden = encoded.output("last_hidden_state", "FP32");
    const made = [START];
    let said = "";
    while (made.length <= most && !request.signal.aborted) {
      const decoded = await request.infer("title_decoder", {
        inputs: {
          input_ids: tokenTensor(made),
          encoder_hidden_states: hidden,
          encoder_attention_mask: mask,
        },
        outputs: ["logits"],
      });
      const next = findLast(decoded.output("logits", "FP32"));
      if (next === END) return;
      made.push(next);
      // A token may change how the one before it is written, so the whole is decoded each time.
      const text = this.#tokenizer!.decode(made, { skip_special_tokens: true });
      yield { outputs: { TITLE: { shape: [1], data: [text.slice(said.length)] } } };
      said = text;
    }
  }

  #encode(text: string): number[] {
    const { ids } = this.#tokenizer!.encode(text);
    return ids.length <= this.#maxTextTokens
      ? ids
      : [...ids.slice(0, this.#maxTextTokens - 1), END];
  }
}

function tokenTensor(ids: readonly number[]): OutputTensor {
  return { shape: [1, ids.length], data: BigInt64Array.from(ids, BigInt) };
}

/** The likeliest token behind the last one. */
function findLast(
  logits: { readonly shape: readonly number[]; readonly data: Float32Array },
): number {
  const last = logits.data.subarray(logits.data.length - logits.shape.at(-1)!);
  let best = 0;
  for (let index = 1; index < last.length; index++) {
    if (last[index]! > last[best]!) best = index;
  }
  return best;
}
