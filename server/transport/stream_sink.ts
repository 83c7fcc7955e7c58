/** Where the DATA of one HTTP/2 stream goes. */
export interface StreamSink {
  /** Content without padding, `bytes[start, end)`; the bytes are only valid during the call. */
  data(bytes: Uint8Array, start: number, end: number): void;
  /** Room into which up to `wanted` bytes may be read straight from the socket; undefined = not now. */
  directRoom(wanted: number): Uint8Array | undefined;
  /** The read into `directRoom` put `count` bytes there (0 = it failed). Comes after `dispose` if that was meanwhile. */
  directFilled(count: number): void;
  /** The peer ended its side. */
  end(): void;
  /** The stream was reset or the connection lost. */
  reset(): void;
  /** Nothing more will be received: gives back what is half received. */
  dispose(): void;
  /** More bytes are due: a body or message is incomplete. */
  readonly isReceiving: boolean;
}
