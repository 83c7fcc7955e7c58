import { ServerError } from "../../proto/status.ts";

/** Codings of bodies that are understood; deflate is the zlib format, as HTTP defines it. */
export type ContentCoding = "gzip" | "deflate";

/** Items of `accept-encoding` that are looked at. */
const ITEMS_MAX = 32;

/**
 * The coding of a request body; undefined when it is not coded.
 * @throws ServerError UNSUPPORTED for another coding, INVALID_ARG for several on top of each other (http.md §9.3).
 */
export function parseContentEncoding(value: string): ContentCoding | undefined {
  const coding = value.trim().toLowerCase();
  if (coding === "" || coding === "identity") return undefined;
  if (coding === "gzip" || coding === "deflate") return coding;
  if (coding.includes(",")) {
    throw new ServerError(
      "INVALID_ARG",
      "Unsupported compression type: only one content encoding is accepted",
    );
  }
  throw new ServerError("UNSUPPORTED", "Unsupported compression type");
}

/** The coding a client likes best for a response: largest weight, the earlier one of equals; undefined = none. */
export function chooseContentCoding(acceptEncoding: string): ContentCoding | undefined {
  let best: string | undefined;
  let bestWeight = 0;
  for (const item of acceptEncoding.split(",", ITEMS_MAX)) {
    const [name = "", ...attributes] = item.split(";");
    const coding = name.trim().toLowerCase();
    if (coding !== "gzip" && coding !== "deflate" && coding !== "identity") continue;
    const weight = readWeight(attributes);
    if (weight > bestWeight) {
      best = coding;
      bestWeight = weight;
    }
  }
  return best === "gzip" || best === "deflate" ? best : undefined;
}

function readWeight(attributes: readonly string[]): number {
  for (const attribute of attributes) {
    const [name = "", value = ""] = attribute.split("=");
    if (name.trim().toLowerCase() !== "q") continue;
    const weight = Number(value.trim());
    return Number.isFinite(weight) ? weight : 0;
  }
  return 1;
}
