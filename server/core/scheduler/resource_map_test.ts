import assert from "node:assert/strict";
import { formatResourceMap } from "./resource_map.ts";

Deno.test("formatResourceMap() lists what there is of each resource, by device", () => {
  const resources = () => [
    { name: "R1", deviceId: 0, capacity: 3, used: 1 },
    { name: "G", deviceId: undefined, capacity: 2, used: 0 },
    { name: "R2", deviceId: 0, capacity: 1, used: 0 },
  ];
  assert.equal(
    formatResourceMap({ resources }),
    "\nMax Resource Map===>\n\tDevice: 0\n\t\tResource: R1\t Count: 3\n\t\tResource: R2\t Count: 1\n" +
      "\tDevice: GLOBAL\n\t\tResource: G\t Count: 2\n",
  );
  assert.equal(formatResourceMap({ resources: () => [] }), "\nMax Resource Map===>\n");
});
