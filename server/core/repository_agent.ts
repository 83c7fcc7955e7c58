import type { StatusCode } from "../../proto/status.ts";

/** What an agent is called for, in this order (management.md §12). */
export type AgentAction = "LOAD" | "LOAD_COMPLETE" | "LOAD_FAIL" | "UNLOAD" | "UNLOAD_COMPLETE";

/** What an agent is told about the model. */
export interface AgentCall {
  readonly action: AgentAction;
  /** Name of the model. */
  readonly model: string;
  readonly parameters: Readonly<Record<string, string>>;
  /** Absolute path of the model's folder as the agent before left it. */
  readonly directory: string;
  /** Folder that links must not lead out of: the repository, or the new folder of an agent. */
  readonly root: string;
  /** Makes an empty folder for a model that is to be rewritten; only at LOAD. */
  readonly createDirectory: () => Promise<string>;
}

/** One fault that made an agent refuse a model. */
export interface AgentFault {
  /** Parameter of the agent that asked for what failed; absent = the agent as a whole. */
  readonly parameter?: string;
  readonly message: string;
  readonly code?: StatusCode;
}

/** What came of a call. */
export interface AgentOutcome {
  /** Why the model must not be loaded; empty = it may be. */
  readonly faults: readonly AgentFault[];
  /** The folder of `createDirectory` when the model is to be loaded from there. */
  readonly directory?: string | undefined;
}

/** Looks at a model, refuses or rewrites it before it is loaded, and hears what becomes of it. */
export interface RepositoryAgent {
  /** Settles in bounded time. Rejects with a ServerError when the agent itself fails; that counts as a refusal. */
  call(call: AgentCall): Promise<AgentOutcome>;
}

/** Finds agents that are no part of the server. */
export interface RepositoryAgents {
  /**
   * The agent of a name; undefined = there is none.
   * @throws ServerError when it is there and cannot be used.
   */
  open(name: string): Promise<RepositoryAgent | undefined>;
  /** Where it looks, below its folder: clients are told, too. */
  describePlace(name: string): string;
}
