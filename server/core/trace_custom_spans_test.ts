import assert from "node:assert/strict";
import { type CustomSpan, findCustomSpans } from "./trace_custom_spans.ts";

function events(...names: string[]) {
  return names.map((name, index) => ({ name, atMs: index }));
}

function text({ name, events, spans }: Pick<CustomSpan, "events" | "spans"> & { name?: string }) {
  const inner: string[] = spans.map(text);
  return `${name ?? ""}(${[...events.map(({ name }) => name), ...inner].join(" ")})`;
}

Deno.test("findCustomSpans() finds spans side by side and within one another", () => {
  const found = findCustomSpans(events(
    ...["REQUEST_START", "QUEUE_START", "A_START", "NOTE", "B_START", "B_END", "A_END", "LATE"],
    ...["A_START", "A_END", "REQUEST_END"],
  ));
  assert.equal(
    text(found),
    "(REQUEST_START QUEUE_START LATE REQUEST_END A(A_START NOTE A_END B(B_START B_END)) " +
      "A(A_START A_END))",
  );
  assert.deepEqual(found.spans[0]!.all.map(({ atMs }) => atMs), [2, 3, 4, 5, 6]);
});

Deno.test("findCustomSpans() ends what was never ended, and takes other ends for events", () => {
  const found = findCustomSpans(
    events("X_END", "A_START", "B_START", "A_END", "C_START", "_START", "REQUEST_END"),
  );
  assert.equal(
    text(found),
    "(X_END REQUEST_END A(A_START A_END B(B_START)) C(C_START _START))",
  );
});

Deno.test("findCustomSpans() bounds how deep spans lie within one another", () => {
  const { spans } = findCustomSpans(
    events(...Array.from({ length: 5000 }, (_, index) => `S${index}_START`)),
  );
  let depth = 0;
  for (let [span] = spans; span !== undefined; [span] = span.spans) depth++;
  assert.equal(depth, 100);
});
