import { libraryFileFault } from "./library_file.ts";
import { FFI_REFUSAL, isFfiAllowed } from "./permission.ts";

/** One place a library was looked for, and what came of it. */
export interface LibraryAttempt {
  /** Where the candidate comes from, such as `environment variable ORT_DYLIB_PATH`. */
  readonly origin: string;
  readonly path: string;
  readonly reason: string;
}

/** A place to look for a library. */
export interface LibraryCandidate {
  readonly origin: string;
  /** Absolute path, or a bare file name for the system's loader. */
  readonly path: string;
}

/** No candidate could be opened; the message lists all of them. */
export class LibraryNotFoundError extends Error {
  override readonly name = "LibraryNotFoundError";
  readonly attempts: readonly LibraryAttempt[];

  constructor(what: string, attempts: readonly LibraryAttempt[]) {
    const list = attempts.map(({ origin, path, reason }) =>
      `${origin}: ${path === "" ? "" : `'${path}': `}${reason}`
    );
    super(
      `Cannot open ${what}; tried: ${list.length === 0 ? "no place" : list.join("; ")}`,
    );
    this.attempts = attempts;
  }
}

/** An opened library and where it was found. */
export interface OpenedLibrary<S extends Deno.ForeignLibraryInterface> {
  readonly path: string;
  readonly symbols: Deno.DynamicLibrary<S>["symbols"];
}

/**
 * Opens the first candidate that loads. Libraries stay open for the life of the process: native threads may still
 * run in them when the last handle is gone.
 * @throws LibraryNotFoundError listing every candidate with the loader's reason.
 */
export function openLibrary<const S extends Deno.ForeignLibraryInterface>(
  what: string,
  options: {
    readonly candidates: readonly LibraryCandidate[];
    readonly symbols: S;
    /** Attempts made before, for the error text. */
    readonly attempts?: readonly LibraryAttempt[];
  },
): OpenedLibrary<S> {
  const attempts: LibraryAttempt[] = [...options.attempts ?? []];
  if (!isFfiAllowed()) {
    const refused = options.candidates.map((candidate) => ({ ...candidate, reason: FFI_REFUSAL }));
    throw new LibraryNotFoundError(what, [...attempts, ...refused]);
  }
  for (const candidate of options.candidates) {
    const fault = libraryFileFault(candidate.path);
    if (fault !== undefined) {
      attempts.push({ ...candidate, reason: fault });
      continue;
    }
    try {
      const library = Deno.dlopen(candidate.path, options.symbols);
      return { path: candidate.path, symbols: library.symbols };
    } catch (error) {
      attempts.push({ ...candidate, reason: loadFailure(error) });
    }
  }
  throw new LibraryNotFoundError(what, attempts);
}

function loadFailure(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message.replace(/^Could not open library: /, "").split("\n")[0] ?? message;
}
