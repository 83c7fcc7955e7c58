/** Sockets have paths of at most 103 bytes on some systems, and a name with a number. */
const FOLDER_LENGTH_MAX = 80;

/** Makes a private folder in the place for temporary files, or where paths are short: those of sockets have an end. */
export async function makeSocketFolder(prefix: string): Promise<string> {
  const path = await Deno.realPath(await Deno.makeTempDir({ prefix }));
  if (path.length <= FOLDER_LENGTH_MAX) return path;
  await Deno.remove(path);
  return await Deno.makeTempDir({ prefix, dir: "/tmp" });
}
