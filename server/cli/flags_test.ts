import assert from "node:assert/strict";
import { FLAGS, parseFlags } from "./flags.ts";
import { formatHelp } from "./help.ts";

function fault(...args: string[]): string {
  try {
    parseFlags(args);
  } catch (reason) {
    return (reason as Error).message;
  }
  return "";
}

Deno.test("parseFlags() takes both forms, prefixes and repetition", () => {
  const flags = parseFlags([
    "--id=a=b",
    "--id",
    "my server",
    "--http-po",
    "9000",
    "--model-repository=/a",
    "--model-repository",
    "/b",
    "--disable-auto-complete-config",
  ]);
  assert.equal(flags.text("id"), "my server");
  assert.equal(flags.number("http-port"), 9000);
  assert.deepEqual(flags.list("model-repository"), ["/a", "/b"]);
  assert.equal(flags.bool("disable-auto-complete-config"), true);
  assert.equal(flags.given("grpc-port"), false);
  assert.equal(flags.number("grpc-port"), 8001);
});

Deno.test("parseFlags() reads bools without case", () => {
  for (
    const [text, value] of [["TRUE", true], ["on", true], ["1", true], ["Off", false]] as const
  ) {
    assert.equal(parseFlags([`--exit-on-error=${text}`]).bool("exit-on-error"), value);
  }
  assert.match(fault("--exit-on-error=perhaps"), /"--exit-on-error".\ninvalid value .*: perhaps$/);
});

Deno.test("parseFlags() reads numbers as stoi does", () => {
  assert.equal(parseFlags(["--http-port=80xyz"]).number("http-port"), 80);
  assert.match(fault("--exit-timeout-secs=soon"), /Invalid option value. Got soon$/);
  assert.match(fault("--http-port=99999999999"), /out of bound. Got 99999999999$/);
  assert.match(fault("--http-max-input-size=0"), /--http-max-input-size must be greater than 0\.$/);
  assert.match(fault("--grpc-infer-thread-count=1"), /Must be in the range 2 to 128\.$/);
});

Deno.test("parseFlags() names the nearest flag for an unknown one", () => {
  assert.equal(
    fault("--model-repositry=/m"),
    "unrecognized option '--model-repositry'; did you mean '--model-repository'?",
  );
  assert.match(fault("-h"), /did you mean '--help'\?$/);
  assert.equal(fault("--xyzzy-plugh"), "unrecognized option '--xyzzy-plugh'");
  assert.match(fault("--log"), /^option '--log' is ambiguous; possibilities: '--log-verbose'/);
});

Deno.test("parseFlags() refuses what is no flag or lacks its value", () => {
  assert.equal(fault("serve"), "Unexpected argument: serve");
  assert.match(fault("./models"), /; a folder is given as --model-repository=\.\/models$/);
  assert.match(fault("--id=m", "check"), /; did you mean the command 'check', in front of all/);
  assert.equal(fault("--id"), "option '--id' requires an argument");
  assert.equal(fault("--help=1"), "option '--help' doesn't allow an argument");
});

Deno.test("parseFlags() refuses flags of later features with their name", () => {
  assert.match(fault("--allow-sagemaker=true"), /does not have yet: SageMaker endpoint$/);
  assert.equal(fault("--allow-client-shm=false", "--allow-sagemaker=false"), "");
});

Deno.test("parseFlags() refuses values that are not among the choices", () => {
  assert.match(fault("--log-format=fancy"), /invalid argument for --log-format: fancy/);
  assert.equal(
    parseFlags(["--model-control-mode=EXPLICIT"]).text("model-control-mode"),
    "explicit",
  );
});

Deno.test("parseFlags() notes flags without effect and old spellings", () => {
  const notes = parseFlags(["--http-thread-count=4", "--strict-model-config=true"]).notes;
  assert.match(notes[0]!, /^--http-thread-count has no effect: /);
  assert.match(notes[1]!, /^--strict-model-config is deprecated; write --disable-auto/);
});

Deno.test("parseFlags() gives a programmer's mistake a TypeError", () => {
  assert.throws(() => parseFlags([]).text("no-such-flag"), TypeError);
});

Deno.test("formatHelp() shows every flag once, in lines that fit a terminal", () => {
  const help = formatHelp();
  for (const flag of FLAGS) assert.ok(help.includes(`  --${flag.name}`), flag.name);
  for (const line of help.split("\n")) assert.ok(line.length <= 110, line);
});
