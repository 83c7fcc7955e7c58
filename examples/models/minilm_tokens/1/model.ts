import { Tokenizer } from "npm:@huggingface/tokenizers@0.2.0";
import type {
  InferRequest,
  InferResponse,
  Model,
  ModelContext,
} from "../../../../backends/typescript/model_api.ts";

/** Longer texts are cut, the separator at their end stays. */
const MAX_TOKENS = 256;
const PADDING = 0n;

/** Texts -> tokens, rows of one length. */
export default class MinilmTokens implements Model {
  #tokenizer: Tokenizer | undefined;

  async initialize(context: ModelContext): Promise<void> {
    const file = await Deno.readTextFile(`${context.versionDirectory}/tokenizer.json`);
    this.#tokenizer = new Tokenizer(JSON.parse(file), {});
  }

  execute(requests: readonly InferRequest[]): InferResponse[] {
    return requests.map((request) => {
      const texts = request.input("TEXT", "BYTES").data.texts();
      const rows = texts.map((text) => cut(this.#tokenizer!.encode(text).ids));
      const length = Math.max(...rows.map((row) => row.length));
      const ids = new BigInt64Array(rows.length * length).fill(PADDING);
      const mask = new BigInt64Array(ids.length);
      rows.forEach((row, index) => {
        ids.set(row.map(BigInt), index * length);
        mask.fill(1n, index * length, index * length + row.length);
      });
      const shape = [rows.length, length];
      return {
        outputs: {
          input_ids: { shape, data: ids },
          attention_mask: { shape, data: mask },
          token_type_ids: { shape, data: new BigInt64Array(ids.length) },
        },
      };
    });
  }
}

function cut(ids: readonly number[]): readonly number[] {
  return ids.length <= MAX_TOKENS ? ids : [...ids.slice(0, MAX_TOKENS - 1), ids.at(-1)!];
}
