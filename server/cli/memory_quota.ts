/** Where Linux tells a container how much memory it may use: version 2 and version 1 of control groups. */
const LIMIT_FILES = [
  "/sys/fs/cgroup/memory.max",
  "/sys/fs/cgroup/memory/memory.limit_in_bytes",
] as const;
const MAX_QUOTA_BYTES = 2 ** 34;

/** How {@linkcode findMemoryQuota} learns about the machine. */
export interface MemorySource {
  /** Bytes of the machine. */
  total(): number;
  readText(path: string): Promise<string>;
}

/** Reads from the machine this process runs on. */
export const THIS_MACHINE: MemorySource = {
  total: () => Deno.systemMemoryInfo().total,
  readText: (path) => Deno.readTextFile(path),
};

/**
 * Bytes that messages in flight may take together: half of what this process may use, so that clients can not have it
 * killed for its use of memory.
 */
export async function findMemoryQuota(source: MemorySource): Promise<number> {
  let available = 2 * MAX_QUOTA_BYTES;
  try {
    available = Math.min(available, source.total());
  } catch {
    // Not permitted to know.
  }
  for (const path of LIMIT_FILES) {
    const text = await source.readText(path).catch(() => "");
    // "max", and numbers that no machine has, stand for "no limit".
    if (/^[0-9]+\s*$/.test(text)) available = Math.min(available, Number(text));
  }
  return Math.floor(available / 2);
}
