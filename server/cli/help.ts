import { FLAG_GROUPS, type FlagSpec } from "./flag_table.ts";
import { FLAGS } from "./flags.ts";

const COLUMN = 46;
const WIDTH = 100;

const INTRODUCTION = `Usage: nereid [options]
       nereid check [options]              find and mend faults of a model repository
       nereid devices [options]            list devices, libraries, and what backends can use
       nereid explain MODEL [options]      show where each value of a configuration comes from

An inference server that speaks the protocols of Triton Inference Server.
Options take the form --name=value or --name value; names may be shortened while they are
unambiguous. A value may be true, on, 1 or false, off, 0 where a bool is expected.`;

/** Rows of flags as `--help` shows them. */
export function formatFlagRows(flags: readonly FlagSpec[]): string {
  return flags.map(formatFlag).join("\n");
}

/** The text of `--help`. */
export function formatHelp(): string {
  const parts = [INTRODUCTION];
  for (const group of FLAG_GROUPS) {
    const rows = FLAGS.filter((flag) => flag.group === group).map(formatFlag);
    parts.push(`${group}\n${rows.join("\n")}`);
  }
  return parts.join("\n\n") + "\n";
}

function formatFlag(flag: FlagSpec): string {
  const head = `  --${flag.name}${formatValue(flag)}`;
  const extra = [
    flag.preset === undefined ? "" : `default: ${flag.preset}`,
    flag.repeated === true ? "may be repeated" : "",
    flag.noEffect === undefined || flag.noEffect === flag.help ? "" : `no effect: ${flag.noEffect}`,
  ].filter((part) => part !== "").join("; ");
  const lines = wrap(flag.help + (extra === "" ? "" : ` (${extra})`));
  const first = head.length < COLUMN ? [head.padEnd(COLUMN) + lines.shift()!] : [head];
  return [...first, ...lines.map((line) => " ".repeat(COLUMN) + line)].join("\n");
}

function formatValue(flag: FlagSpec): string {
  if (flag.kind === "none") return "";
  const placeholder = { bool: "BOOL", int: "N", size: "N", float: "NUMBER", text: "TEXT" };
  return `=${flag.value || placeholder[flag.kind]}`;
}

function wrap(text: string): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + word.length + 1 > WIDTH - COLUMN) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  lines.push(line);
  return lines;
}
