import type { ModelInstance } from "../../backends/backend.ts";
import { ServerError } from "../../proto/status.ts";
import type { Log } from "./log.ts";

/** Whose readiness is asked for. */
export interface ReadinessSource {
  /** As in the log. */
  readonly name: string;
  readonly versionText: string;
  /** Those that serve now. */
  readonly instances: readonly ModelInstance[];
  /** Versions that an ensemble is composed of. */
  readonly composing: readonly ComposingReadiness[];
  readonly log: Log;
}

/** A version as an ensemble sees it. */
export interface ComposingReadiness {
  readonly config: { readonly name: string };
  isReady(): true | Promise<boolean>;
}

/** Queries that are on their way: those that come meanwhile share the answer. */
const asked = new WeakMap<ModelInstance, Promise<string | undefined>>();

/**
 * Whether all instances of a loaded version say that they are ready, for an ensemble those of its models
 * (python-backend.md §A2). `true` at once when none of them has a say; never rejects.
 */
export function askReadiness(source: ReadinessSource): true | Promise<boolean> {
  const answers: Promise<string | undefined>[] = [];
  for (const instance of source.instances) {
    if (instance.isReady !== undefined) answers.push(askInstance(instance));
  }
  for (const model of source.composing) {
    const isReady = model.isReady();
    if (isReady === true) continue;
    answers.push(
      isReady.then((yes) => yes ? undefined : `its model '${model.config.name}' is not ready`),
    );
  }
  return answers.length === 0 ? true : collect(source, answers);
}

async function collect(
  { name, versionText, log }: ReadinessSource,
  answers: readonly Promise<string | undefined>[],
): Promise<boolean> {
  const reason = (await Promise.all(answers)).find((answer) => answer !== undefined);
  if (reason === undefined) return true;
  log.verbose(1, `Model '${name}' version ${versionText} is not ready: ${reason}`);
  return false;
}

/** Why an instance is not ready; undefined = it is. */
function askInstance(instance: ModelInstance): Promise<string | undefined> {
  const known = asked.get(instance);
  if (known !== undefined) return known;
  const answer = reasonOf(instance).finally(() => asked.delete(instance));
  asked.set(instance, answer);
  return answer;
}

async function reasonOf(instance: ModelInstance): Promise<string | undefined> {
  try {
    const { isReady, reason } = await instance.isReady!();
    if (isReady) return undefined;
    return reason ?? `Model '${instance.placement.name}' is not ready`;
  } catch (error) {
    return ServerError.from(error).message;
  }
}
