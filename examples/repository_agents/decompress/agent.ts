// A repository agent that loads models whose files are kept compressed: every `*.gz` is unpacked, all else copied.
// Use it with --repoagent-directory=examples/repository_agents and, in the configuration of a model,
//   model_repository_agents { agents [ { name: "decompress" } ] }
import type { AgentModel } from "../../../server/agents/agent_api.ts";

/** Writes the folder of a model as it was before it was compressed. */
export async function load({ directory, newDirectory }: AgentModel): Promise<"rewritten"> {
  await copyFolder(directory, newDirectory);
  return "rewritten";
}

async function copyFolder(from: string, to: string): Promise<void> {
  for await (const { name, isDirectory } of Deno.readDir(from)) {
    if (isDirectory) {
      await Deno.mkdir(`${to}/${name}`);
      await copyFolder(`${from}/${name}`, `${to}/${name}`);
    } else if (name.endsWith(".gz")) {
      await unpack(`${from}/${name}`, `${to}/${name.slice(0, -".gz".length)}`);
    } else {
      await Deno.copyFile(`${from}/${name}`, `${to}/${name}`);
    }
  }
}

async function unpack(from: string, to: string): Promise<void> {
  const source = await Deno.open(from, { read: true });
  const target = await Deno.open(to, { write: true, createNew: true });
  await source.readable.pipeThrough(new DecompressionStream("gzip")).pipeTo(target.writable);
}
