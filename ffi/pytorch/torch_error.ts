const MAX_LENGTH = 4000;

/** A failure in libtorch, in its own words: several lines when it happened in a model. */
export class TorchError extends Error {
  override readonly name = "TorchError";
}

/** What the shim wrote, without libtorch's own stack, which lies behind it. */
export function torchErrorIn(written: Uint8Array): TorchError {
  const text = new TextDecoder().decode(written.subarray(0, written.indexOf(0)));
  const lines = text.split("\n").map((line) => line.trimEnd());
  const end = lines.findIndex((line) => /^(?:Exception raised from|frame #0)/.test(line));
  const kept = (end < 0 ? lines : lines.slice(0, end)).filter((line) => line !== "");
  return new TorchError(kept.join("\n").slice(0, MAX_LENGTH));
}
