import assert from "node:assert/strict";
import { setListenerNoDelay } from "../../ffi/posix/socket.ts";

Deno.test({
  name: "setListenerNoDelay() finds the listening socket of a port, and only that",
  ignore: Deno.build.os !== "linux",
  fn() {
    const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const other = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    assert.equal(setListenerNoDelay(listener.addr.port), 1);
    assert.equal(setListenerNoDelay(other.addr.port), 1);
    const { port } = other.addr;
    listener.close();
    other.close();
    assert.equal(setListenerNoDelay(port), 0);
  },
});
