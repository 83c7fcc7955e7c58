import { ServerError } from "../../proto/status.ts";

/** The error for requests whose process cannot answer them (python-backend.md §A8). */
export function executeError(instance: string, message: string): ServerError {
  const text = `Failed to process the request(s) for model instance '${instance}', message: `;
  return new ServerError("INTERNAL", `${text}${message}`);
}
