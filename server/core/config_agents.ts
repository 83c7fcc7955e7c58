import type { ConfigIssue } from "../../proto/model_config.ts";
import type { ModelConfig, ModelRepositoryAgents_Agent } from "../../proto/gen/model_config_pb.ts";
import { checkModelName, printableName } from "../../proto/model_name.ts";
import { ServerError } from "../../proto/status.ts";
import { CHECKSUM_AGENT, checksumAgent } from "./checksum_agent.ts";
import type { AgentRun } from "./model_hold.ts";
import type { AgentFault, RepositoryAgent, RepositoryAgents } from "./repository_agent.ts";
import type { TemporaryFolder, TemporaryFolders } from "./temporary_folders.ts";

/** The model that agents are to look at. */
export interface AgentSource {
  readonly model: string;
  readonly directory: string;
  /** Folder that links must not lead out of. */
  readonly root: string;
}

/** What agents work with. */
export interface AgentParts {
  readonly temporaryFolders: TemporaryFolders;
  /** Agents besides the one built in; absent = there are none. */
  readonly agents?: RepositoryAgents | undefined;
}

/** A model after its agents. */
export interface AgentsResult {
  readonly directory: string;
  readonly root: string;
  /** Agents that were called, to be told what becomes of the model. */
  readonly runs: readonly AgentRun[];
  /** Made by agents, to be removed when the model is gone. */
  readonly folders: readonly TemporaryFolder[];
  /** Why the model must not be loaded. */
  readonly issues: readonly ConfigIssue[];
  /** An agent that may rewrite the model refused it, or was not run. */
  readonly isUnfinished: boolean;
}

/**
 * Runs the repository agents of a model that is about to be loaded, in order, each on the folder that the one before it
 * gave (management.md §12); the first that refuses ends it. Never rejects.
 */
export async function runRepositoryAgents(
  config: ModelConfig,
  source: AgentSource,
  parts: AgentParts,
): Promise<AgentsResult> {
  const chain = new AgentChain(source, parts);
  const agents = config.modelRepositoryAgents?.agents ?? [];
  const opened: RepositoryAgent[] = [];
  for (const [index, { name }] of agents.entries()) {
    const agent = await openAgent(name, parts.agents).catch((reason) => ServerError.from(reason));
    if (agent instanceof ServerError) {
      const { message, code } = agent;
      chain.issues.push({ path: `${agentPath(index)}.name`, message, code });
    } else opened.push(agent);
  }
  for (const [index, agent] of opened.entries()) {
    if (chain.issues.length > 0) break;
    await chain.load(agent, agents[index]!, agentPath(index));
  }
  const { directory, root, runs, folders, issues } = chain;
  const isUnfinished = issues.length > 0 && agents.some(({ name }) => name !== CHECKSUM_AGENT);
  return { directory, root, runs, folders, issues, isUnfinished };
}

class AgentChain implements Omit<AgentsResult, "isUnfinished"> {
  readonly runs: AgentRun[] = [];
  readonly folders: TemporaryFolder[] = [];
  readonly issues: ConfigIssue[] = [];
  readonly #model: string;
  readonly #temporaryFolders: TemporaryFolders;
  directory: string;
  root: string;

  constructor({ model, directory, root }: AgentSource, { temporaryFolders }: AgentParts) {
    this.directory = directory;
    this.root = root;
    this.#model = model;
    this.#temporaryFolders = temporaryFolders;
  }

  /** Asks the next agent to load the model. */
  async load(
    agent: RepositoryAgent,
    { name, parameters }: ModelRepositoryAgents_Agent,
    path: string,
  ): Promise<void> {
    const created: TemporaryFolder[] = [];
    const createDirectory = async (): Promise<string> => {
      const folder = await this.#temporaryFolders.create();
      created.push(folder);
      return folder.path;
    };
    const { directory, root } = this;
    const call = { model: this.#model, parameters, directory, root, createDirectory };
    this.runs.push({ name, agent, call });
    try {
      const outcome = await agent.call({ ...call, action: "LOAD" });
      this.issues.push(...outcome.faults.map((fault) => toIssue(fault, path)));
      if (outcome.directory !== undefined) this.directory = this.root = outcome.directory;
    } catch (reason) {
      const { message, code } = ServerError.from(reason);
      this.issues.push({ path: `${path}.name`, message, code });
    }
    for (const folder of created) {
      if (folder.path === this.directory) this.folders.push(folder);
      else await folder.remove().catch(() => {});
    }
  }
}

async function openAgent(
  name: string,
  agents: RepositoryAgents | undefined,
): Promise<RepositoryAgent> {
  if (name === CHECKSUM_AGENT) return checksumAgent;
  try {
    checkModelName(name);
  } catch {
    throw new ServerError(
      "INVALID_ARG",
      `invalid name '${printableName(name.slice(0, 255))}' of a repo agent, expected the name of ` +
        `a folder`,
    );
  }
  const agent = await agents?.open(name);
  if (agent !== undefined) return agent;
  const searched = agents === undefined ? "" : `, searched: '${agents.describePlace(name)}'`;
  throw new ServerError(
    "INVALID_ARG",
    `unable to find 'libtritonrepoagent_${name}.so' for repo agent '${name}'${searched}; this ` +
      `server has the agent '${CHECKSUM_AGENT}', and TypeScript agents in --repoagent-directory`,
  );
}

function agentPath(index: number): string {
  return `model_repository_agents.agents[${index}]`;
}

function toIssue({ parameter, message, code }: AgentFault, path: string): ConfigIssue {
  const place = parameter === undefined
    ? `${path}.name`
    : `${path}.parameters[${JSON.stringify(parameter)}]`;
  return { path: place, message, ...(code === undefined ? {} : { code }) };
}
