import { ServerError } from "../../proto/status.ts";
import type { CallGate } from "../../ffi/call_gate.ts";
import { TfError, type TfPort, type TfSession } from "../../ffi/tensorflow/mod.ts";
import type { BackendModel, InstancePlacement, ModelInstance } from "../backend.ts";
import type { RunPlan } from "../onnx_run_plan.ts";
import { TensorFlowInstance } from "./instance.ts";

/** A session and where its graph takes inputs and gives outputs, by the names of the configuration. */
export interface BoundSession extends AsyncDisposable {
  readonly session: TfSession;
  readonly inputs: ReadonlyMap<string, TfPort>;
  readonly outputs: ReadonlyMap<string, TfPort>;
}

/** What a model is made of. */
export interface TensorFlowModelParts {
  readonly name: string;
  readonly plan: RunPlan;
  /** Opens a further session. */
  readonly openSession: () => Promise<BoundSession>;
  /** Instances that share a session. */
  readonly sessionShareCount: number;
  /** Bounds the runs in flight of all models. */
  readonly gate: CallGate;
  readonly now: () => number;
  readonly countBatchRetry: () => void;
}

interface SharedSession {
  readonly opening: Promise<BoundSession>;
  userCount: number;
}

/** A model whose instances have sessions of their own, or share some. */
export class TensorFlowModel implements BackendModel {
  readonly parts: TensorFlowModelParts;
  readonly #sessions = new Set<SharedSession>();

  /** @param first the session that was opened to check the model. */
  constructor(parts: TensorFlowModelParts, first: BoundSession) {
    this.parts = parts;
    this.#sessions.add({ opening: Promise.resolve(first), userCount: 0 });
  }

  async createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    if (placement.kind === "KIND_GPU") {
      throw new ServerError(
        "UNSUPPORTED",
        `instance '${placement.name}' of model '${this.parts.name}' cannot have KIND_GPU: models of ` +
          `TensorFlow run on CPUs only; as ONNX (tf2onnx) they run on GPUs, too`,
      );
    }
    const shared = this.#takeSession();
    try {
      const bound = await shared.opening;
      return new TensorFlowInstance(this.parts, placement, {
        bound,
        leave: () => this.#leaveSession(shared),
      });
    } catch (error) {
      this.#sessions.delete(shared);
      throw error;
    }
  }

  #takeSession(): SharedSession {
    const { sessionShareCount, openSession } = this.parts;
    let shared = [...this.#sessions].find(({ userCount }) => userCount < sessionShareCount);
    if (shared === undefined) {
      shared = { opening: openSession(), userCount: 0 };
      this.#sessions.add(shared);
    }
    shared.userCount++;
    return shared;
  }

  async #leaveSession(shared: SharedSession): Promise<void> {
    shared.userCount--;
    if (shared.userCount > 0) return;
    this.#sessions.delete(shared);
    const bound = await shared.opening;
    await bound[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const left = [...this.#sessions];
    this.#sessions.clear();
    for (const { opening } of left) {
      const bound = await opening.catch(() => undefined);
      await bound?.[Symbol.asyncDispose]();
    }
  }
}

/** A failure of the library for whoever asked; anything else as it is. */
export function tensorFlowError(error: unknown, stage: string): ServerError {
  if (!(error instanceof TfError)) return ServerError.from(error);
  const message = `tensorflow error in ${stage}: ${error.message}`;
  return new ServerError("INTERNAL", message, { cause: error });
}
