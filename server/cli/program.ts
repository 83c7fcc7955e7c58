import { BACKEND_NAMES, openBackend } from "../../backends/registry.ts";
import { FFI_REFUSAL, isFfiAllowed } from "../../ffi/permission.ts";
import { MemoryOpener } from "../../backends/shared_memory.ts";
import { ServerError } from "../../proto/status.ts";
import { openAgentDirectory } from "../agents/agent_directory.ts";
import { CustomMetrics } from "../core/custom_metrics.ts";
import {
  createInferenceServer,
  type InferenceServer,
  type StartResult,
} from "../core/inference_server.ts";
import { createModelHost } from "../core/model_host.ts";
import { createSystemClock } from "../core/system_clock.ts";
import { settingsOf } from "./backend_settings.ts";
import type { OpenedLog } from "./open_log.ts";
import type { ServeOptions } from "./serve_options.ts";
import { ProgramDevices } from "./program_devices.ts";
import { openServices, type Service } from "./services.ts";
import { createTracer } from "./trace_output.ts";

/** What a server does without when it may not call native code. */
const WITHOUT_FFI =
  "ONNX models run on onnxruntime-web, there are no regions of shared memory and no " +
  "GPU metrics, tensors of Python models go through pipes, connections with TLS wait for full " +
  "packets, and freed memory stays with the C allocator";

/** The parts of a server process, wired: engine and listeners. */
export interface Program {
  readonly server: InferenceServer;
  /** The services that listen, once `listen()` has returned. */
  readonly services: readonly Service[];
  /** Loads the models; never rejects. */
  load(): Promise<StartResult>;
  /**
   * Opens the ports.
   * @throws ServerError UNAVAILABLE when one cannot be opened, or the program is being stopped; none is open then.
   */
  listen(): Promise<void>;
  /** Ends everything; false when the time was too short for what was in flight. */
  stop(timeoutMs: number): Promise<boolean>;
}

/**
 * Wires the server's parts; nothing is loaded or opened yet.
 * @throws ServerError INVALID_ARG for options that contradict each other.
 */
export function createProgram(options: ServeOptions, log: OpenedLog): Program {
  const clock = createSystemClock();
  const tracer = createTracer(options.trace, clock, log);
  const devices = createDevices(options, log);
  const customMetrics = new CustomMetrics();
  const host = createModelHost(() => server, customMetrics);
  const server: InferenceServer = createInferenceServer(options.server, {
    clock,
    log,
    logControl: log.control,
    tracer,
    backendNames: BACKEND_NAMES,
    devices: devices.machine,
    repositoryAgents: openAgentDirectory(
      options.server.repositoryAgentDirectory,
      log.module("repository_agent.ts"),
    ),
    customMetrics,
    statistics: options.metrics?.settings.statistics ?? {},
    // What is kept under an input must be the answer to it, whatever its owner writes there meanwhile.
    regionOpener: new MemoryOpener({
      copiesInputs: options.copySharedMemory || options.server.cacheConfig.size > 0,
    }),
    delaySchedulerCount: countOfEnvironment("TRITONSERVER_DELAY_SCHEDULER"),
    backlogDelayCount: countOfEnvironment("TRITONSERVER_BACKLOG_DELAY_SCHEDULER"),
    openBackend: (name) =>
      openBackend(name, {
        settings: settingsOf(options.server.backendConfig, name),
        log: log.module("backend.ts"),
        now: clock.now,
        countBatchRetry: (model, version) => server.countBatchRetry(model, version),
        host,
        ...devices.forBackends,
      }, options.server.backendDirectory),
  });
  let services: readonly Service[] = [];
  let isStopping = false;
  return {
    server,
    get services() {
      return services;
    },
    load: () => server.start(),
    listen: async () => {
      const opened = isStopping ? [] : await openServices(options, { server, clock, log, devices });
      if (!isStopping) {
        services = opened;
        return;
      }
      // The end came while the models were loaded or the ports opened.
      for (const service of opened) service.close();
      throw new ServerError("UNAVAILABLE", "Server exiting");
    },
    stop: async (timeoutMs) => {
      isStopping = true;
      const frontends = services.filter((service) => service.name !== "Metrics");
      // Both at once: what is in flight ends in the engine and at the listeners together, and from
      // now on health tells clients of open connections that the server is exiting.
      const [isStopped, ...drained] = await Promise.all([
        server.stop(timeoutMs),
        ...frontends.map((service) => service.listener.drain(timeoutMs)),
      ]);
      for (const service of services) service.close();
      devices[Symbol.dispose]();
      // Only now every answer is written, and every trace complete.
      await tracer.close();
      return isStopped && drained.every((done) => done);
    },
  };
}

function createDevices(options: ServeOptions, log: OpenedLog): ProgramDevices {
  if (!isFfiAllowed()) log.verbose(1, `${FFI_REFUSAL}: ${WITHOUT_FFI}`);
  return new ProgramDevices(options);
}

/** A number of requests that the environment gives; 0 = none. */
function countOfEnvironment(name: string): number {
  return Number.parseInt(Deno.env.get(name) ?? "0") || 0;
}
