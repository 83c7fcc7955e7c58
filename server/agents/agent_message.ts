import type { AgentModel } from "./agent_api.ts";

/** Begins the line of standard output that is the answer; all other lines are the agent's own. */
export const ANSWER_MARK = "\u001enereid-agent ";

/** Permissions of a Worker, as Deno takes them. */
export type WorkerPermissions = Readonly<Record<string, readonly string[] | false>>;

/** What the process of an agent is asked, as JSON on its standard input. */
export interface AgentQuestion {
  /** Address of the `agent.ts`. */
  readonly module: string;
  /** Name of the function that is called. */
  readonly call: string;
  readonly model: AgentModel;
  readonly permissions: WorkerPermissions;
}

/** What it answers, as JSON behind the mark. */
export type AgentReply =
  | { readonly ok: true; readonly isRewritten: boolean; readonly exports: readonly string[] }
  | { readonly ok: false; readonly message: string; readonly exports?: readonly string[] };
