import { join } from "node:path";
import type { StartedModel, StartResult } from "../core/inference_server.ts";
import type { ServerOptions } from "../core/options.ts";
import type { ServeOptions } from "./serve_options.ts";
import type { Service } from "./services.ts";

/** One line of the table of models. */
export interface ModelRow {
  readonly name: string;
  readonly version: string;
  readonly state: string;
  /** Reason of a failure, or how long the load took. */
  readonly remark: string;
}

/** One service and where it listens. */
export interface ServiceRow {
  readonly name: string;
  readonly place: string;
}

/** The rows of what was loaded. */
export function modelRows(models: readonly StartedModel[]): ModelRow[] {
  return models.map((model) => ({
    name: model.name,
    version: model.version === undefined ? "" : String(model.version),
    state: model.state,
    remark: model.reason === "" ? `${model.loadMs.toFixed(0)} ms` : model.reason,
  }));
}

/** The rows of what listens. */
export function serviceRows(services: readonly Service[]): ServiceRow[] {
  return services.map(({ name, scheme, address, port }) => ({
    name,
    // Clients of gRPC take an address without a scheme.
    place: formatUrl(scheme, address, port).replace(/^grpcs?:\/\//, ""),
  }));
}

/** The options in force, with the reference's names. */
export function formatOptions(options: ServeOptions): string {
  const { server } = options;
  const rows: (readonly [string, string])[] = [
    ["server_id", server.id],
    ...server.modelRepositories.map((path, index) =>
      [`model_repository_path[${index}]`, path] as const
    ),
    ["model_control_mode", `MODE_${server.modelControlMode.toUpperCase()}`],
    ...server.loadModels.map((name, index) => [`startup_models_${index}`, name] as const),
    ["strict_model_config", server.autoCompleteConfig ? "0" : "1"],
    ["model_config_name", server.modelConfigName],
    ["rate_limit", server.rateLimit.toUpperCase()],
    ["strict_readiness", server.strictReadiness ? "1" : "0"],
    ["exit_timeout", String(server.exitTimeoutSecs)],
    ["cache_enabled", server.cacheConfig.size > 0 ? "1" : "0"],
  ];
  return formatTable(["Option", "Value"], rows);
}

/** What a person wants to see when the server is up: the addresses, and what became of each model. */
export function formatStartReport(
  services: readonly ServiceRow[],
  models: readonly ModelRow[],
  noModels = "no models",
): string {
  const table = models.length === 0
    ? `  ${noModels}`
    : formatTable(["Model", "Version", "State", ""], models.map(rowCells));
  const lines = services.map((row) => `  ${row.name.padEnd(8)} ${row.place}`);
  return [`\n${table}\n`, ...lines].join("\n") + "\n";
}

/** What to tell someone whose server has nothing to serve. */
export function formatNoModels(options: ServerOptions): string {
  if (options.modelControlMode === "explicit") {
    return "no models: in explicit mode --load-model names those to load at the start";
  }
  const [path = "PATH"] = options.modelRepositories;
  return `no models: there is no model directory in ${options.modelRepositories.join(", ")}\n` +
    `  An ONNX model lies at ${join(path, "NAME", "1", "model.onnx")}`;
}

/** What can be done when some models cannot be loaded but others can; "" = nothing. */
export function adviceOnModels(result: StartResult): string {
  const failed = result.models.filter(({ state }) => state !== "READY").length;
  if (failed === 0 || failed === result.models.length) return "";
  return `${failed} of ${result.models.length} model versions cannot be served, for the reasons ` +
    "above; --exit-on-error=false serves the others";
}

function rowCells(row: ModelRow): readonly string[] {
  return [row.name, row.version, row.state, row.remark];
}

/** Columns in blanks; a cell with several lines continues below itself. */
export function formatTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
): string {
  const last = head.length - 1;
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0))
  );
  const indent = " ".repeat(widths.slice(0, last).reduce((sum, width) => sum + width + 2, 2));
  const format = (cells: readonly string[]): string => {
    const padded = cells.slice(0, last).map((cell, column) => cell.padEnd(widths[column]!));
    const [first, ...more] = (cells[last] ?? "").split("\n");
    const line = `  ${padded.join("  ")}  ${first ?? ""}`.trimEnd();
    return [line, ...more.map((text) => (indent + text).trimEnd())].join("\n");
  };
  const rule = widths.slice(0, last).map((width) => "-".repeat(width));
  rule.push("-".repeat(head[last]!.length));
  return [format(head), format(rule), ...rows.map(format)].join("\n");
}

/** An address that a person can click or paste: wildcard addresses become `localhost`. */
export function formatUrl(scheme: string, address: string, port: number): string {
  if (address.startsWith("unix:")) return address;
  const wildcard = address === "0.0.0.0" || address === "::" || address === "";
  const host = wildcard ? "localhost" : address.includes(":") ? `[${address}]` : address;
  return `${scheme}://${host}:${port}`;
}
