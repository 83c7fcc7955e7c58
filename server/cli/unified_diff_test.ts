import { equal } from "node:assert/strict";
import { formatUnifiedDiff } from "./unified_diff.ts";

Deno.test("formatUnifiedDiff() shows changes with three lines around them", () => {
  const before = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n";
  const after = before.replace("b\n", "B\n").replace("l\n", "l\nm");
  equal(
    formatUnifiedDiff(before, after, { path: "f" }),
    "--- f\n+++ f\n@@ -1,5 +1,5 @@\n a\n-b\n+B\n c\n d\n e\n" +
      "@@ -10,3 +10,4 @@\n j\n k\n l\n+m\n\\ No newline at end of file\n",
  );
});

Deno.test("formatUnifiedDiff() shows a new file, and nothing where nothing changed", () => {
  equal(formatUnifiedDiff("a\n", "a\n", { path: "f" }), "");
  equal(
    formatUnifiedDiff("", "a\nb\n", { path: "f", isNew: true }),
    "--- /dev/null\n+++ f\n@@ -0,0 +1,2 @@\n+a\n+b\n",
  );
});

Deno.test("formatUnifiedDiff() shows a long rewrite as one piece", () => {
  const before = "old\n".repeat(3000);
  const after = "new\n".repeat(3000);
  const diff = formatUnifiedDiff(before, after, { path: "f" });
  equal(diff.split("\n").length, 6004);
});
