import assert from "node:assert/strict";
import { parseTraceContext } from "./trace_context.ts";

const TRACE = "0af7651916cd43dd8448eb211c12666c";
const SPAN = "b7ad6b7169242424";

function parse(traceparent: string, tracestate?: string) {
  return parseTraceContext({
    get: (name) => name === "traceparent" ? traceparent : tracestate,
  });
}

Deno.test("parseTraceContext() reads what W3C Trace Context allows", () => {
  const context = { traceId: TRACE, spanId: SPAN, state: "" };
  assert.deepEqual(parse(`00-${TRACE}-${SPAN}-01`), context);
  assert.deepEqual(parse(` 00-${TRACE}-${SPAN}-00 `, "a=1"), { ...context, state: "a=1" });
  assert.deepEqual(parse(`01-${TRACE}-${SPAN}-01-more`), context);
  assert.equal(parse(`00-${TRACE}-${SPAN}-01`, "a".repeat(9000))?.state, "");
});

Deno.test("parseTraceContext() ignores what is malformed", () => {
  const zeros = "0".repeat(32);
  for (
    const text of [
      "",
      `00-${TRACE}-${SPAN}`,
      `00-${TRACE}-${SPAN}-01-more`,
      `ff-${TRACE}-${SPAN}-01`,
      `00-${zeros}-${SPAN}-01`,
      `00-${TRACE}-${zeros.slice(16)}-01`,
      `00-${TRACE.toUpperCase()}-${SPAN}-01`,
      `00-${TRACE}-${SPAN}x-01`,
    ]
  ) assert.equal(parse(text), undefined, text);
  assert.equal(parseTraceContext({ get: () => null }), undefined);
});
