import { readLibraryVersion, type VersionForm } from "../../ffi/library_version.ts";
import { probeProviders } from "../../ffi/onnxruntime/provider_probe.ts";
import { printText } from "./print.ts";
import type { ProbeAnswer, ProbeRequest } from "./probe_message.ts";
import { findAdapters } from "./webgpu_adapters.ts";

/** Looks at what the one argument, a {@linkcode ProbeRequest} as JSON, says; prints the answer as a line of JSON. */
export async function answerProbe(args: readonly string[]): Promise<number> {
  let answer: ProbeAnswer;
  try {
    answer = await look(JSON.parse(args[0] ?? "") as ProbeRequest);
  } catch (error) {
    answer = { error: error instanceof Error ? error.message : String(error) };
  }
  printText(`\n${JSON.stringify(answer)}\n`);
  return 0;
}

async function look(request: ProbeRequest): Promise<ProbeAnswer> {
  switch (request.what) {
    case "library":
      return openFirst(request.paths, request.form);
    case "onnxruntime":
      return await probeProviders(request.path);
    case "webgpu":
      return await findAdapters();
  }
}

function openFirst(paths: readonly string[], form: VersionForm): ProbeAnswer {
  let missing = "";
  for (const path of paths) {
    try {
      return { version: readLibraryVersion(path, form), path: loadedPath(path) };
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      const isAbsent = reason.includes(`${path}: cannot open shared object file`);
      // A file that is there and cannot be used says more than names that are not there.
      if (!isAbsent) return { error: reason.replace(/^Could not open library: /, "") };
      missing ||= `${path} cannot be opened: no such file`;
    }
  }
  return { error: missing || "no place to look for it" };
}

/** Where the loader found a file, by the list of what is mapped into this process. */
function loadedPath(path: string): string {
  if (path.includes("/")) return path;
  try {
    const maps = Deno.readTextFileSync("/proc/self/maps");
    const stem = path.replace(/\.so.*$/, ".so");
    const line = maps.split("\n").find((each) => each.includes(`/${stem}`));
    return line === undefined ? path : line.slice(line.indexOf("/"));
  } catch {
    return path;
  }
}
