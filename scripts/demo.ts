/**
 * Fetches real models, builds `examples/model_repository` and serves it:
 *
 *   deno task demo [flags of the server]
 */
import { join, relative } from "node:path";
import { main } from "../server/cli/main.ts";
import { printText } from "../server/cli/print.ts";
import { buildDemoRepository, DEMO_REPOSITORY } from "./demo_repository.ts";

const REQUESTS = join(import.meta.dirname!, "..", "examples", "requests");

function print(line: string): void {
  printText(line + "\n");
}

/** A command that works as printed, with an answer that a person can read. */
function formatCurl(models: readonly string[], port: number): string {
  const [model, what] = models.includes("magika")
    ? ["magika", "What kind of file begins with these bytes? (a short Python program)"]
    : ["silero_vad", "Is there speech in these 36 ms of sound? (0 … 1)"];
  const file = relative(Deno.cwd(), join(REQUESTS, `${model}.json`));
  return `${what}\n\n  curl -s localhost:${port}/v2/models/${model}/infer -d @${file}\n`;
}

if (import.meta.main) {
  const models = await buildDemoRepository(print);
  if (models.length === 0) {
    print("No model could be fetched: look at the messages above.");
    Deno.exit(1);
  }
  const args = [`--model-repository=${DEMO_REPOSITORY}`, "--exit-on-error=false", ...Deno.args];
  Deno.exit(
    await main(args, {
      onReady: ({ services }) => {
        const http = services.find(({ name }) => name === "HTTP");
        if (http !== undefined) print(formatCurl(models, http.port));
      },
    }),
  );
}
