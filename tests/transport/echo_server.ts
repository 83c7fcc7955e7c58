import { openTestListener } from "./socket_peer.ts";

// A server in a process of its own, for tests of the process's limits: prints its port and echoes until its input ends.
if (import.meta.main) {
  const { listener } = await openTestListener();
  console.log(listener.port);
  await Deno.stdin.read(new Uint8Array(1));
  await listener.drain(1_000);
}
