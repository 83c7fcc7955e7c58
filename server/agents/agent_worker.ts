import type { AgentModel } from "./agent_api.ts";
import type { AgentQuestion, AgentReply } from "./agent_message.ts";

const worker = globalThis as unknown as {
  postMessage(reply: AgentReply): void;
  addEventListener(type: "message", listener: (event: MessageEvent) => void): void;
};
const reply = worker.postMessage.bind(worker);

/** An agent that ends its Worker would otherwise be waited for until its time is over. */
function tellExit(): void {
  const exited = (): never => {
    reply({ ok: false, message: "it ended its Worker instead of returning" });
    throw new Error("A repository agent returns or throws");
  };
  for (const [target, name] of [[Deno, "exit"], [globalThis, "close"]] as const) {
    Object.defineProperty(target, name, { value: exited, configurable: true, writable: true });
  }
}

async function answer({ module, call, model }: AgentQuestion): Promise<AgentReply> {
  let exports: string[] = [];
  try {
    const agent: Record<string, unknown> = await import(module);
    exports = Object.keys(agent).filter((name) => typeof agent[name] === "function");
    const run = agent[call];
    if (typeof run !== "function") {
      return { ok: false, message: `it exports no function '${call}'`, exports };
    }
    const result: unknown = await (run as (model: AgentModel) => unknown)(model);
    if (call === "load" && !["rewritten", "unchanged", undefined].includes(result as string)) {
      const message = `'load' must return "rewritten", "unchanged" or nothing`;
      return { ok: false, message, exports };
    }
    return { ok: true, isRewritten: result === "rewritten", exports };
  } catch (reason) {
    const message = reason instanceof Error ? reason.message : String(reason);
    return { ok: false, message, exports };
  }
}

tellExit();
worker.addEventListener("message", ({ data }) => void answer(data).then(reply));
