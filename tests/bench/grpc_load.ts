import { create, toBinary } from "@bufbuild/protobuf";
import { ModelInferRequestSchema } from "../../proto/gen/grpc_service_pb.ts";
import { H2Client } from "./h2_client.ts";
import type { LoadJob, Meter } from "./load_job.ts";

const MAX_CONNECTIONS = 8;
const textEncoder = new TextEncoder();

/** Keeps `job.concurrency` gRPC calls, or bidirectional streams with one message each, in flight. */
export async function startGrpcLoad(
  job: LoadJob,
  message: Uint8Array,
  meter: Meter,
): Promise<void> {
  const headers = encodeHeaders([
    [":method", "POST"],
    [":scheme", "http"],
    [":path", job.path],
    [":authority", "bench"],
    ["content-type", "application/grpc"],
    ["te", "trailers"],
  ]);
  const framed = frameMessage(message);
  const count = Math.min(MAX_CONNECTIONS, job.concurrency);
  const clients = await Promise.all(
    Array.from({ length: count }, () => H2Client.connect(job.port)),
  );
  for (let index = 0; index < job.concurrency; index++) {
    const client = clients[index % count]!;
    if (job.isSequence) {
      const [first, later] = [true, false].map((isStart) =>
        frameMessage(joinSequence(message, index + 1, isStart))
      );
      callAgain(client, { headers, framed: first!, later: later! }, meter);
    } else if (job.way === "grpc") callAgain(client, { headers, framed, later: framed }, meter);
    else keepStreaming(client, { headers, framed, responses: job.responsesPerRequest ?? 1 }, meter);
  }
}

/** Adds the place in a sequence to a request: messages that are put together are merged. */
function joinSequence(message: Uint8Array, id: number, isStart: boolean): Uint8Array {
  const parameters = create(ModelInferRequestSchema, {
    parameters: {
      "sequence_id": { parameterChoice: { case: "int64Param", value: BigInt(id) } },
      "sequence_start": { parameterChoice: { case: "boolParam", value: isStart } },
    },
  });
  const more = toBinary(ModelInferRequestSchema, parameters);
  const joined = new Uint8Array(message.length + more.length);
  joined.set(message);
  joined.set(more, message.length);
  return joined;
}

/** `later` is what is sent from the second call on. */
function callAgain(
  client: H2Client,
  { headers, framed, later }: { headers: Uint8Array; framed: Uint8Array; later: Uint8Array },
  meter: Meter,
): void {
  const sentAt = performance.now();
  let received = 0;
  const id = client.open(headers, {
    onData: (bytes) => received += bytes.length,
    onEnd: () => {
      // An answer without a message is an error in the trailers.
      if (received > 5) meter.record(sentAt);
      else meter.fail("the call ended without a message");
      if (!meter.isOver) callAgain(client, { headers, framed: later, later }, meter);
    },
    onFailure: (text) => meter.fail(text),
  });
  client.send(id, framed, true);
}

function keepStreaming(
  client: H2Client,
  { headers, framed, responses }: { headers: Uint8Array; framed: Uint8Array; responses: number },
  meter: Meter,
): void {
  let missing = responses;
  let sentAt = performance.now();
  // Bytes of the current answer that are still to come; undefined while its prefix is incomplete.
  let left: number | undefined;
  let prefix: number[] = [];
  const id = client.open(headers, {
    onData(bytes) {
      let at = 0;
      while (at < bytes.length) {
        if (left === undefined) {
          prefix.push(bytes[at++]!);
          if (prefix.length < 5) continue;
          left = (prefix[1]! << 24) | (prefix[2]! << 16) | (prefix[3]! << 8) | prefix[4]!;
          prefix = [];
        }
        const size = Math.min(left, bytes.length - at);
        at += size;
        left -= size;
        if (left > 0) continue;
        left = undefined;
        meter.record(sentAt);
        if (meter.isOver) return;
        if (--missing > 0) continue;
        missing = responses;
        sentAt = performance.now();
        client.send(id, framed, false);
      }
    },
    onEnd: () => meter.fail("the stream ended"),
    onFailure: (text) => meter.fail(text),
  });
  client.send(id, framed, false);
}

/** Length-prefixed message, not compressed. */
function frameMessage(message: Uint8Array): Uint8Array {
  const framed = new Uint8Array(5 + message.length);
  new DataView(framed.buffer).setUint32(1, message.length);
  framed.set(message, 5);
  return framed;
}

/** An HPACK block of literals without indexing and without Huffman coding. */
function encodeHeaders(fields: readonly (readonly [string, string])[]): Uint8Array {
  const bytes: number[] = [];
  for (const field of fields) {
    bytes.push(0);
    for (const text of field) {
      const encoded = textEncoder.encode(text);
      if (encoded.length > 126) throw new RangeError(`Header text '${text}' is too long`);
      bytes.push(encoded.length, ...encoded);
    }
  }
  return new Uint8Array(bytes);
}
