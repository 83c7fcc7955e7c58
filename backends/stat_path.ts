import { ServerError } from "../proto/status.ts";

/** What is at a path; undefined when nothing is. @throws ServerError UNAVAILABLE when that cannot be told. */
export async function statPath(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.stat(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory) {
      return undefined;
    }
    throw ServerError.from(error, "UNAVAILABLE");
  }
}
