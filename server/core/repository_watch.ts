import type { Log } from "./log.ts";
import { reasonText } from "./model_repository_files.ts";

const KINDS: readonly string[] = ["create", "modify", "remove", "rename"];

/** Calls `onChange` whenever something below the folders may have changed; without a watcher there are no calls. */
export function watchFolders(
  folders: readonly string[],
  log: Log,
  onChange: () => void,
): Disposable {
  const watchers = folders.flatMap((folder) => {
    try {
      return [Deno.watchFs(folder, { recursive: true })];
    } catch (reason) {
      log.verbose(1, `'${folder}' is polled, but not watched: ${reasonText(reason)}`);
      return [];
    }
  });
  for (const watcher of watchers) void follow(watcher, onChange);
  return {
    [Symbol.dispose]: () => {
      for (const watcher of watchers) close(watcher);
    },
  };
}

async function follow(watcher: Deno.FsWatcher, onChange: () => void): Promise<void> {
  try {
    for await (const { kind } of watcher) if (KINDS.includes(kind)) onChange();
  } catch {
    close(watcher);
  }
}

function close(watcher: Deno.FsWatcher): void {
  try {
    watcher.close();
  } catch {
    // It is closed already.
  }
}
