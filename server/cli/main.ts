import { HOST_COMMAND } from "../../backends/isolated/child_command.ts";
import { exitAtOnce } from "../../ffi/posix/exit_at_once.ts";
import { ServerError } from "../../proto/status.ts";
import { denoVersionFault } from "./deno_version.ts";
import { parseFlags } from "./flags.ts";
import { printText } from "./print.ts";
import { PROBE_COMMAND } from "./probe_message.ts";
import { workersEnded } from "./process_end.ts";
import type { ServeCallbacks } from "./serve_command.ts";
import { readServeOptions, type ServeOptions } from "./serve_options.ts";
import { restoreShellPath } from "./shell_path.ts";

/** Runs the command of a command line, without one the server, until it ends; returns the exit code. */
export async function main(
  args: readonly string[],
  callbacks: ServeCallbacks = {},
): Promise<number> {
  const code = await runCommand(args, callbacks);
  // The other commands, named by a word, have no Workers.
  const isServer = args[0]?.startsWith("-") ?? true;
  if ((isServer || args[0] === HOST_COMMAND) && !await workersEnded()) exitAtOnce(code);
  return code;
}

async function runCommand(args: readonly string[], callbacks: ServeCallbacks): Promise<number> {
  const fault = denoVersionFault(Deno.version.deno);
  if (fault !== undefined) {
    printError(fault);
    return 1;
  }
  restoreShellPath();
  const [command = "", ...others] = args;
  if (command === "check") {
    const { check } = await import("./check_command.ts");
    return await check(others);
  }
  if (command === "explain") {
    const { explain } = await import("./explain_command.ts");
    return await explain(others);
  }
  if (command === "devices") {
    const { showDevices } = await import("./devices_command.ts");
    return await showDevices(others);
  }
  if (command === HOST_COMMAND) {
    const { hostCommand } = await import("./host_command.ts");
    return await hostCommand(others);
  }
  if (command === PROBE_COMMAND) {
    const { answerProbe } = await import("./probe_command.ts");
    return await answerProbe(others);
  }
  let options: ServeOptions;
  let notes: readonly string[];
  try {
    const flags = parseFlags(args);
    if (flags.given("help")) {
      printError(await helpText());
      return 1;
    }
    notes = flags.notes;
    options = readServeOptions(flags);
  } catch (reason) {
    return await refuseCommandLine(ServerError.from(reason));
  }
  const { serve } = await import("./serve_command.ts");
  return await serve(options, notes, callbacks);
}

async function refuseCommandLine(problem: ServerError): Promise<number> {
  // A wrong value brings the whole help, as with Triton; the reason stands last, where it is seen.
  const help = problem.message.startsWith("Bad option") ? await helpText() + "\n" : "";
  printError(`${help}${problem.message}\nTry --help for all options.`);
  return 1;
}

async function helpText(): Promise<string> {
  const { formatHelp } = await import("./help.ts");
  return formatHelp();
}

function printError(text: string): void {
  printText(text.endsWith("\n") ? text : text + "\n", "stderr");
}
