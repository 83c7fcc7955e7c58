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
// The runtime lets every Worker end the whole process by a signal, whatever its permissions are. Behind all functions
// of Node's for that is `_kill`.
forbidOwnEnd(Deno, "kill");
if (process !== undefined) forbidOwnEnd(process, "_kill");
// Ways to end that were not replaced: those that a model imports by name.
scope.addEventListener("unload", () => {
  post({ kind: "exit", reason: "it ended itself (process.exit, imported by name, or the like)" });
});

function forbidOwnEnd(target: object, name: string): void {
  const kill = (target as Record<string, unknown>)[name];
  if (typeof kill !== "function") return;
  const value = (pid: number, ...rest: unknown[]): unknown => {
    // 0 and negative numbers mean groups of processes that this one may be in.
    if (pid <= 0 || pid === Deno.pid) exit("kill() on the process that all models run in");
    return Reflect.apply(kill, target, [pid, ...rest]);
  };
  Object.defineProperty(target, name, { value, configurable: true, writable: true });
}
Object.defineProperty(scope, "postMessage", {
  value: () => {
    throw new TypeError("postMessage() belongs to the server: models answer requests instead");
  },
});
