import type { ExecuteOutcome, ExecuteResponse } from "../backend.ts";
import type { WireTensor } from "../process/frame.ts";
import type { PeerMemory } from "../process/peer_memory.ts";
import {
  type PeerSlot,
  readTensors,
  type TensorPlace,
  type TensorWriter,
} from "../process/tensor_wire.ts";
import { formatParameters, readParameters } from "../process/wire_values.ts";
import { readError, type WireError, wireError } from "./isolated_wire.ts";

/** The JSON of an outcome (wire.md). */
export interface WireOutcome {
  o?: WireTensor[];
  p?: string;
  e?: WireError;
  s?: true;
  k?: true;
  t?: WireTensor[];
}

/** An outcome for the server: its outputs are copied to where the server finds them. Never throws. */
export function wireOutcome(outcome: ExecuteOutcome, writer: TensorWriter): WireOutcome {
  try {
    if ("error" in outcome) return { e: wireError(outcome.error) };
    if ("streamed" in outcome) {
      const { reschedule = false, states } = outcome;
      const wire: WireOutcome = { s: true };
      if (reschedule) wire.k = true;
      if (states !== undefined) wire.t = writer.writeAll(states);
      return wire;
    }
    const wire: WireOutcome = { o: writer.writeAll(outcome.outputs) };
    if (outcome.parameters !== undefined) wire.p = formatParameters(outcome.parameters);
    return wire;
  } catch (reason) {
    return { e: wireError(reason) };
  }
}

/** Gives back what an outcome holds in the process. */
export function releaseOutcome(outcome: ExecuteOutcome | undefined): void {
  if (outcome !== undefined && "outputs" in outcome) outcome.release?.();
}

/** Gives slots back to the process whose they are. */
export type GiveBack = (slots: readonly PeerSlot[]) => void;

/**
 * Reads an outcome: outputs by reference, which are given back through `release`.
 * @throws RangeError, SyntaxError for what cannot be.
 */
export function readOutcome(
  wire: unknown,
  place: TensorPlace,
  giveBack: GiveBack,
): ExecuteOutcome {
  if (typeof wire !== "object" || wire === null) throw new RangeError("Expected an outcome");
  const { s: isStreamed, k: reschedule, t: states } = wire as WireOutcome;
  if (isStreamed !== true) return readResponse(wire, place, giveBack);
  return {
    streamed: true,
    ...(reschedule === true ? { reschedule } : {}),
    ...(states === undefined ? {} : { states: copyTensors(states, place, giveBack) }),
  };
}

/** The same for a response. */
export function readResponse(
  wire: unknown,
  place: TensorPlace,
  giveBack: GiveBack,
): ExecuteResponse {
  if (typeof wire !== "object" || wire === null) throw new RangeError("Expected a response");
  const { o: outputs, p: parameters, e: error } = wire as WireOutcome;
  if (error !== undefined) return { error: readError(error) };
  const { tensors, slots } = readTensors(outputs, place);
  const given = readParameters(parameters);
  return {
    outputs: tensors,
    ...(given === undefined ? {} : { parameters: given }),
    ...(slots.length === 0 ? {} : { release: holdSlots(slots, place.peer!, giveBack) }),
  };
}

/** States have no release: whoever keeps them may do so for a whole sequence. */
function copyTensors(states: unknown, place: TensorPlace, giveBack: GiveBack) {
  const { tensors, slots } = readTensors(states, place);
  const copies = tensors.map((tensor) => ({ ...tensor, data: tensor.data.slice() }));
  if (slots.length > 0) giveBack(slots);
  return copies;
}

function holdSlots(
  slots: readonly PeerSlot[],
  peer: PeerMemory,
  giveBack: GiveBack,
): () => void {
  peer.hold();
  let isHeld = true;
  return () => {
    if (!isHeld) return;
    isHeld = false;
    giveBack(slots);
    peer.release();
  };
}
