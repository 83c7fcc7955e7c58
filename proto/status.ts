/** The codes an operation can fail with (http.md §1.1); each frontend maps them in one file. */
export type StatusCode =
  | "UNKNOWN"
  | "INTERNAL"
  | "NOT_FOUND"
  | "INVALID_ARG"
  | "UNAVAILABLE"
  | "UNSUPPORTED"
  | "ALREADY_EXISTS"
  | "CANCELLED";

/** Code strings as they appear inside composed messages, such as `Internal: <message>`. */
export const STATUS_TEXT: Readonly<Record<StatusCode, string>> = {
  UNKNOWN: "Unknown",
  INTERNAL: "Internal",
  NOT_FOUND: "Not found",
  INVALID_ARG: "Invalid argument",
  UNAVAILABLE: "Unavailable",
  UNSUPPORTED: "Unsupported",
  ALREADY_EXISTS: "Already exists",
  CANCELLED: "Cancelled",
};

/** What a {@linkcode ServerError} may say besides code and text. */
export interface ServerErrorOptions extends ErrorOptions {
  /** See {@linkcode ServerError.isRefusal}. */
  readonly isRefusal?: boolean;
}

/** The one error class that crosses layers: a code every frontend can map, and a text for the client. */
export class ServerError extends Error {
  /** Name of the class. */
  override readonly name = "ServerError";
  /** What kind of failure it is. */
  readonly code: StatusCode;
  /** The request was refused before it was queued: no model ever had it. */
  readonly isRefusal: boolean;

  /** An error with a code and a text for the client. */
  constructor(code: StatusCode, message: string, options: ServerErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.isRefusal = options.isRefusal ?? false;
  }

  /** The error of a request that was refused for this reason. */
  static refusal(reason: unknown): ServerError {
    const error = ServerError.from(reason);
    if (error.isRefusal) return error;
    return new ServerError(error.code, error.message, { cause: reason, isRefusal: true });
  }

  /** Turns anything thrown into a ServerError; what is not one already becomes INTERNAL. */
  static from(reason: unknown, code: StatusCode = "INTERNAL"): ServerError {
    if (reason instanceof ServerError) return reason;
    const message = reason instanceof Error ? reason.message : String(reason);
    return new ServerError(code, message, { cause: reason });
  }

  /** `<Code string>: <message>`, the form of reasons in the repository index. */
  toReason(): string {
    return `${STATUS_TEXT[this.code]}: ${this.message}`;
  }
}
