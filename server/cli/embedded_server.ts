import type { InferOptions, ModelIndexEntry, ModelMetadata } from "../core/inference_api.ts";
import type { StartedModel } from "../core/inference_server.ts";
import { completeRequest, type EmbeddedRequest } from "./embedded_request.ts";
import type { InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { parseFlags } from "./flags.ts";
import { openLog } from "./open_log.ts";
import type { Program } from "./program.ts";
import { formatEndpoint, readServeOptions, type ServeOptions } from "./serve_options.ts";

/** Where an embedded server listens. */
export interface ListenOptions {
  /** Address to listen at, `0.0.0.0` when not given; `unix:/path` for a unix socket. */
  readonly address?: string;
  /** Port; 0 = any free one, which {@linkcode ServerStart.addresses} tells. */
  readonly port?: number;
}

/** What {@linkcode createServer} is told. Everything else has the default of the command line. */
export interface CreateServerOptions {
  /** One model repository, or several. */
  readonly modelRepository: string | readonly string[];
  /** Load only these models; all when not given. */
  readonly models?: readonly string[];
  /** Serve HTTP; not when absent. */
  readonly http?: ListenOptions;
  /** Serve gRPC; not when absent. */
  readonly grpc?: ListenOptions;
  /** Serve metrics; not when absent. */
  readonly metrics?: ListenOptions;
  /** Further options of the command line, such as `--log-verbose=1`. They come last and win. */
  readonly flags?: readonly string[];
}

/** A model version after the start. */
export type { StartedModel };

/** How the start went. */
export interface ServerStart {
  /** Every model with its state and, where it failed, the reason. */
  readonly models: readonly StartedModel[];
  /** `http`, `grpc` and `metrics` → `host:port`, of those that were asked for. */
  readonly addresses: Readonly<Record<string, string>>;
}

/** A server inside this process. */
export interface Server extends AsyncDisposable {
  /**
   * Loads the models and opens the ports that were asked for. Models that fail are in the result; the others serve.
   * @throws ServerError when a repository or a port cannot be opened, or `stop()` is called meanwhile.
   */
  start(): Promise<ServerStart>;
  /**
   * Runs one request. The buffers of `request` must stay untouched until the promise has settled; those of the response
   * are the caller's own.
   * @throws ServerError with the code and the text that a client would get.
   */
  infer(request: EmbeddedRequest, options?: InferOptions): Promise<InferResponse>;
  /** True when every model that should serve does. */
  isReady(): boolean;
  /**
   * Name, versions, inputs and outputs of a model; `version` "" = the latest.
   * @throws ServerError NOT_FOUND, or UNAVAILABLE when it is not ready.
   */
  modelMetadata(name: string, version?: string): ModelMetadata;
  /** Every model of the repository with its state. */
  repositoryIndex(): Promise<readonly ModelIndexEntry[]>;
  /**
   * Refuses new requests, waits for those in flight, unloads the models. False when `timeoutMs` (30 s) was too short.
   */
  stop(timeoutMs?: number): Promise<boolean>;
}

/**
 * Creates a server inside this process; nothing is loaded before `start()`.
 *
 * @example Serve a repository without any port
 * ```ts
 * import { createServer } from "@nereid/server";
 *
 * const directory = await Deno.makeTempDir();
 * await Deno.mkdir(`${directory}/echo/1`, { recursive: true });
 * await Deno.writeTextFile(
 *   `${directory}/echo/config.pbtxt`,
 *   `backend: "identity"
 *    input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
 *    output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]`,
 * );
 *
 * await using server = createServer({ modelRepository: directory });
 * await server.start();
 * const response = await server.infer({
 *   modelName: "echo",
 *   inputs: [{ name: "INPUT0", datatype: "FP32", shape: [2], data: new Float32Array([1, 2]) }],
 * });
 * console.assert(response.outputs[0]?.data.byteLength === 8);
 * ```
 *
 * @throws ServerError INVALID_ARG for options that make no sense.
 */
export function createServer(options: CreateServerOptions): Server {
  const serveOptions = readServeOptions(parseFlags(toFlags(options)));
  return new EmbeddedServer(serveOptions);
}

function toFlags(options: CreateServerOptions): string[] {
  const repositories = [options.modelRepository].flat();
  const flags = repositories.map((path) => `--model-repository=${path}`);
  flags.push("--exit-on-error=false", "--log-info=false");
  if (options.models !== undefined) {
    flags.push("--model-control-mode=explicit");
    flags.push(...options.models.map((name) => `--load-model=${name}`));
  }
  for (const service of ["http", "grpc", "metrics"] as const) {
    const listen = options[service];
    flags.push(`--allow-${service}=${listen !== undefined}`);
    if (listen?.address !== undefined) flags.push(`--${service}-address=${listen.address}`);
    if (listen?.port !== undefined) flags.push(`--${service}-port=${listen.port}`);
  }
  return [...flags, ...options.flags ?? []];
}

class EmbeddedServer implements Server {
  readonly #options: ServeOptions;
  #program: Program | undefined;
  #log: Disposable | undefined;
  #isStarted = false;
  #isStopped = false;

  constructor(options: ServeOptions) {
    this.#options = options;
  }

  isReady(): boolean {
    return this.#program?.server.isReady() ?? false;
  }

  modelMetadata(name: string, version = ""): ModelMetadata {
    return this.#running().server.modelMetadata(name, version);
  }

  async repositoryIndex(): Promise<readonly ModelIndexEntry[]> {
    return await this.#running().server.repositoryIndex(false);
  }

  async start(): Promise<ServerStart> {
    if (this.#isStarted) throw new TypeError("Server was started before");
    this.#isStarted = true;
    const { createProgram } = await import("./program.ts");
    if (this.#isStopped) throw new ServerError("UNAVAILABLE", "Server exiting");
    const log = openLog(this.#options.log);
    this.#log = log;
    const program = createProgram(this.#options, log);
    this.#program = program;
    const { error, models } = await program.load();
    // A model that fails is told in the table; without a repository nothing can be served.
    if (error !== undefined && !program.server.isLive()) throw error;
    await program.listen();
    const addresses = program.services.map((service) =>
      [service.name.toLowerCase(), formatEndpoint(service)] as const
    );
    return { models, addresses: Object.fromEntries(addresses) };
  }

  async infer(request: EmbeddedRequest, options?: InferOptions): Promise<InferResponse> {
    const { server } = this.#running();
    const response = await server.infer(completeRequest(request), options);
    // Nobody says when the response is done with, so it must not lie in memory that somebody waits for.
    try {
      const outputs = response.outputs.map((output) => ({ ...output, data: output.data.slice() }));
      return { ...response, outputs };
    } finally {
      server.releaseResponse(response);
    }
  }

  async stop(timeoutMs = 30_000): Promise<boolean> {
    this.#isStopped = true;
    const isClean = await this.#program?.stop(timeoutMs) ?? true;
    this.#log?.[Symbol.dispose]();
    return isClean;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #running(): Program {
    if (this.#program === undefined) throw new TypeError("Server was not started");
    return this.#program;
  }
}
