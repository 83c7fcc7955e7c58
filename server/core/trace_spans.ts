import type { Span, SpanAttribute, SpanEvent } from "../../proto/otlp.ts";
import type { Trace, TraceEvent, TraceRecord } from "./trace.ts";
import { fromHex } from "./trace_context.ts";
import { type CustomSpan, findCustomSpans } from "./trace_custom_spans.ts";

const ROOT_NAME = "InferRequest";
const FRONTEND_EVENT = /^(HTTP_|GRPC_|INFER_RESPONSE_COMPLETE$)/;
const NO_BYTES = new Uint8Array();

/** What spans are made with. */
export interface SpanParts {
  readonly randomBytes: (byteCount: number) => Uint8Array;
  /** Wall-clock nanoseconds since 1970 of a time of the clock in ms. */
  readonly toWallNs: (ms: number) => bigint;
}

/**
 * The spans of a traced request (observability.md §5.5): `InferRequest` around one span per model, around one named
 * `compute` per execution, and around those that the model's backend opened itself.
 */
export function createSpans(record: TraceRecord, parts: SpanParts): Span[] {
  const { context } = record.options;
  const shared = {
    traceId: record.traceId(parts.randomBytes),
    traceState: context?.state ?? "",
  };
  const spans: Span[] = [];
  const add = (
    parentSpanId: Uint8Array,
    name: string,
    events: readonly TraceEvent[],
    attributes: readonly SpanAttribute[] = [],
    { all = events, spanId = parts.randomBytes(8) }: {
      readonly all?: readonly TraceEvent[];
      readonly spanId?: Uint8Array;
    } = {},
  ): Uint8Array => {
    const times = all.map(({ atMs }) => atMs);
    const [startNs, endNs] = [Math.min(...times), Math.max(...times)].map(parts.toWallNs);
    const shown = events.map((event): SpanEvent => ({
      name: event.name,
      atNs: parts.toWallNs(event.atMs),
    }));
    const rest = { parentSpanId, name, startNs: startNs!, endNs: endNs!, attributes };
    spans.push({ ...shared, spanId, ...rest, events: shown });
    return spanId;
  };
  const addCustom = (parentId: Uint8Array, customs: readonly CustomSpan[]): void => {
    for (const { name, events, all, spans: inner } of customs) {
      addCustom(add(parentId, name, events, [], { all }), inner);
    }
  };
  const { root, begun } = record;
  const ofFrontend = root.events.filter(({ name }) => FRONTEND_EVENT.test(name));
  const parentOfRoot = context === undefined ? NO_BYTES : fromHex(context.spanId);
  if (root.events.length === 0) return spans;
  const rootId = add(parentOfRoot, ROOT_NAME, ofFrontend, [], { all: root.events });
  const ids = new Map<Trace, Uint8Array>();
  for (const trace of begun) {
    const own = trace.events.filter(({ name }) => !FRONTEND_EVENT.test(name));
    const ofCore = own.filter(({ name }) => !name.startsWith("COMPUTE_"));
    const { events: ofModel, spans: customs } = findCustomSpans(ofCore);
    const parent = trace.parent === undefined ? rootId : ids.get(trace.parent) ?? rootId;
    const spanId = trace.spanId(parts.randomBytes);
    const id = add(parent, trace.modelName, ofModel, attributesOf(trace), { all: own, spanId });
    ids.set(trace, id);
    for (const execution of executionsOf(own)) add(id, "compute", execution);
    addCustom(id, customs);
  }
  return spans;
}

/** A request that is run in several turns has several executions. */
function executionsOf(events: readonly TraceEvent[]): TraceEvent[][] {
  const executions: TraceEvent[][] = [];
  for (const event of events) {
    if (!event.name.startsWith("COMPUTE_")) continue;
    if (event.name === "COMPUTE_START") executions.push([]);
    executions.at(-1)?.push(event);
  }
  return executions;
}

function attributesOf(trace: Trace): SpanAttribute[] {
  const attributes: SpanAttribute[] = [
    ["triton.model_name", trace.modelName],
    ["triton.model_version", Number(trace.modelVersion)],
    ["triton.trace_id", trace.id],
    ["triton.trace_parent_id", trace.parent?.id ?? 0],
  ];
  if (trace.requestId !== "") attributes.push(["triton.request_id", trace.requestId]);
  return attributes;
}
