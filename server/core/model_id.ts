const SEPARATOR = "::";

/** What a model is kept under: its name, with `--model-namespacing` its repository and its name (management.md §10). */
export interface ModelIdParts {
  /** The path of the repository; "" without namespacing. */
  readonly namespace: string;
  readonly name: string;
}

/** `<repository>::<name>`, or the name alone without a namespace. */
export function modelId({ namespace, name }: ModelIdParts): string {
  return namespace === "" ? name : `${namespace}${SEPARATOR}${name}`;
}

/** Undoes {@linkcode modelId}: repositories are absolute paths, and no name begins with a slash. */
export function splitModelId(id: string): ModelIdParts {
  const at = id.startsWith("/") ? id.lastIndexOf(SEPARATOR) : -1;
  if (at < 0) return { namespace: "", name: id };
  return { namespace: id.slice(0, at), name: id.slice(at + SEPARATOR.length) };
}

/** True for a folder name that {@linkcode splitModelId} would take apart wrongly. */
export function isAmbiguousName(name: string): boolean {
  return name.includes(SEPARATOR);
}
