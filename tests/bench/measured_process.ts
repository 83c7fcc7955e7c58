/** A program under measurement, on processors of its own where there are two. */
export class MeasuredProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
  }

  /** Starts a command, bound to one processor when `processor` is given. */
  static start(
    command: readonly string[],
    options: { readonly processor?: number; readonly env?: Record<string, string> } = {},
  ): MeasuredProcess {
    const bound = options.processor === undefined
      ? command
      : ["taskset", "-c", String(options.processor), ...command];
    const child = new Deno.Command(bound[0]!, {
      args: bound.slice(1),
      stdin: "null",
      stdout: "null",
      stderr: "null",
      env: options.env ?? {},
    }).spawn();
    return new MeasuredProcess(child);
  }

  /** CPU time of the process, its threads and its children, in microseconds. */
  async cpuUs(): Promise<number> {
    return await familyCpuUs(this.#child.pid);
  }

  /** Resident memory of the process and its children. */
  async rssBytes(): Promise<number> {
    let total = 0;
    for (const pid of await family(this.#child.pid)) {
      const text = await Deno.readTextFile(`/proc/${pid}/status`).catch(() => "");
      total += Number(/^VmRSS:\s+(\d+)/m.exec(text)?.[1] ?? 0) * 1024;
    }
    return total;
  }

  /** Waits until something listens on a port, or until an HTTP path answers 200. */
  async waitFor(port: number, path?: string): Promise<void> {
    const end = performance.now() + 60_000;
    while (performance.now() < end) {
      try {
        if (path === undefined) {
          (await Deno.connect({ hostname: "127.0.0.1", port })).close();
          return;
        }
        const answer = await fetch(`http://127.0.0.1:${port}${path}`);
        await answer.body?.cancel();
        if (answer.ok) return;
      } catch {
        // not yet
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error(`Nothing answers on port ${port} after 60 s`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const pid of (await family(this.#child.pid)).reverse()) terminate(pid);
    await this.#child.status;
  }
}

function terminate(pid: number): void {
  try {
    Deno.kill(pid, "SIGTERM");
  } catch {
    // ended already
  }
}

/** CPU time of a process, its threads and its children, in microseconds. */
export async function familyCpuUs(pid: number): Promise<number> {
  let total = 0;
  for (const member of await family(pid)) total += await processCpuUs(member);
  return total;
}

/** A process and its descendants. */
async function family(pid: number): Promise<number[]> {
  const found = [pid];
  for (const task of await taskIds(pid)) {
    // A child is listed with the thread that started it.
    const path = `/proc/${pid}/task/${task}/children`;
    const children = await Deno.readTextFile(path).catch(() => "");
    for (const child of children.split(" ").filter(Boolean)) {
      found.push(...await family(Number(child)));
    }
  }
  return found;
}

/** Threads of a process; none when it has ended. */
async function taskIds(pid: number): Promise<string[]> {
  try {
    return await Array.fromAsync(Deno.readDir(`/proc/${pid}/task`), ({ name }) => name);
  } catch {
    return [];
  }
}

/** Ticks of `/proc/PID/stat` per second. */
const TICKS_PER_SECOND = 100;

/** User and system time of a process, threads that have ended included; 0 when it has ended. */
export async function processCpuUs(pid: number): Promise<number> {
  const text = await Deno.readTextFile(`/proc/${pid}/stat`).catch(() => "");
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const ticks = Number(fields[11] ?? 0) + Number(fields[12] ?? 0);
  return ticks * 1_000_000 / TICKS_PER_SECOND;
}

/** Time in which the processors of this machine were busy. */
export async function machineCpuUs(): Promise<number> {
  const text = await Deno.readTextFile("/proc/stat");
  const fields = text.slice(0, text.indexOf("\n")).split(/ +/).slice(1, 9).map(Number);
  const idle = fields[3]! + fields[4]!;
  return (fields.reduce((sum, value) => sum + value, 0) - idle) * 1_000_000 / TICKS_PER_SECOND;
}
