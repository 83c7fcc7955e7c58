import { ServerError } from "../../proto/status.ts";
import type { SelfCheckOrder, SelfCheckStage } from "../../ffi/tensorrt/self_check.ts";

const ENTRY = new URL("../../ffi/tensorrt/self_check_entry.ts", import.meta.url);
const DEFAULT_TIMEOUT_MS = 300_000;
const MAX_STDERR_LENGTH = 2000;

/** What came of a self-check: whether it ended well, and if not, whether that lies at the plan alone. */
export type SelfCheckResult =
  | { readonly isGood: true }
  | { readonly isGood: false; readonly stage: SelfCheckStage; readonly reason: string };

/**
 * Tries a libnvinfer with a plan in a process of its own, which may crash.
 * @throws ServerError UNAVAILABLE when that process cannot be started.
 */
export async function runSelfCheck(
  order: SelfCheckOrder,
  { timeoutMs = DEFAULT_TIMEOUT_MS }: { readonly timeoutMs?: number } = {},
): Promise<SelfCheckResult> {
  const child = start(order);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    child.kill("SIGKILL");
  }, timeoutMs);
  const { stdout, stderr, code, signal } = await child.output();
  clearTimeout(timer);
  const lines = new TextDecoder().decode(stdout).trim().split("\n");
  const failed = lines.find((line) => line.startsWith("failed "));
  const stage =
    (lines.filter((line) => !line.startsWith("failed ")).at(-1) || "library") as SelfCheckStage;
  if (failed !== undefined) {
    return { isGood: false, stage, reason: JSON.parse(failed.slice("failed ".length)) as string };
  }
  if (stage === "done" && code === 0) return { isGood: true };
  const end = isLate
    ? `was ended after ${timeoutMs / 1000} s`
    : `ended with ${signal ?? `status ${code}`}`;
  const words = new TextDecoder().decode(stderr).trim().slice(-MAX_STDERR_LENGTH);
  return { isGood: false, stage, reason: words === "" ? end : `${end}: ${words}` };
}

function start(order: SelfCheckOrder): Deno.ChildProcess {
  try {
    return new Deno.Command(Deno.execPath(), {
      // All permissions: where a library has its code is read from /proc.
      args: ["run", "-A", "--quiet", "--no-config", "--no-lock", "--no-check"]
        .concat(ENTRY.href, JSON.stringify(order)),
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ServerError("UNAVAILABLE", `cannot start the self-check of TensorRT: ${reason}`, {
      cause: error,
    });
  }
}
