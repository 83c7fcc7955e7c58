/** What a repository agent is told about a model; import this type into an `agent.ts`. */
export interface AgentModel {
  /** Name of the model. */
  readonly name: string;
  /** Those of the agent in the configuration of the model. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Absolute path of the folder of the model, as the agent before left it; it can only be read. */
  readonly directory: string;
  /** Absolute path of an empty folder for the rewritten model; "" in all calls but `load`. */
  readonly newDirectory: string;
}

/** What `load` says: load the model from `newDirectory`, or from where it is. Throwing refuses the model. */
export type AgentAnswer = "rewritten" | "unchanged" | undefined;

/**
 * What an `agent.ts` exports; only `load` must be there. Each call runs in a new Worker, so nothing is remembered from
 * one to the next. The others cannot change anything any more: what they throw is logged.
 */
export interface AgentModule {
  /** Before the model is read. */
  readonly load: (model: AgentModel) => AgentAnswer | void | Promise<AgentAnswer | void>;
  /** After the model was loaded. */
  readonly loadComplete?: (model: AgentModel) => void | Promise<void>;
  /** After `load`, when the model was not loaded after all. */
  readonly loadFail?: (model: AgentModel) => void | Promise<void>;
  /** Before a loaded model is freed. */
  readonly unload?: (model: AgentModel) => void | Promise<void>;
  /** After that. */
  readonly unloadComplete?: (model: AgentModel) => void | Promise<void>;
}
