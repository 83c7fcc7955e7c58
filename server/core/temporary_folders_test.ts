import { equal, rejects } from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import { TemporaryFolders } from "./temporary_folders.ts";

function exists(path: string): Promise<boolean> {
  return Deno.stat(path).then(() => true, () => false);
}

Deno.test("TemporaryFolders removes a folder with its files, once or twice", async () => {
  const folders = new TemporaryFolders();
  const folder = await folders.create();
  equal((await Deno.stat(folder.path)).mode! & 0o777, 0o700);
  await Deno.writeTextFile(`${folder.path}/x`, "x");
  await folder.remove();
  await folder.remove();
  equal(await exists(folder.path), false);
  await folders.close();
});

Deno.test("TemporaryFolders leaves nothing when it is closed, and makes nothing then", async () => {
  const folders = new TemporaryFolders();
  const [first, second] = await Promise.all([folders.create(), folders.create()]);
  await folders.close();
  equal(await exists(first!.path), false);
  equal(await exists(second!.path), false);
  equal(await exists(first!.path.slice(0, first!.path.lastIndexOf("/"))), false);
  await rejects(
    folders.create(),
    (error) => error instanceof ServerError && error.code === "UNAVAILABLE",
  );
});

Deno.test("TemporaryFolders removes what a server left that is gone, and nothing else", async () => {
  const living = new TemporaryFolders();
  const kept = await living.create();
  const gone = await Deno.makeTempDir({ prefix: "nereid-models-" });
  await Deno.writeTextFile(`${gone}/.lock`, "");
  await Deno.mkdir(`${gone}/1`);
  const unknown = await Deno.makeTempDir({ prefix: "nereid-models-" });
  const next = new TemporaryFolders();
  await next.create();
  equal(await exists(gone), false);
  equal(await exists(kept.path), true);
  equal(await exists(unknown), true, "nobody says that it is not in use");
  await Promise.all([living.close(), next.close(), Deno.remove(unknown)]);
});

Deno.test("TemporaryFolders waits for nobody who left a pipe in place of a lock", async () => {
  const trap = await Deno.makeTempDir({ prefix: "nereid-models-" });
  const made = await new Deno.Command("mkfifo", { args: [`${trap}/.lock`] }).output();
  equal(made.success, true);
  const folders = new TemporaryFolders();
  const outcome = folders.create().then(() => "created");
  // Whoever writes to the pipe is let go by its reader.
  const isWaiting = Symbol();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const patience = new Promise((resolve) => timer = setTimeout(resolve, 5000, isWaiting));
  const first = await Promise.race([outcome, patience]);
  clearTimeout(timer);
  if (first === isWaiting) (await Deno.open(`${trap}/.lock`)).close();
  equal(await outcome, "created");
  equal(first, "created");
  await folders.close();
  await Deno.remove(trap, { recursive: true });
});
