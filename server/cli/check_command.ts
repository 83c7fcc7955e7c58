import { ServerError } from "../../proto/status.ts";
import { listFaults } from "../core/check/check_faults.ts";
import { checkModelDeeply } from "../core/check/deep_check.ts";
import type { CheckedModel, CheckParts } from "../core/check/model_check.ts";
import { fixModel } from "../core/check/model_fix.ts";
import { checkRepositories } from "../core/check/repository_check.ts";
import { createCheckParts, EXIT, readCheckOptions, shownPath } from "./check_options.ts";
import {
  type CheckFix,
  type CheckReport,
  formatCheckJson,
  formatCheckReport,
  isClean,
} from "./check_report.ts";
import type { FlagSpec } from "./flag_table.ts";
import { printText } from "./print.ts";
import { formatUnifiedDiff } from "./unified_diff.ts";
import { writeConfig } from "./write_config.ts";

const USAGE = `Usage: nereid check --model-repository=PATH [--fix [--dry-run]] [--json] [options]

Reads a whole model repository as the server would, without serving it, and prints every fault with its
place. Exit code 0: no faults; 1: faults; 2: the command line is wrong.`;

const GROUP = "Model repository";
const CHECK_FLAGS: readonly FlagSpec[] = [
  {
    name: "fix",
    group: GROUP,
    kind: "none",
    help: "Mend faults that have only one mend in the configuration files, and print the changes",
  },
  {
    name: "dry-run",
    group: GROUP,
    kind: "none",
    help: "With --fix: print the changes, write nothing",
  },
  { name: "json", group: GROUP, kind: "none", help: "Print one JSON document" },
];

/** Runs `check`; returns the exit code. */
export async function check(args: readonly string[]): Promise<number> {
  const options = readCheckOptions(args, { usage: USAGE, own: CHECK_FLAGS });
  if (typeof options === "number") return options;
  const { flags, all } = options;
  await using parts = createCheckParts(all);
  const isDryRun = flags.given("dry-run");
  const report = await createReport(parts, { isFix: flags.given("fix") || isDryRun, isDryRun });
  printText(flags.given("json") ? formatCheckJson(report) : formatCheckReport(report));
  return isClean(report) ? EXIT.clean : EXIT.faults;
}

async function createReport(
  parts: CheckParts,
  { isFix, isDryRun }: { readonly isFix: boolean; readonly isDryRun: boolean },
): Promise<CheckReport> {
  const fixes: CheckFix[] = [];
  const checkOne = async (name: string): Promise<CheckedModel> => {
    const model = await checkModelDeeply(name, parts);
    if (!isFix || model.stage === "good" || model.isRewritten) return model;
    const fixed = await fixModel(model, parts);
    if (fixed.after === fixed.before) return model;
    const { repository, directory } = model;
    const { fileName, before, after } = fixed;
    const file = `${directory}/${fileName}`;
    const isNew = model.file === undefined;
    const diff = formatUnifiedDiff(before, after, { path: shownPath(file), isNew });
    const error = isDryRun
      ? undefined
      : await tryWrite({ repository, directory, fileName, before, after });
    const isWritten = !isDryRun && error === undefined;
    fixes.push({ file, diff, isWritten, error });
    return isWritten ? await checkModelDeeply(name, parts) : model;
  };
  const checked = await checkRepositories(parts, checkOne);
  return { modelCount: checked.models.length, faults: listFaults(checked), fixes };
}

/** Why a file could not be written; undefined when it was. */
async function tryWrite(change: Parameters<typeof writeConfig>[0]): Promise<string | undefined> {
  try {
    await writeConfig(change);
    return undefined;
  } catch (reason) {
    return ServerError.from(reason).message;
  }
}
