import { ServerError } from "../../proto/status.ts";
import type { ExecuteOutcome, ExecuteReport, ModelInstance } from "../backend.ts";
import { tellsDeviceLoss } from "../device_loss.ts";
import type { Frame } from "../process/frame.ts";
import { ChildRequest, type ChildRequestParts } from "./child_request.ts";
import { FRAME, wireError } from "./isolated_wire.ts";
import { releaseOutcome, type WireOutcome, wireOutcome } from "./outcome_wire.ts";
import { readRequest, type WireRequest } from "./request_wire.ts";

/** Runs the batches of a process, one after the other, in their order. */
export class ChildExecutions {
  readonly #parts: ChildRequestParts;
  readonly #instance: ModelInstance;
  readonly #requests = new Map<number, ChildRequest>();
  #last: Promise<void> | undefined;

  constructor(instance: ModelInstance, parts: Omit<ChildRequestParts, "closed">) {
    this.#instance = instance;
    this.#parts = { ...parts, closed: (number) => void this.#requests.delete(number) };
  }

  /** EXECUTE. @throws RangeError, SyntaxError for what cannot be. */
  execute({ id, json, payload }: Frame): void {
    const { peer } = this.#parts.memory;
    const requests = (json.r as readonly WireRequest[]).map((wire) => {
      const request = new ChildRequest(readRequest(wire, { payload, peer }), this.#parts);
      this.#requests.set(request.number, request);
      return request;
    });
    const last = this.#last;
    const running = last === undefined
      ? this.#run(id, requests)
      : last.then(() => this.#run(id, requests));
    this.#last = running;
    void running.then(() => {
      if (this.#last === running) this.#last = undefined;
    });
  }

  /** CANCELLED. */
  cancelled({ id }: Frame): void {
    this.#requests.get(id)?.cancel();
  }

  /** CREDIT. */
  credit({ id, json }: Frame): void {
    this.#requests.get(id)?.credit(Number(json.n));
  }

  async #run(batch: number, requests: readonly ChildRequest[]): Promise<void> {
    const { now } = this.#parts;
    const startMs = now();
    let report: ExecuteReport;
    try {
      report = await this.#instance.execute(requests.map(({ request }) => request));
    } catch (reason) {
      this.#watchDevice(ServerError.from(reason));
      const error = { e: wireError(reason) };
      for (const request of requests) request.close();
      const now = microseconds(this.#parts.now() - startMs);
      const body = { r: requests.map(() => error), u: [now, now, now] };
      return this.#parts.port.send(FRAME.executed, batch, body);
    }
    const { inputEndMs, outputStartMs } = report;
    const [inputEnd, outputStart] = [inputEndMs - startMs, outputStartMs - startMs];
    this.#report(batch, { requests, outcomes: report.outcomes }, () => {
      return [now() - startMs, inputEnd, outputStart].map(microseconds);
    });
  }

  /** A process whose device is lost is of no use: the server replaces it when the batch has ended. */
  #watchDevice(error: ServerError): void {
    if (tellsDeviceLoss(error)) this.#parts.port.send(FRAME.deviceLost, 0, { m: error.message });
  }

  #report(
    batch: number,
    { requests, outcomes }: {
      readonly requests: readonly ChildRequest[];
      readonly outcomes: readonly ExecuteOutcome[];
    },
    times: () => number[],
  ): void {
    const { memory, port } = this.#parts;
    for (const outcome of outcomes) if ("error" in outcome) this.#watchDevice(outcome.error);
    const writer = memory.writer();
    const wires = requests.map((request, index): WireOutcome => {
      const outcome = outcomes[index];
      if (outcome === undefined) return { e: ["INTERNAL", "the backend gave no outcome"] };
      const wire = wireOutcome(outcome, writer);
      // Those that stream go on, but another turn comes as another request.
      if (!("streamed" in outcome) || outcome.reschedule === true) request.close();
      return wire;
    });
    try {
      port.send(FRAME.executed, batch, { r: wires, u: times() }, writer.payload);
    } catch (reason) {
      writer.discard();
      const error = { e: wireError(reason) };
      const isStreamed = (index: number) => "streamed" in (outcomes[index] ?? {});
      const body = { r: wires.map((wire, index) => isStreamed(index) ? wire : error), u: times() };
      port.send(FRAME.executed, batch, body);
    } finally {
      for (const outcome of outcomes) releaseOutcome(outcome);
    }
  }
}

function microseconds(ms: number): number {
  return Math.max(0, Math.round(ms * 1000));
}
