const THREADS = "/proc/self/task";
/** Deno names the threads of a Worker `worker-<number>`. */
const WORKER_THREAD = /^worker-\d+$/;
const CHECK_MS = 5;
const LIMIT_MS = 3000;
/** Three times what such a thread takes on a busy machine. */
const BLIND_WAIT_MS = 300;

/** How the threads of this process are looked at, for tests. */
export interface ThreadWatch {
  /** Names of all threads; undefined where they cannot be told. */
  readonly names: () => string[] | undefined;
  readonly pause: (ms: number) => Promise<void>;
}

/**
 * Waits until the threads of Workers that were ended have gone, at most 3 s. Such a thread takes its drivers with it:
 * with WebGPU, libraries are unloaded whose functions the process calls at its own end, which then crashes. Where
 * threads cannot be seen it waits for a moment.
 * @returns whether none is left, as far as can be told.
 */
export async function workersEnded(watch: ThreadWatch = THIS_PROCESS): Promise<boolean> {
  for (let waitedMs = 0; waitedMs < LIMIT_MS; waitedMs += CHECK_MS) {
    const names = watch.names();
    if (names === undefined) {
      await watch.pause(BLIND_WAIT_MS);
      return true;
    }
    if (!names.some((name) => WORKER_THREAD.test(name))) return true;
    await watch.pause(CHECK_MS);
  }
  return false;
}

const THIS_PROCESS: ThreadWatch = {
  names: threadNames,
  pause: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
};

function threadNames(): string[] | undefined {
  // A question at the terminal would hold up the end.
  const { state } = Deno.permissions.querySync({ name: "read", path: THREADS });
  if (state !== "granted") return undefined;
  try {
    return [...Deno.readDirSync(THREADS)].map(({ name }) => {
      try {
        return Deno.readTextFileSync(`${THREADS}/${name}/comm`).trim();
      } catch {
        // It has just ended.
        return "";
      }
    });
  } catch {
    // Another system, or not all permissions.
    return undefined;
  }
}
