import { type ConfigIssue, positionOf } from "../../../proto/model_config.ts";
import type { StatusCode } from "../../../proto/status.ts";
import type { CheckedModel } from "./model_check.ts";
import type { CheckedRepositories } from "./repository_check.ts";

/** One line of a check's report. */
export interface CheckFault {
  /** What the server refuses, or only warns of. */
  readonly severity: "error" | "warning";
  /** Absolute path. */
  readonly repository: string;
  /** "" for a fault of the repository itself. */
  readonly model: string;
  /** Absolute path of the file, or of the folder when it is in no file. */
  readonly file: string;
  /** 1-based; absent for folders. */
  readonly line?: number;
  readonly column?: number;
  /** Field of the configuration, "" = all of it. */
  readonly path: string;
  readonly message: string;
  readonly hint?: string;
  readonly code: StatusCode;
  /** A mend is known that cannot change what was meant. */
  readonly isFixable: boolean;
}

/** Everything a check found, model by model. */
export function listFaults({ models, folders }: CheckedRepositories): CheckFault[] {
  const faults = folders.map(({ repository, model, directory, issue }) =>
    toFault(issue, { repository, model, place: { file: directory } })
  );
  for (const model of models) faults.push(...faultsOfModel(model));
  return faults;
}

/** The faults and warnings of one model. */
export function faultsOfModel(model: CheckedModel): CheckFault[] {
  const { repository, name, directory } = model;
  return [
    ...model.issues.map((issue) =>
      toFault(issue, { repository, model: name, place: placeOf(issue, model) })
    ),
    ...model.warnings.map((message): CheckFault => ({
      severity: "warning",
      repository,
      model: name,
      file: directory,
      path: "",
      message,
      code: "INVALID_ARG",
      isFixable: false,
    })),
  ];
}

type Place = Pick<CheckFault, "file" | "line" | "column">;

function placeOf(issue: ConfigIssue, model: CheckedModel): Place {
  const { repository, directory, file, positions } = model;
  if (issue.place !== undefined) return { file: `${repository}/${issue.place}` };
  if (file === undefined) return { file: directory };
  const path = `${directory}/${file.name}`;
  const { line, column } = issue.position ?? positionOf(issue.path, positions) ??
    { line: 1, column: 1 };
  return { file: path, line, column };
}

function toFault(
  { path, message, hint, code, mend }: ConfigIssue,
  { repository, model, place }: {
    readonly repository: string;
    readonly model: string;
    readonly place: Place;
  },
): CheckFault {
  return {
    severity: "error",
    repository,
    model,
    ...place,
    path,
    message,
    ...(hint === undefined ? {} : { hint }),
    code: code ?? "INVALID_ARG",
    isFixable: mend !== undefined,
  };
}
