import { ServerError } from "../../proto/status.ts";

const TRUE_WORDS = ["true", "on", "1"];
const FALSE_WORDS = ["false", "off", "0"];
const MAX_INT = 2147483647;

function usage(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}

/** Reads a bool as cli.md §1 says; throws INVALID_ARG. */
export function parseBoolValue(text: string): boolean {
  const word = text.toLowerCase();
  if (TRUE_WORDS.includes(word)) return true;
  if (FALSE_WORDS.includes(word)) return false;
  throw usage(`invalid value for bool option: ${text}`);
}

/** Reads the leading integer of `text`; what follows it is ignored, as in Triton. */
export function parseIntValue(text: string, max: number = MAX_INT): number {
  const digits = /^\s*([+-]?\d+)/.exec(text)?.[1];
  if (digits === undefined) throw usage(`Invalid option value. Got ${text}`);
  const value = Number(digits);
  if (value > max || value < -max - 1) {
    throw usage(`Provided option value is out of bound. Got ${text}`);
  }
  return value;
}

/** Reads the leading decimal number of `text`. */
export function parseFloatValue(text: string): number {
  const digits = /^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?/i.exec(text)?.[0];
  if (digits === undefined) throw usage(`Invalid option value. Got ${text}`);
  const value = Number(digits);
  if (!Number.isFinite(value)) {
    throw usage(`Provided option value is out of bound. Got ${text}`);
  }
  return value;
}

/** `key=value` of `--metrics-config` and the like, cut at the first `=`. */
export function parseSettingValue(flag: string, text: string): { key: string; value: string } {
  const cut = text.indexOf("=");
  if (cut <= 0) throw usage(`--${flag} option format is '<setting>=<value>'. Got ${text}`);
  return { key: text.slice(0, cut), value: text.slice(cut + 1) };
}

/** `[<backend>,]<key>=<value>` of `--backend-config`; backend "" = all. */
export function parseBackendSetting(
  text: string,
): { backend: string; key: string; value: string } {
  const equals = text.indexOf("=");
  const comma = text.slice(0, Math.max(equals, 0)).indexOf(",");
  const key = text.slice(comma + 1, Math.max(equals, 0));
  if (equals < 0 || key === "") {
    throw usage(
      `--backend-config option format is '<backend name>,<setting>=<value>' or ` +
        `'<setting>=<value>'. Got ${text}`,
    );
  }
  return { backend: text.slice(0, Math.max(comma, 0)), key, value: text.slice(equals + 1) };
}

/** `<name>,<key>=<value>` of `--cache-config`. */
export function parseCacheSetting(text: string): { cache: string; key: string; value: string } {
  const comma = text.indexOf(",");
  if (comma <= 0) {
    throw usage(
      `Bad option: "--cache-config".\nNo cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got ` +
        text,
    );
  }
  const equals = text.indexOf("=", comma);
  const [key, value] = [text.slice(comma + 1, Math.max(equals, 0)), text.slice(equals + 1)];
  if (equals < 0 || key === "" || value === "") {
    throw usage(
      `Bad option: "--cache-config".\n--cache-config option format is ` +
        `'<cache name>,<setting>=<value>'. Got ${text}`,
    );
  }
  return { cache: text.slice(0, comma), key, value };
}

/** `<name>:<count>[:<device>]` of `--rate-limit-resource`; device -1 = each, as without. */
export function parseRateLimitResource(
  text: string,
): { name: string; count: number; deviceId?: number } {
  const [name = "", count, device, ...rest] = text.split(":");
  if (count === undefined || rest.length > 0) {
    throw usage(
      `--rate-limit-resource option format is '<resource_name>:<count>:<device>' or ` +
        `'<resource_name>:<count>'. Got ${text}`,
    );
  }
  const resource = { name, count: parseIntValue(count) };
  if (resource.count < 0) throw usage(`Invalid option value. Got ${count}, expected 0 or more`);
  const deviceId = device === undefined ? -1 : parseIntValue(device);
  if (deviceId < -1) throw usage(`Invalid option value. Got ${device}, expected a device number`);
  return deviceId === -1 ? resource : { ...resource, deviceId };
}

/** Verbose level: a number, or true/false for 1/0. */
export function parseVerboseLevel(text: string): number {
  const word = text.toLowerCase();
  if (word === "true" || word === "on") return 1;
  if (word === "false" || word === "off") return 0;
  return Math.max(0, parseIntValue(text));
}
