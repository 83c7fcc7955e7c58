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

interface Question {
  readonly model: string;
  readonly endpoint: string;
  readonly text: string;
}

/** With answers that a person can read; the first whose model is there is shown. */
const QUESTIONS: readonly Question[] = [
  { model: "filetype", endpoint: "generate", text: "What kind of file has this content?" },
  {
    model: "silero_vad",
    endpoint: "infer",
    text: "Is there speech in these 36 ms of sound? (0 … 1)",
  },
];

/** A command that works as printed, for the models that are there. */
function formatCurl(models: readonly string[], port: number): string {
  const question = QUESTIONS.find(({ model }) => models.includes(model));
  if (question === undefined) return "";
  const { model, endpoint, text } = question;
  const file = relative(Deno.cwd(), join(REQUESTS, `${model}.json`));
  return `${text}\n\n  curl -s localhost:${port}/v2/models/${model}/${endpoint} -d @${file}\n`;
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
