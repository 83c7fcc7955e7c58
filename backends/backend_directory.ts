const NAME = /^[A-Za-z0-9_-][A-Za-z0-9_.-]*$/;

/**
 * The file of a python-based backend, `<directory>/<name>/model.py` (python-backend.md §A1); undefined when there is
 * none, or when the name would lead elsewhere. Told at once: it is asked for once per name that is not built in.
 */
export function findPythonBackend(directory: string, name: string): string | undefined {
  if (directory === "" || !NAME.test(name)) return undefined;
  const path = `${directory}/${name}/model.py`;
  try {
    return Deno.statSync(path).isFile ? path : undefined;
  } catch {
    return undefined;
  }
}
