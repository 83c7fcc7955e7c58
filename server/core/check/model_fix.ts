import { fixConfigText, mendConfigText } from "../../../proto/model_config.ts";
import { type CheckedModel, checkModel, type CheckParts, type CheckStage } from "./model_check.ts";

/** A text is looked at so many times at most, each time with the mends of the time before. */
const ROUNDS_MAX = 12;

const STAGES: readonly CheckStage[] = ["unreadable", "configuration", "model", "good"];

/** A model after mends of its configuration's text; nothing was written. */
export interface FixedModel {
  /** As if the text stood in the file. */
  readonly model: CheckedModel;
  /** The file, relative to the model's folder. */
  readonly fileName: string;
  /** "" where there was no file. */
  readonly before: string;
  /** Same as `before` when nothing could be mended. */
  readonly after: string;
}

/**
 * Finds the text that the safe mends of a model lead to. Each step must bring the model nearer to being loaded, so
 * that the result is the same when the text is mended again.
 */
export async function fixModel(model: CheckedModel, parts: CheckParts): Promise<FixedModel> {
  const fileName = model.file?.name ?? "config.pbtxt";
  const before = model.file === undefined ? "" : model.file.text;
  if (before === undefined) return { model, fileName, before: "", after: "" };
  let best = { text: before, model };
  let current = best;
  const seen = new Set([before]);
  for (let round = 0; round < ROUNDS_MAX && current.model.stage !== "good"; round++) {
    const { text } = current.model.stage === "unreadable"
      ? fixConfigText(current.text)
      : mendConfigText(current.text, current.model.issues);
    if (seen.has(text)) break;
    seen.add(text);
    current = { text, model: await checkModel(model.name, parts, text) };
    if (isNearer(current.model, best.model)) best = current;
  }
  return { model: best.model, fileName, before, after: best.text };
}

function isNearer(left: CheckedModel, right: CheckedModel): boolean {
  const stages = STAGES.indexOf(left.stage) - STAGES.indexOf(right.stage);
  return stages > 0 || (stages === 0 && left.issues.length < right.issues.length);
}
