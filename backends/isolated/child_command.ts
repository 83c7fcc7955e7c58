import { isFfiAllowed } from "../../ffi/permission.ts";
import { ServerError } from "../../proto/status.ts";

/** Command of this program that hosts an instance for a server; the path of the server's socket follows it. */
export const HOST_COMMAND = "host-instance";

const MAIN = new URL("../../mod.ts", import.meta.url).href;

/** How this program is started once more. */
export interface ChildCommand {
  readonly executable: string;
  readonly args: readonly string[];
}

/** @throws ServerError UNSUPPORTED where no process may be started, or none of this program can be. */
export function childCommand(): ChildCommand {
  const executable = Deno.execPath();
  const { state } = Deno.permissions.querySync({ name: "run", command: executable });
  if (state !== "granted") {
    throw new ServerError(
      "UNSUPPORTED",
      `isolation=process starts processes of '${executable}', which the server may not: start it ` +
        `with --allow-run, or leave isolation=process out`,
    );
  }
  if (!Deno.build.standalone) {
    // All permissions: what a backend needs is its own affair, but no native code where the server may call none.
    const denied = isFfiAllowed() ? [] : ["--deny-ffi"];
    return {
      executable,
      args: ["run", "-A", ...denied, "--quiet", "--no-prompt", MAIN, HOST_COMMAND],
    };
  }
  if (Deno.mainModule === MAIN) return { executable, args: [HOST_COMMAND] };
  throw new ServerError(
    "UNSUPPORTED",
    `isolation=process starts this program once more, and '${executable}' is a compiled program ` +
      `of another kind: compile mod.ts of the server itself, or leave isolation=process out`,
  );
}
