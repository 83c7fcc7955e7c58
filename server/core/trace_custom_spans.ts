import type { TraceEvent } from "./trace.ts";

/** Points of time that the core notes itself. */
const CORE_EVENT = /^(REQUEST_START|REQUEST_END|QUEUE_START)$/;
/** Spans within spans; what a backend opens beyond that stays among the events of the innermost one. */
const MAX_DEPTH = 100;

/** A span that a backend opened by an activity `NAME_START`, until `NAME_END` or the end of the request. */
export interface CustomSpan {
  readonly name: string;
  /** Those of the span itself, its own two included. */
  readonly events: readonly TraceEvent[];
  /** With those of the spans within. */
  readonly all: readonly TraceEvent[];
  readonly spans: readonly CustomSpan[];
}

interface OpenSpan {
  readonly name: string;
  readonly events: TraceEvent[];
  readonly all: TraceEvent[];
  readonly spans: OpenSpan[];
}

/**
 * Finds the spans among the events of one request, in the order they were noted: an event belongs to the innermost span
 * that is open (observability.md §5.5). `events` are those outside all of them.
 */
export function findCustomSpans(
  events: readonly TraceEvent[],
): { readonly events: readonly TraceEvent[]; readonly spans: readonly CustomSpan[] } {
  const outermost: OpenSpan = { name: "", events: [], all: [], spans: [] };
  const open = [outermost];
  for (const event of events) {
    const isCore = CORE_EVENT.test(event.name);
    const begun = isCore ? undefined : nameBefore("_START", event.name);
    if (begun !== undefined && open.length <= MAX_DEPTH) {
      const span: OpenSpan = { name: begun, events: [], all: [], spans: [] };
      open.at(-1)!.spans.push(span);
      open.push(span);
    }
    const ended = isCore ? undefined : nameBefore("_END", event.name);
    const depth = ended === undefined ? -1 : open.findLastIndex(({ name }) => name === ended);
    // What was opened within and never ended ends with it.
    if (depth > 0) open.length = depth + 1;
    (isCore ? outermost : open.at(-1)!).events.push(event);
    for (const span of isCore ? [outermost] : open) span.all.push(event);
    if (depth > 0) open.pop();
  }
  return outermost;
}

function nameBefore(suffix: string, activity: string): string | undefined {
  const length = activity.length - suffix.length;
  return length > 0 && activity.endsWith(suffix) ? activity.slice(0, length) : undefined;
}
