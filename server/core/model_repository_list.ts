import { ServerError } from "../../proto/status.ts";
import { readDirectory, reasonText } from "./model_repository_files.ts";

/**
 * Names of the folders of a repository.
 * @throws ServerError INVALID_ARG when it is no folder that can be listed (management.md §2).
 */
export async function listRepository(repository: string): Promise<string[]> {
  const problem = await repositoryProblem(repository);
  if (problem !== undefined) {
    throw new ServerError(
      "INVALID_ARG",
      `repository path is not a valid directory: '${repository}' ${problem}`,
    );
  }
  try {
    const entries = await readDirectory(repository);
    return entries.filter((entry) => entry.isDirectory).map((entry) => entry.name);
  } catch (reason) {
    throw new ServerError(
      "INVALID_ARG",
      `repository path is not a valid directory: '${repository}' cannot be listed: ` +
        reasonText(reason),
    );
  }
}

async function repositoryProblem(repository: string): Promise<string | undefined> {
  if (/^(?:gs|s3|as):\/\//.test(repository)) {
    return "is in a cloud storage, which this server does not support";
  }
  try {
    return (await Deno.stat(repository)).isDirectory ? undefined : "is not a directory";
  } catch (reason) {
    return reason instanceof Deno.errors.NotFound
      ? "does not exist"
      : `cannot be opened: ${reasonText(reason)}`;
  }
}
