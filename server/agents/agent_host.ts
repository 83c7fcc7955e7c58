import { type AgentQuestion, type AgentReply, ANSWER_MARK } from "./agent_message.ts";

/** Longest part of an error of an agent that is told. */
const MESSAGE_MAX = 4096;

/** Runs one call of an agent in a Worker with the permissions it was given, and answers. */
async function main(): Promise<void> {
  const question: AgentQuestion = await new Response(Deno.stdin.readable).json();
  const { promise, resolve } = Promise.withResolvers<AgentReply>();
  const options = { type: "module", deno: { permissions: question.permissions } } as const;
  const worker = new Worker(import.meta.resolve("./agent_worker.ts"), options);
  worker.addEventListener("message", ({ data }) => resolve(data));
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    resolve({ ok: false, message: event.message });
  });
  worker.postMessage(question);
  const reply = await promise;
  worker.terminate();
  const told = reply.ok ? reply : { ...reply, message: reply.message.slice(0, MESSAGE_MAX) };
  // What the agent printed without an end of line stays on its own line.
  const line = new TextEncoder().encode(`\n${ANSWER_MARK}${JSON.stringify(told)}\n`);
  for (let sent = 0; sent < line.length;) sent += await Deno.stdout.write(line.subarray(sent));
  Deno.exit(0);
}

await main();
