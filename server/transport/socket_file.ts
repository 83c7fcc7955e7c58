/** Removes the file of a unix socket that is closed; at once, because the process may end right after. */
export function removeSocketFile(path: string): void {
  try {
    Deno.removeSync(path);
  } catch {
    // Somebody else has removed it.
  }
}

/** A socket file of a process that is gone keeps the address; one that answers is in use. */
export async function removeStaleSocket(path: string): Promise<void> {
  const found = await Deno.lstat(path).catch(() => undefined);
  if (found?.isSocket !== true) return;
  try {
    (await Deno.connect({ transport: "unix", path })).close();
  } catch {
    await Deno.remove(path);
  }
}
