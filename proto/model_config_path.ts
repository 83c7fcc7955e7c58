/**
 * True for a path below the folder it is joined to, judged by its text: no `..` segment and no NUL. A leading `/` is
 * harmless, because paths of a configuration are always joined to a folder of the model.
 */
export function isPathInside(path: string): boolean {
  return !path.includes("\0") && !path.split(/[/\\]/).includes("..");
}
