import type { NativePointer } from "../handle.ts";
import { OutParameter, pointerAt, readCString } from "../memory.ts";
import { ASSIGNMENT_API_VERSION } from "./api_table.ts";
import type { OrtEnvironment } from "./environment.ts";
import { checkStatus } from "./error.ts";

/** Entry of a session's configuration that makes {@linkcode readAssignment} possible. */
export const RECORD_ASSIGNMENT_ENTRY = "session.record_ep_graph_assignment_info";

/** A node of the model and the provider that runs it. */
export interface NodeAssignment {
  /** As the library lists it, such as `CPUExecutionProvider`. */
  readonly provider: string;
  /** "" for a node without name. */
  readonly node: string;
  readonly operator: string;
}

/** A model larger than this is not described node by node. */
const MAX_NODES = 100_000;

/**
 * Which provider has which node of a session made with {@linkcode RECORD_ASSIGNMENT_ENTRY}; undefined when the library
 * is too old to tell.
 * @throws OrtError when nothing was recorded.
 */
export function readAssignment(
  { calls, apiVersion }: OrtEnvironment,
  session: NativePointer,
): NodeAssignment[] | undefined {
  if (apiVersion < ASSIGNMENT_API_VERSION) return undefined;
  const [list, count, text] = [new OutParameter(), new OutParameter(), new OutParameter()];
  const readText = (status: Deno.PointerValue) => {
    checkStatus(calls, status);
    return readCString(text.pointer);
  };
  const readList = (status: Deno.PointerValue) => {
    checkStatus(calls, status);
    return readPointers(list.pointer, Math.min(count.size, MAX_NODES));
  };
  const found: NodeAssignment[] = [];
  const parts = readList(calls.Session_GetEpGraphAssignmentInfo(session, list.cell, count.cell));
  for (const part of parts) {
    const provider = readText(calls.EpAssignedSubgraph_GetEpName(part, text.cell));
    for (const each of readList(calls.EpAssignedSubgraph_GetNodes(part, list.cell, count.cell))) {
      const node = readText(calls.EpAssignedNode_GetName(each, text.cell));
      const operator = readText(calls.EpAssignedNode_GetOperatorType(each, text.cell));
      found.push({ provider, node, operator });
      if (found.length >= MAX_NODES) return found;
    }
  }
  return found;
}

function readPointers(array: Deno.PointerValue, length: number): Deno.PointerValue[] {
  if (array === null) return [];
  const view = new Deno.UnsafePointerView(array);
  return Array.from({ length }, (_, index) => pointerAt(view.getBigUint64(8 * index)));
}
