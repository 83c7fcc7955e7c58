import { FREE_KIND } from "../process/frame.ts";

/** Kinds of frames (wire.md). */
export const FRAME = {
  hello: 1,
  helloResult: 2,
  autoComplete: 3,
  autoCompleted: 4,
  initialize: 5,
  initialized: 6,
  execute: 7,
  executed: 8,
  send: 9,
  dropped: 10,
  cancelled: 11,
  credit: 12,
  call: 13,
  reply: 14,
  item: 15,
  callCancel: 16,
  callCredit: 17,
  isReady: 18,
  ready: 19,
  log: 20,
  free: FREE_KIND,
  finalize: 22,
  finalized: 23,
  logLevel: 24,
} as const;
