const encoder = new TextEncoder();

/** Writes a text for the user to standard output or error. Nobody may read it any more: the server goes on then. */
export function printText(text: string, stream: "stdout" | "stderr" = "stdout"): void {
  let rest = encoder.encode(text);
  try {
    while (rest.length > 0) rest = rest.subarray(Deno[stream].writeSync(rest));
  } catch {
    // The other end of the pipe was closed.
  }
}
