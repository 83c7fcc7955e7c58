import { BACKEND_NAMES, openBackend } from "../../backends/registry.ts";
import { ServerError } from "../../proto/status.ts";
import { openAgentDirectory } from "../agents/agent_directory.ts";
import { BackendTable } from "../core/backend_table.ts";
import type { CheckParts } from "../core/check/model_check.ts";
import type { ServerOptions } from "../core/options.ts";
import { CustomMetrics } from "../core/custom_metrics.ts";
import { createModelHost } from "../core/model_host.ts";
import { createSystemClock } from "../core/system_clock.ts";
import { TemporaryFolders } from "../core/temporary_folders.ts";
import { settingsOf } from "./backend_settings.ts";
import type { FlagSpec } from "./flag_table.ts";
import { FLAGS, type ParsedFlags, parseFlags } from "./flags.ts";
import { formatFlagRows } from "./help.ts";
import { printText } from "./print.ts";
import { ProgramDevices } from "./program_devices.ts";
import { readServeOptions, type ServeOptions } from "./serve_options.ts";

/** Exit codes of `check` and `explain`. */
export const EXIT = { clean: 0, faults: 1, misuse: 2 } as const;

/** Flags of the server that decide what is read; all others are accepted, so that a command line can be kept. */
const READING_FLAGS: readonly string[] = [
  "model-repository",
  "model-config-name",
  "repoagent-directory",
  "backend-directory",
  "disable-auto-complete-config",
  "backend-config",
  "min-supported-compute-capability",
];

/** What one of the commands is started with. */
export interface CheckOptions {
  readonly flags: ParsedFlags;
  readonly server: ServerOptions;
  /** All options, those of the server among them. */
  readonly all: ServeOptions;
}

/**
 * Reads the command line of `check` or `explain`: its own flags, and those of the server.
 * @returns the exit code when there is nothing more to do.
 */
export function readCheckOptions(
  args: readonly string[],
  { usage, own }: { readonly usage: string; readonly own: readonly FlagSpec[] },
): CheckOptions | number {
  try {
    const flags = parseFlags(args, [...own, ...FLAGS]);
    if (flags.given("help")) {
      const reading = FLAGS.filter(({ name }) => READING_FLAGS.includes(name));
      printText(
        `${usage}\n\nOptions\n${formatFlagRows(own)}\n\n` +
          `What is read (all other options of the server are accepted and do nothing here)\n` +
          `${formatFlagRows(reading)}\n`,
      );
      return EXIT.clean;
    }
    const all = readServeOptions(flags);
    const { server } = all;
    if (server.modelRepositories.length === 0) {
      throw new ServerError("INVALID_ARG", "--model-repository must be specified");
    }
    return { flags, server, all };
  } catch (reason) {
    printText(`${usage.split("\n", 1)[0]}\n${ServerError.from(reason).message}\n`, "stderr");
    return EXIT.misuse;
  }
}

/** What a check works with; the backends are freed with it. */
export function createCheckParts(all: ServeOptions): CheckParts & AsyncDisposable {
  const { server } = all;
  const devices = new ProgramDevices(all);
  const clock = createSystemClock();
  const ignore = (): void => {};
  const silent = { info: ignore, warning: ignore, error: ignore, verbose: ignore };
  const temporaryFolders = new TemporaryFolders();
  const backends = new BackendTable((name) =>
    openBackend(name, {
      settings: settingsOf(server.backendConfig, name),
      log: silent,
      now: clock.now,
      countBatchRetry: ignore,
      host: createModelHost(() => {
        throw new ServerError("UNSUPPORTED", "no model runs during a check");
      }, new CustomMetrics()),
      devices: devices.machine,
    }, server.backendDirectory)
  );
  return {
    // No stamps are needed to read a folder once.
    options: { ...server, modelControlMode: "none" },
    backends,
    backendNames: BACKEND_NAMES,
    devices: devices.machine,
    agentParts: {
      temporaryFolders,
      agents: openAgentDirectory(server.repositoryAgentDirectory, silent),
    },
    [Symbol.asyncDispose]: async () => {
      devices[Symbol.dispose]();
      await backends[Symbol.asyncDispose]();
      await temporaryFolders.close();
    },
  };
}

/** A path as the user would type it: relative below the working directory, else absolute. */
export function shownPath(path: string): string {
  const here = `${Deno.cwd()}/`;
  return path.startsWith(here) ? path.slice(here.length) : path;
}
