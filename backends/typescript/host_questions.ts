import type { CustomMetric, CustomMetricFamily, ModelHost } from "../backend.ts";
import { ServerError } from "../../proto/status.ts";
import type { FromWorker, HostQuestion } from "./worker_protocol.ts";

/** Metrics and families that one Worker may have. */
const MAX_METRICS = 10_000;

/** Model control and metrics for the model of one Worker. Disposing it drops its metrics. */
export class HostQuestions implements Disposable {
  readonly #host: ModelHost;
  readonly #families = new Map<number, CustomMetricFamily>();
  readonly #metrics = new Map<number, CustomMetric>();
  #nextId = 1;

  constructor(host: ModelHost) {
    this.#host = host;
  }

  /** @throws ServerError */
  async answer(question: HostQuestion): Promise<unknown> {
    switch (question.what) {
      case "loadModel":
        return await this.#host.loadModel(question.name, question.parameters);
      case "unloadModel": {
        const { name, unloadDependents } = question;
        return await this.#host.unloadModel(name, { unloadDependents });
      }
      case "isModelReady":
        return await this.#host.isModelReady(question.name, question.version);
      case "openFamily": {
        const { metricKind, name, description } = question;
        return this.#keep(
          this.#families,
          () => this.#host.openMetricFamily(metricKind, name, description),
        );
      }
      case "openMetric": {
        const { family, labels, buckets } = question;
        const owner = this.#families.get(family);
        if (owner === undefined) throw deleted();
        return this.#keep(this.#metrics, () => owner.metric(labels, buckets));
      }
      case "metricValue": {
        const metric = this.#metrics.get(question.metric);
        if (metric === undefined) throw deleted();
        return metric.value();
      }
    }
  }

  #keep<Kept>(kept: Map<number, Kept>, open: () => Kept): number {
    if (kept.size >= MAX_METRICS) {
      throw new ServerError("UNAVAILABLE", `a model instance may have ${MAX_METRICS} metrics`);
    }
    const id = this.#nextId++;
    kept.set(id, open());
    return id;
  }

  /** @throws ServerError for an operation that the metric does not have. */
  operate({ metric, operation, value }: FromWorker & { readonly kind: "metric" }): void {
    this.#metrics.get(metric)?.[operation](value);
  }

  /** Drops a metric or a family. */
  drop({ what, id }: FromWorker & { readonly kind: "dispose" }): void {
    const kept: Map<number, Disposable> = what === "family" ? this.#families : this.#metrics;
    kept.get(id)?.[Symbol.dispose]();
    kept.delete(id);
  }

  [Symbol.dispose](): void {
    for (const metric of this.#metrics.values()) metric[Symbol.dispose]();
    for (const family of this.#families.values()) family[Symbol.dispose]();
    this.#metrics.clear();
    this.#families.clear();
  }
}

function deleted(): ServerError {
  return new ServerError(
    "INVALID_ARG",
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted.",
  );
}
