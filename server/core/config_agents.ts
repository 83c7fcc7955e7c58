import { createHash } from "node:crypto";
import { configError, type ConfigIssue, type ConfigPositions } from "../../proto/model_config.ts";
import type { ModelConfig, ModelRepositoryAgents_Agent } from "../../proto/gen/model_config_pb.ts";
import { isPathInside } from "../../proto/model_config_path.ts";
import { fileError, openRegularFile } from "./model_repository_files.ts";

/** The only agent there is: it compares files of the model with their checksums. */
const CHECKSUM_AGENT = "checksum";
const MD5_PREFIX = "MD5:";
const READ_BYTES = 1024 * 1024;

/** What an agent is told about the model. */
export interface AgentSource {
  readonly directory: string;
  readonly repository: string;
  readonly positions: ConfigPositions;
}

/**
 * Runs the repository agents of a model that is about to be loaded (management.md §12).
 * @throws ServerError with everything they find wrong.
 */
export async function runRepositoryAgents(config: ModelConfig, source: AgentSource): Promise<void> {
  const issues: ConfigIssue[] = [];
  for (const [index, agent] of (config.modelRepositoryAgents?.agents ?? []).entries()) {
    const path = `model_repository_agents.agents[${index}]`;
    if (agent.name === CHECKSUM_AGENT) {
      issues.push(...await checkChecksums(agent, path, source));
      continue;
    }
    issues.push({
      path: `${path}.name`,
      message:
        `unable to find 'libtritonrepoagent_${agent.name}.so' for repo agent '${agent.name}'`,
      hint: `this server has the agent '${CHECKSUM_AGENT}'`,
    });
  }
  if (issues.length > 0) throw configError(issues, source.positions);
}

async function checkChecksums(
  agent: ModelRepositoryAgents_Agent,
  agentPath: string,
  source: AgentSource,
): Promise<ConfigIssue[]> {
  const issues: ConfigIssue[] = [];
  for (const [key, expected] of Object.entries(agent.parameters)) {
    const path = `${agentPath}.parameters[${JSON.stringify(key)}]`;
    const file = key.slice(MD5_PREFIX.length);
    if (!key.startsWith(MD5_PREFIX) || !isPathInside(file)) {
      const message = `unexpected parameter '${key}' of repo agent '${agent.name}', expected ` +
        `'${MD5_PREFIX}<path of a file of the model>'`;
      issues.push({ path, message });
      continue;
    }
    const actual = await md5Of(file, source);
    if (actual === undefined) {
      const { message, code } = fileError({ name: file }, "No such file or directory");
      issues.push({ path, message, code });
    } else if (actual !== expected.toLowerCase()) {
      const message = `Mismatched MD5 hash for file ${file}, expect: ${expected}, got: ${actual}`;
      issues.push({ path, message });
    }
  }
  return issues;
}

async function md5Of(file: string, source: AgentSource): Promise<string | undefined> {
  using handle = await openRegularFile({
    path: `${source.directory}/${file}`,
    name: file,
    root: source.repository,
  });
  if (handle === undefined) return undefined;
  const hash = createHash("md5");
  const chunk = new Uint8Array(READ_BYTES);
  for (;;) {
    const count = await handle.read(chunk);
    if (count === null) return hash.digest("hex");
    hash.update(chunk.subarray(0, count));
  }
}
