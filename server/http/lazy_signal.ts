import type { InferOptions } from "../core/inference_api.ts";
import type { HttpRequest } from "../transport/transport.ts";

/** Asks for the request's signal only when the core does: most requests end before anybody looks at it. */
export class LazySignal implements InferOptions {
  readonly #request: HttpRequest;

  constructor(request: HttpRequest) {
    this.#request = request;
  }

  get signal(): AbortSignal {
    return this.#request.signal;
  }
}
