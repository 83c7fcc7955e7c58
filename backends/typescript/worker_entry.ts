import { stackOf } from "./worker_errors.ts";
import { ModelWorker } from "./worker_main.ts";

/** The few members of a Worker's global scope that are used here. */
interface WorkerScope {
  addEventListener(type: string, listener: (event: ScopeEvent) => void): void;
  postMessage(message: unknown): void;
  close(): void;
}

interface ScopeEvent {
  readonly data?: unknown;
  readonly reason?: unknown;
  readonly error?: unknown;
  preventDefault(): void;
}

const scope = globalThis as unknown as WorkerScope;
const post = scope.postMessage.bind(scope);
const worker = new ModelWorker(post);

scope.addEventListener("message", ({ data }) => worker.receive(data));
scope.addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  worker.port.log("error", `Unhandled rejection in a model: ${textOf(event.reason)}`);
});
scope.addEventListener("error", (event) => {
  event.preventDefault();
  worker.port.log("error", `Uncaught error in a model: ${textOf(event.error)}`);
});

function textOf(reason: unknown): string {
  return reason instanceof Error ? stackOf(reason) : Deno.inspect(reason);
}

// Ending a Worker is seen by nobody: the server is told first, and ends it itself.
function exit(what: string): never {
  post({ kind: "exit", reason: `it called ${what}\n${stackOf(new Error("exit"))}` });
  throw new Error(`Model ended by ${what}`);
}

function replace(target: object, name: string, what: string): void {
  const value = (code?: unknown) => exit(`${what}(${code ?? ""})`);
  Object.defineProperty(target, name, { value, configurable: true, writable: true });
}

replace(Deno, "exit", "Deno.exit");
replace(globalThis, "close", "close");
const { process } = globalThis as unknown as { readonly process?: object };
if (process !== undefined) {
  for (const name of ["exit", "reallyExit", "abort"]) replace(process, name, `process.${name}`);
}
Object.defineProperty(scope, "postMessage", {
  value: () => {
    throw new TypeError("postMessage() belongs to the server: models answer requests instead");
  },
});
