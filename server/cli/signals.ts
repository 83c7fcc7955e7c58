/** Where a process is asked to end, and where a fault that nobody caught is reported. */
export interface ProcessEvents extends Disposable {
  /** Resolves with the name of the first signal. */
  readonly firstSignal: Promise<string>;
}

/** What happens on a process event. */
export interface ProcessReactions {
  /** The first signal came. */
  readonly onSignal: (name: string, number: number) => void;
  /** A further signal came. */
  readonly onFurtherSignal: (name: string, number: number) => void;
  /** An error that nobody caught; the server goes on. */
  readonly onUncaught: (reason: unknown) => void;
}

const SIGNALS: readonly (readonly [Deno.Signal, number])[] = Deno.build.os === "windows"
  ? [["SIGINT", 2], ["SIGBREAK", 21]]
  : [["SIGINT", 2], ["SIGTERM", 15]];

// `npx` and `deno task` hand on a signal that Ctrl-C has sent to the whole process group before.
const SAME_SIGNAL_MS = 40;

/** Listens to SIGINT, SIGTERM and uncaught errors until disposed. */
export function watchProcess(reactions: ProcessReactions): ProcessEvents {
  const { promise, resolve } = Promise.withResolvers<string>();
  const undo: (() => void)[] = [];
  let firstMs: number | undefined;
  for (const [name, number] of SIGNALS) {
    const listener = (): void => {
      const now = performance.now();
      if (firstMs !== undefined) {
        if (now - firstMs > SAME_SIGNAL_MS) reactions.onFurtherSignal(name, number);
        return;
      }
      firstMs = now;
      reactions.onSignal(name, number);
      resolve(name);
    };
    Deno.addSignalListener(name, listener);
    undo.push(() => Deno.removeSignalListener(name, listener));
  }
  const onRejection = (event: PromiseRejectionEvent): void => {
    event.preventDefault();
    reactions.onUncaught(event.reason);
  };
  const onError = (event: ErrorEvent): void => {
    event.preventDefault();
    reactions.onUncaught(event.error);
  };
  globalThis.addEventListener("unhandledrejection", onRejection);
  globalThis.addEventListener("error", onError);
  undo.push(() => {
    globalThis.removeEventListener("unhandledrejection", onRejection);
    globalThis.removeEventListener("error", onError);
  });
  return { firstSignal: promise, [Symbol.dispose]: () => undo.forEach((step) => step()) };
}
