import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/** Text or whole number. */
export type SpanAttribute = readonly [key: string, value: string | number];

/** Something that happened during a span. */
export interface SpanEvent {
  readonly name: string;
  /** Nanoseconds since 1970. */
  readonly atNs: bigint;
}

/** One span of a distributed trace, of kind SERVER. */
export interface Span {
  /** 16 bytes. */
  readonly traceId: Uint8Array;
  /** 8 bytes. */
  readonly spanId: Uint8Array;
  /** 8 bytes, or none for the first span of a trace. */
  readonly parentSpanId: Uint8Array;
  /** `tracestate` of the caller, or "". */
  readonly traceState: string;
  readonly name: string;
  /** Nanoseconds since 1970. */
  readonly startNs: bigint;
  readonly endNs: bigint;
  readonly attributes: readonly SpanAttribute[];
  readonly events: readonly SpanEvent[];
}

const KIND_SERVER = 2;

/** Encodes spans of one resource as an `ExportTraceServiceRequest` (OpenTelemetry protocol 1.x, protobuf). */
export function encodeSpans(
  spans: readonly Span[],
  resource: readonly SpanAttribute[],
  scope: string,
): Uint8Array {
  const writer = new BinaryWriter();
  message(writer, 1, () => {
    message(writer, 1, () => writeAttributes(writer, 1, resource));
    message(writer, 2, () => {
      message(writer, 1, () => text(writer, 1, scope));
      for (const span of spans) message(writer, 2, () => writeSpan(writer, span));
    });
  });
  return writer.finish();
}

function writeSpan(writer: BinaryWriter, span: Span): void {
  bytes(writer, 1, span.traceId);
  bytes(writer, 2, span.spanId);
  text(writer, 3, span.traceState);
  bytes(writer, 4, span.parentSpanId);
  text(writer, 5, span.name);
  writer.tag(6, WireType.Varint).uint32(KIND_SERVER);
  writer.tag(7, WireType.Bit64).fixed64(span.startNs);
  writer.tag(8, WireType.Bit64).fixed64(span.endNs);
  writeAttributes(writer, 9, span.attributes);
  for (const { name, atNs } of span.events) {
    message(writer, 11, () => {
      writer.tag(1, WireType.Bit64).fixed64(atNs);
      text(writer, 2, name);
    });
  }
}

function writeAttributes(
  writer: BinaryWriter,
  field: number,
  attributes: readonly SpanAttribute[],
): void {
  for (const [key, value] of attributes) {
    message(writer, field, () => {
      text(writer, 1, key);
      message(writer, 2, () => {
        if (typeof value === "string") writer.tag(1, WireType.LengthDelimited).string(value);
        else writer.tag(3, WireType.Varint).int64(value);
      });
    });
  }
}

function message(writer: BinaryWriter, field: number, write: () => void): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  write();
  writer.join();
}

function text(writer: BinaryWriter, field: number, value: string): void {
  if (value !== "") writer.tag(field, WireType.LengthDelimited).string(value);
}

function bytes(writer: BinaryWriter, field: number, value: Uint8Array): void {
  if (value.length > 0) writer.tag(field, WireType.LengthDelimited).bytes(value);
}
