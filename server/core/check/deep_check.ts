import { type ConfigIssue, fixConfigText, positionOf } from "../../../proto/model_config.ts";
import { type CheckedModel, checkModel, type CheckParts } from "./model_check.ts";

/**
 * Checks a model, and where its text cannot be read but can be mended, also what the mended text says: so that all
 * faults come out at once and not one layer after the other.
 * @throws ServerError when its folder cannot be read.
 */
export async function checkModelDeeply(name: string, parts: CheckParts): Promise<CheckedModel> {
  const model = await checkModel(name, parts);
  const text = model.file?.text;
  if (model.stage !== "unreadable" || text === undefined) return model;
  const fixed = fixConfigText(text).text;
  if (fixed === text) return model;
  const mended = await checkModel(name, parts, fixed);
  if (mended.stage === "unreadable") return model;
  const more = mended.issues.filter(({ message }) =>
    !model.issues.some((known) => known.message === message)
  );
  return {
    ...model,
    issues: [...model.issues, ...more.map((issue) => placed(issue, model, mended))],
  };
}

/** The place in the text as it is on disk; where the field has another name there, that in the mended text. */
function placed(issue: ConfigIssue, model: CheckedModel, mended: CheckedModel): ConfigIssue {
  if (issue.path === "" || model.positions.byPath.has(issue.path)) return issue;
  const position = positionOf(issue.path, mended.positions);
  return position === undefined ? issue : { ...issue, position };
}
