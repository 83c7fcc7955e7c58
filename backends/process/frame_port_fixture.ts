import type { FramePort } from "./stub_link.ts";
import type { Frame, FramePayload } from "./frame.ts";

/** A frame that was sent. */
export interface SentFrame {
  readonly kind: number;
  readonly id: number;
  readonly body: Readonly<Record<string, unknown>>;
  readonly payload: FramePayload | undefined;
}

/** A port that notes what is sent. */
export function fakePort(): FramePort & { readonly sent: SentFrame[] } {
  const sent: SentFrame[] = [];
  return {
    sent,
    send: (kind, id, body = {}, payload) => void sent.push({ kind, id, body, payload }),
  };
}

/** A frame as if it had been read. */
export function frame(
  kind: number,
  id: number,
  json: Record<string, unknown> = {},
  payload: Uint8Array = new Uint8Array(),
): Frame {
  return { kind, id, json, payload };
}
