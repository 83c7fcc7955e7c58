import type { StatusCode } from "../../proto/status.ts";
import type { LogPlace } from "../backend.ts";
import type { RingAnnouncement } from "./frame_link.ts";

/** What a frame is; its first field. */
export const FRAME = { batch: 0, answers: 1, response: 2, call: 3, reply: 4 } as const;

/** What became of a request or a call, as a field of frames. */
export const OUTCOME = { response: 0, error: 1, none: 2, streamed: 3, rescheduled: 4 } as const;

/** Responses of one request that are under way before its sender waits, and how many are acknowledged at once. */
export const WINDOW = { size: 16, step: 8 } as const;

/** An error on its way between the threads. */
export interface ErrorText {
  readonly code: StatusCode;
  readonly message: string;
  /** The model gave the code: the text is for the client as it is. */
  readonly isGiven: boolean;
}

/** What an instance is told about itself. */
export interface InstanceFacts {
  readonly modelName: string;
  readonly modelVersion: string;
  readonly instanceName: string;
  readonly instanceKind: "CPU" | "GPU" | "MODEL";
  readonly deviceId: number;
  readonly modelDirectory: string;
  readonly versionDirectory: string;
  /** JSON. */
  readonly config: string;
  readonly maxStreams: number;
}

/** What the server asks a Worker for; answered with `answer`. */
export type Question =
  | { readonly what: "initialize"; readonly file: string; readonly facts: InstanceFacts }
  | { readonly what: "autoComplete"; readonly file: string; readonly config: string }
  | { readonly what: "isReady" | "finalize" | "ping" };

/** What a model asks the server for; answered with `answer`. */
export type HostQuestion =
  | {
    readonly what: "loadModel";
    readonly name: string;
    readonly parameters: Readonly<Record<string, string | Uint8Array>>;
  }
  | { readonly what: "unloadModel"; readonly name: string; readonly unloadDependents: boolean }
  | { readonly what: "isModelReady"; readonly name: string; readonly version: string }
  | {
    readonly what: "openFamily";
    readonly metricKind: "counter" | "gauge" | "histogram";
    readonly name: string;
    readonly description: string;
  }
  | {
    readonly what: "openMetric";
    readonly family: number;
    readonly labels: Readonly<Record<string, string>>;
    readonly buckets: readonly number[] | undefined;
  }
  | { readonly what: "metricValue"; readonly metric: number };

/** The answer to a question of the other side. */
export interface Answer {
  readonly kind: "answer";
  readonly id: number;
  readonly value?: unknown;
  readonly error?: ErrorText;
}

/** Messages from the server to a Worker, besides frames. */
export type ToWorker =
  | RingAnnouncement
  | Answer
  | { readonly kind: "ask"; readonly id: number; readonly question: Question }
  | { readonly kind: "cancel"; readonly request: number }
  | { readonly kind: "taken"; readonly request: number; readonly count: number };

/** Messages from a Worker to the server, besides frames. */
export type FromWorker =
  | RingAnnouncement
  | Answer
  | { readonly kind: "ask"; readonly id: number; readonly question: HostQuestion }
  | { readonly kind: "cancelCall"; readonly call: number; readonly isAbandoned: boolean }
  | { readonly kind: "callTaken"; readonly call: number; readonly count: number }
  | {
    readonly kind: "log";
    readonly level: "info" | "warning" | "error" | "verbose";
    readonly message: string;
    readonly place: LogPlace | undefined;
  }
  | { readonly kind: "mark"; readonly request: number; readonly activity: string }
  | {
    readonly kind: "metric";
    readonly metric: number;
    readonly operation: "increment" | "set" | "observe";
    readonly value: number;
  }
  | { readonly kind: "dispose"; readonly what: "family" | "metric"; readonly id: number }
  | { readonly kind: "exit"; readonly reason: string };

/** What a model has, as the answer to `initialize`. */
export interface ModelFacts {
  readonly hasIsReady: boolean;
}
