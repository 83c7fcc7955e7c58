import { dirname, join } from "node:path";
import type { InferenceSession, Tensor } from "onnxruntime-web";
import { StringTensorError } from "./string_elements.ts";
import { fromRuntime, toRuntime } from "./worker_tensors.ts";
import type {
  FromWorker,
  SessionRequest,
  ToWorker,
  WireSignature,
  WireTensor,
} from "./worker_protocol.ts";

type Runtime = typeof import("onnxruntime-web");

/** What WebAssembly throws, or the runtime says, when its memory or code cannot be used any more. */
const FATAL =
  /\bAborted\(|unreachable|memory access out of bounds|table index is out of bounds|null function|device (?:was|is) lost|DeviceLost/i;

/** Nothing but what ends the process is written: failures reach us as errors. */
const RUN_OPTIONS = { logSeverityLevel: 4 } as const;

/** As the native runtime knows it; it cannot be told to a session on the CPU. */
const NO_CPU_FALLBACK = { "session.disable_cpu_ep_fallback": "1" } as const;

/** One model in the runtime: what a Worker does. Questions come one after the other. */
export class SessionWorker {
  #runtime: Runtime | undefined;
  #session: InferenceSession | undefined;

  /** Never rejects. */
  async answer(question: ToWorker): Promise<FromWorker> {
    try {
      if (question.kind === "load") return await this.#load(question.request);
      return { kind: "result", outputs: await this.#run(question.inputs, question.outputs) };
    } catch (reason) {
      const message = reason instanceof Error ? reason.message : String(reason);
      const isInput = reason instanceof StringTensorError;
      const isFatal = reason instanceof WebAssembly.RuntimeError || FATAL.test(message) ||
        // The runtime throws addresses of C++ objects that it cannot name.
        typeof reason === "number";
      return { kind: "failed", message, isInput, isFatal };
    }
  }

  /** Frees the model; a Worker that is ended need not do it. */
  async release(): Promise<void> {
    const session = this.#session;
    this.#session = undefined;
    await session?.release();
  }

  async #load(request: SessionRequest): Promise<FromWorker> {
    const runtime = this.#runtime = request.provider === "webgpu"
      ? await import("onnxruntime-web/webgpu")
      : await import("onnxruntime-web");
    // Failures reach us as errors.
    runtime.env.logLevel = "fatal";
    runtime.env.wasm.numThreads = request.threadCount;
    const folder = dirname(request.path);
    const externalData = await Promise.all(request.externalFiles.map(async (path) => ({
      path,
      data: await Deno.readFile(join(folder, path)),
    })));
    const model = await Deno.readFile(request.path);
    const session = this.#session = await runtime.InferenceSession.create(model, {
      executionProviders: [request.provider],
      graphOptimizationLevel: request.graphOptimizationLevel,
      executionMode: request.executionMode,
      logSeverityLevel: 4,
      extra: {
        ...request.entries,
        ...(request.provider === "webgpu" && request.isDeviceOnly ? NO_CPU_FALLBACK : {}),
      },
      ...(externalData.length === 0 ? {} : { externalData }),
      ...(request.enableCpuMemArena === undefined
        ? {}
        : { enableCpuMemArena: request.enableCpuMemArena }),
      ...(request.enableMemPattern === undefined
        ? {}
        : { enableMemPattern: request.enableMemPattern }),
    });
    return {
      kind: "loaded",
      version: runtime.env.versions.web ?? "",
      inputs: session.inputMetadata.map(toWireSignature),
      outputs: session.outputMetadata.map(toWireSignature),
    };
  }

  async #run(
    inputs: readonly WireTensor[],
    outputNames: readonly string[],
  ): Promise<WireTensor[]> {
    const [runtime, session] = [this.#runtime, this.#session];
    if (runtime === undefined || session === undefined) throw new TypeError("No model is loaded");
    const feeds: Record<string, Tensor> = {};
    for (const input of inputs) feeds[input.name] = toRuntime(runtime.Tensor, input);
    const results = await session.run(feeds, outputNames, RUN_OPTIONS);
    return outputNames.map((name) => {
      const result = results[name];
      if (result === undefined) throw new Error(`the model gave no value for output '${name}'`);
      return fromRuntime(name, result);
    });
  }
}

function toWireSignature(metadata: InferenceSession.ValueMetadata): WireSignature {
  const { name } = metadata;
  return metadata.isTensor
    ? { name, type: metadata.type, dims: metadata.shape }
    : { name, dims: [] };
}
