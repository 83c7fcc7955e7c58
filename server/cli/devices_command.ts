import { ServerError } from "../../proto/status.ts";
import { formatJson } from "../http/json_response.ts";
import { EXIT } from "./check_options.ts";
import { formatInventory, inventoryJson } from "./device_report.ts";
import type { FlagSpec } from "./flag_table.ts";
import { FLAGS, parseFlags } from "./flags.ts";
import { formatFlagRows } from "./help.ts";
import { printText } from "./print.ts";
import { ProgramDevices } from "./program_devices.ts";
import { readServeOptions, type ServeOptions } from "./serve_options.ts";

const USAGE = `Usage: nereid devices [--json] [options]

Prints the devices of this machine, the libraries that were found, what each backend can use, and for
what is missing the reason and what brings it. Exit code 0; 2: the command line is wrong.`;

const OWN_FLAGS: readonly FlagSpec[] = [
  { name: "json", group: "Devices", kind: "none", help: "Print one JSON document" },
];

const READ_FLAGS = ["backend-config", "min-supported-compute-capability"];

/** Runs `devices`; returns the exit code. */
export async function showDevices(args: readonly string[]): Promise<number> {
  let options: ServeOptions;
  let isJson: boolean;
  try {
    const flags = parseFlags(args, [...OWN_FLAGS, ...FLAGS]);
    if (flags.given("help")) {
      const rows = [...OWN_FLAGS, ...FLAGS.filter(({ name }) => READ_FLAGS.includes(name))];
      printText(`${USAGE}\n\nOptions (all others of the server do nothing here)\n`);
      printText(`${formatFlagRows(rows)}\n`);
      return EXIT.clean;
    }
    isJson = flags.given("json");
    options = readServeOptions(flags);
  } catch (reason) {
    printText(`${USAGE.split("\n", 1)[0]}\n${ServerError.from(reason).message}\n`, "stderr");
    return EXIT.misuse;
  }
  if (Deno.stderr.isTerminal()) {
    printText("Looking at libraries and devices, which takes some seconds …\n", "stderr");
  }
  using devices = new ProgramDevices(options);
  const inventory = await devices.takeInventory();
  printText(isJson ? `${formatJson(inventoryJson(inventory))}\n` : formatInventory(inventory));
  return EXIT.clean;
}
