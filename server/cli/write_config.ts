import { ServerError } from "../../proto/status.ts";

/** Any of the three bits that let somebody write. */
const WRITE_BITS = 0o222;

/** A text that is to replace that of a configuration file. */
export interface ConfigChange {
  /** Absolute paths. */
  readonly repository: string;
  readonly directory: string;
  /** Relative to the model's folder. */
  readonly fileName: string;
  /** What the new text was made from; "" when there was no file. */
  readonly before: string;
  readonly after: string;
}

/**
 * Writes a configuration file so that it is at every moment either the old or the new one.
 * @throws ServerError when it may not be written, leads out of the repository, or was changed meanwhile.
 */
export async function writeConfig(change: ConfigChange): Promise<void> {
  try {
    await write(change);
  } catch (reason) {
    if (reason instanceof ServerError) throw reason;
    const text = reason instanceof Deno.errors.PermissionDenied
      ? "Permission denied"
      : ServerError.from(reason).message;
    throw new ServerError("UNAVAILABLE", `it cannot be written: ${text}`);
  }
}

async function write({ repository, directory, fileName, before, after }: ConfigChange) {
  const root = await Deno.realPath(repository);
  const path = `${directory}/${fileName}`;
  const target = await Deno.realPath(path).catch((reason) => {
    if (reason instanceof Deno.errors.NotFound && before === "") return undefined;
    throw reason;
  });
  if (target === undefined) {
    await Deno.writeTextFile(path, after, { createNew: true });
    return;
  }
  if (!target.startsWith(`${root}/`)) {
    throw new ServerError("INVALID_ARG", "it is a link that leads out of the model repository");
  }
  const { mode } = await Deno.stat(target);
  if (mode !== null && (mode & WRITE_BITS) === 0) {
    throw new ServerError("UNAVAILABLE", "it cannot be written: the file is read-only");
  }
  const now = new TextDecoder("utf-8", { ignoreBOM: true }).decode(await Deno.readFile(target));
  if (now !== before) {
    throw new ServerError("UNAVAILABLE", "it was changed while it was being checked");
  }
  const temporary = `${target}.${crypto.randomUUID()}.tmp`;
  try {
    await Deno.writeTextFile(temporary, after, { createNew: true });
    if (mode !== null && Deno.build.os !== "windows") await Deno.chmod(temporary, mode & 0o777);
    await Deno.rename(temporary, target);
  } catch (reason) {
    await Deno.remove(temporary).catch(() => {});
    throw reason;
  }
}
