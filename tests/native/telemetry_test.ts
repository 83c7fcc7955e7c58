import assert from "node:assert/strict";

const OPEN = `
import { OrtEnvironment } from "./ffi/onnxruntime/mod.ts";
using environment = OrtEnvironment.open();
console.log("opened", environment.version);
`;

Deno.test({
  name: "OrtEnvironment.open() leaves no trace of the runtime's telemetry in the user's folders",
  ignore: Deno.build.os !== "linux",
  async fn() {
    const home = await Deno.makeTempDir();
    try {
      const child = await new Deno.Command(Deno.execPath(), {
        args: ["eval", "--cached-only", OPEN],
        cwd: new URL("../../", import.meta.url).pathname,
        env: {
          HOME: home,
          XDG_CACHE_HOME: `${home}/cache`,
          DENO_DIR: Deno.env.get("DENO_DIR") ?? `${Deno.env.get("HOME")}/.cache/deno`,
        },
      }).output();
      assert.match(new TextDecoder().decode(child.stdout), /^opened 1\./);
      assert.deepEqual([...Deno.readDirSync(home)].map(({ name }) => name), []);
    } finally {
      await Deno.remove(home, { recursive: true });
    }
  },
});
