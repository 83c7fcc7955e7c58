import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Whether this program may start Workers with permissions of their own; the runtime ends a program that may not. */
export function canRestrictWorkers(): boolean {
  if (Deno.build.standalone) return true;
  const flags = ownFlags();
  if (flags.some((flag) => flag === "--unstable-worker-options" || flag === "--unstable")) {
    return true;
  }
  if (flags.includes("--no-config")) return false;
  const given = configFlag(flags);
  if (given !== undefined) return saysWorkerOptions(given) ?? false;
  return findInConfig(mainFolder()) ?? findInConfig(Deno.cwd()) ?? false;
}

/** What the program was started with, up to its own arguments; empty where that cannot be read. */
function ownFlags(): string[] {
  try {
    const words = Deno.readTextFileSync("/proc/self/cmdline").split("\0");
    return words.slice(1, words.length - 1 - Deno.args.length);
  } catch {
    return [];
  }
}

function configFlag(flags: readonly string[]): string | undefined {
  const index = flags.findIndex((flag) => flag === "--config" || flag === "-c");
  if (index >= 0) return flags[index + 1];
  return flags.find((flag) => flag.startsWith("--config="))?.slice("--config=".length);
}

/** What the nearest configuration file from a folder upwards says; undefined when there is none. */
function findInConfig(folder: string): boolean | undefined {
  for (let at = folder;; at = dirname(at)) {
    for (const name of ["deno.json", "deno.jsonc"]) {
      const says = saysWorkerOptions(join(at, name));
      if (says !== undefined) return says;
    }
    if (dirname(at) === at) return undefined;
  }
}

function saysWorkerOptions(path: string): boolean | undefined {
  try {
    return /"unstable"\s*:\s*\[[^\]]*"worker-options"/.test(Deno.readTextFileSync(path));
  } catch {
    return undefined;
  }
}

function mainFolder(): string {
  const { mainModule } = Deno;
  return mainModule.startsWith("file:") ? dirname(fileURLToPath(mainModule)) : Deno.cwd();
}
