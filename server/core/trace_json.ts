import type { Trace, TraceRecord } from "./trace.ts";

/**
 * The entries of a traced request and of those it caused, separated by commas (observability.md §5.3): what a trace
 * file has between its brackets.
 */
export function formatTraceRecord(record: TraceRecord): string {
  const { root, begun } = record;
  const traces = begun.includes(root) ? begun : [root, ...begun];
  return traces.flatMap((trace) => entriesOf(trace)).map((entry) => JSON.stringify(entry)).join(
    ",",
  );
}

function entriesOf(trace: Trace): object[] {
  const { id } = trace;
  const entries: object[] = [];
  if (trace.modelName !== "") entries.push(startOf(trace));
  for (const { name, atMs, tensor } of trace.events) {
    if (tensor === undefined) entries.push({ id, timestamps: [{ name, ns: toNanoseconds(atMs) }] });
    else entries.push({ id, activity: name, tensor });
  }
  return entries;
}

function startOf({ id, modelName, modelVersion, requestId, parent }: Trace): object {
  return {
    id,
    "model_name": modelName,
    "model_version": Number(modelVersion),
    ...(requestId === "" ? {} : { "request_id": requestId }),
    ...(parent === undefined ? {} : { "parent_id": parent.id }),
  };
}

function toNanoseconds(ms: number): number {
  return Math.round(ms * 1e6);
}
