import { createHash } from "node:crypto";
import { isPathInside } from "../../proto/model_config_path.ts";
import { fileError, openRegularFile } from "./model_repository_files.ts";
import type { AgentCall, AgentFault, AgentOutcome, RepositoryAgent } from "./repository_agent.ts";

/** Its name in a configuration. */
export const CHECKSUM_AGENT = "checksum";

/** Kinds of checksums: the reference has MD5 only. */
const KINDS = ["MD5", "SHA256"] as const;
const READ_BYTES = 1024 * 1024;

/** Compares files of the model with the checksums in its parameters, `MD5:<file>` or `SHA256:<file>` (management.md §12). */
export const checksumAgent: RepositoryAgent = {
  async call(call: AgentCall): Promise<AgentOutcome> {
    if (call.action !== "LOAD") return { faults: [] };
    const faults: AgentFault[] = [];
    for (const [key, expected] of Object.entries(call.parameters)) {
      const fault = await checkFile(key, expected, call);
      if (fault !== undefined) faults.push({ parameter: key, ...fault });
    }
    return { faults };
  },
};

async function checkFile(
  key: string,
  expected: string,
  call: AgentCall,
): Promise<Omit<AgentFault, "parameter"> | undefined> {
  const kind = KINDS.find((each) => key.startsWith(`${each}:`));
  const file = key.slice(key.indexOf(":") + 1);
  if (kind === undefined || file === "" || !isPathInside(file)) {
    const message = `unexpected parameter '${key}' of repo agent '${CHECKSUM_AGENT}', expected ` +
      `'${KINDS.map((each) => `${each}:<path of a file of the model>`).join("' or '")}'`;
    return { message };
  }
  const actual = await hashOf(file, kind, call);
  if (actual === undefined) {
    const { message, code } = fileError({ name: file }, "No such file or directory");
    return { message, code };
  }
  if (actual === expected.toLowerCase()) return undefined;
  return {
    message: `Mismatched ${kind} hash for file ${file}, expect: ${expected}, got: ${actual}`,
  };
}

async function hashOf(
  file: string,
  kind: typeof KINDS[number],
  { directory, root }: AgentCall,
): Promise<string | undefined> {
  using handle = await openRegularFile({ path: `${directory}/${file}`, name: file, root });
  if (handle === undefined) return undefined;
  const hash = createHash(kind.toLowerCase());
  const chunk = new Uint8Array(READ_BYTES);
  for (;;) {
    const count = await handle.read(chunk);
    if (count === null) return hash.digest("hex");
    hash.update(chunk.subarray(0, count));
  }
}
