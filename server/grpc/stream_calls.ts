import { create, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { HealthCheckRequestSchema, HealthCheckResponseSchema } from "../../proto/gen/health_pb.ts";
import {
  ServerReflectionRequestSchema,
  ServerReflectionResponseSchema,
} from "../../proto/gen/reflection_pb.ts";
import { unparsable, WireReader } from "../../proto/grpc_codec_wire.ts";
import { ServerError } from "../../proto/status.ts";
import { forwardedHeaders } from "./grpc_options.ts";
import type { HealthWatch } from "./health_service.ts";
import { frameOf } from "./message_frame.ts";
import { shuttingDown } from "./model_infer.ts";
import type { ReflectionService } from "./reflection_service.ts";
import type { InflateResult, MessageFrame, RpcCall } from "./rpc_call.ts";
import { StreamInfer } from "./stream_infer.ts";

/** Largest message of calls that carry no tensors and no model files. */
export const SMALL_MESSAGE_BYTES = 4 * 1024 * 1024;

/** Refuses an oversized message, naming both sizes as other gRPC servers do. */
export function checkMessageBytes(message: Uint8Array, limit: number): void {
  if (message.length <= limit) return;
  throw new ConnectError(
    `Received message larger than max (${message.length} vs. ${limit})`,
    Code.ResourceExhausted,
  );
}

/** Fields of a message that the generated reader may make objects of. */
const MAX_FIELDS = 65_536;

/**
 * Decodes a request message that carries no tensors.
 * @throws ServerError INTERNAL when it is malformed, INVALID_ARG when it has too many fields.
 */
export function decodeRequest<Schema extends Parameters<typeof fromBinary>[0]>(
  schema: Schema,
  message: Uint8Array,
): MessageShape<Schema> {
  checkFieldCount(message);
  try {
    return fromBinary(schema, message, { readUnknownFields: false });
  } catch {
    throw unparsable();
  }
}

function checkFieldCount(message: Uint8Array): void {
  const reader = new WireReader(message);
  for (let count = 0; !reader.done; count++) {
    if (count === MAX_FIELDS) {
      throw new ServerError("INVALID_ARG", `request has more than ${MAX_FIELDS} fields`);
    }
    reader.skip(reader.tag());
  }
}

/** Serves ModelStreamInfer on a call. */
export function serveStreamInfer(call: RpcCall): void {
  const { stream, context } = call;
  const { api, options, stateWatch } = context;
  if (api.isExiting()) return call.fail(shuttingDown());
  const forwarded = forwardedHeaders(options.headerForwardPattern, stream.headers);
  call.enableCompression();
  const unsubscribe = stateWatch.subscribe((state) => {
    if (state === "EXITING") infer.shutDown();
  });
  const infer = new StreamInfer(api, {
    forwarded,
    signal: call.signal,
    takesFirst: true,
    metadata: stream.headers,
    errorAsStatus: stream.headers.get("triton_grpc_error") === "true",
    maxRequests: options.maxStreamRequests,
    maxBytes: options.maxStreamBytes,
  }, {
    send: (encoded, onSent) => void call.send(encoded, onSent),
    finish(reason) {
      unsubscribe();
      if (reason === undefined) call.finish();
      else call.abandon(reason);
    },
    pause: () => call.hold(),
    resume: () => call.unhold(),
  });
  call.onCancel = () => {
    unsubscribe();
    infer.cancel();
  };
  readInOrder(call, {
    message: (message, release) => infer.accept(message, release),
    end: () => infer.end(),
  });
  call.sendHeaders();
}

/** Takes the messages of a stream, and its end. */
interface StreamReceiver {
  message(message: Uint8Array, release: () => void): void;
  end(): void;
}

/** Hands messages on in order although decompression of one may take a while; the client is held back meanwhile. */
function readInOrder(call: RpcCall, receiver: StreamReceiver): void {
  const { stream } = call;
  const waiting: (() => void)[] = [];
  let busy = false;
  const receive = (inflated: InflateResult) => {
    if (inflated !== undefined) receiver.message(inflated.message, inflated.release);
  };
  const read = (frame: MessageFrame) => {
    if (call.ended) return frame.release();
    const inflated = call.inflate(frame);
    if (!(inflated instanceof Promise)) return receive(inflated);
    busy = true;
    call.hold();
    inflated.then((result) => {
      busy = false;
      receive(result);
      while (!busy && waiting.length > 0) waiting.shift()!();
      call.unhold();
    });
  };
  stream.onMessage = (message, compressed, release) => {
    const frame = { message, compressed, release };
    if (busy) waiting.push(() => read(frame));
    else read(frame);
  };
  stream.onEnd = () => {
    if (busy) waiting.push(() => receiver.end());
    else receiver.end();
  };
}

/** Takes the only message of a call. */
export type MessageReceiver = (message: Uint8Array, release: () => void) => void;

/** Sets up a call that takes exactly one message; it starts when the message is there. */
export function receiveMessage(call: RpcCall, receive: MessageReceiver): void {
  const { stream } = call;
  let received = false;
  stream.onMessage = (message, compressed, release) => {
    if (call.ended) return release();
    if (received) {
      release();
      call.abandon(new ConnectError("More than one message for a unary call", Code.Internal));
      return;
    }
    received = true;
    if (!compressed) return receive(message, release);
    const inflated = call.inflate({ message, compressed, release });
    if (inflated instanceof Promise) {
      inflated.then((result) => receiveInflated(call, receive, result));
    } else receiveInflated(call, receive, inflated);
  };
  stream.onEnd = () => {
    if (received) return;
    call.fail(new ConnectError("The call ended without a request message", Code.Internal));
  };
}

function receiveInflated(call: RpcCall, receive: MessageReceiver, result: InflateResult): void {
  if (result === undefined) return;
  if (call.ended) result.release();
  else receive(result.message, result.release);
}

/** Serves Health.Watch on a call. */
export function serveHealthWatch(call: RpcCall, health: HealthWatch): void {
  receiveMessage(call, (message, release) => {
    try {
      checkMessageBytes(message, SMALL_MESSAGE_BYTES);
      decodeRequest(HealthCheckRequestSchema, message);
      startWatch(call, health);
    } catch (reason) {
      call.fail(reason);
    } finally {
      release();
    }
  });
}

function startWatch(call: RpcCall, health: HealthWatch): void {
  const stop = health.watch({
    status(status) {
      if (call.ended) return;
      call.sendHeaders();
      const response = create(HealthCheckResponseSchema, { status });
      call.stream.send(frameOf(toBinary(HealthCheckResponseSchema, response)));
    },
    end(reason) {
      call.fail(reason);
      stop();
    },
  });
  call.onCancel = stop;
}

/** Serves ServerReflectionInfo on a call; v1 and v1alpha have the same messages. */
export function serveReflection(call: RpcCall, reflection: ReflectionService): void {
  const { stream } = call;
  let held = false;
  stream.onDrain = () => {
    if (!held) return;
    held = false;
    call.unhold();
  };
  readInOrder(call, {
    message(message, release) {
      try {
        if (call.ended) return;
        checkMessageBytes(message, SMALL_MESSAGE_BYTES);
        const request = decodeRequest(ServerReflectionRequestSchema, message);
        const answer = toBinary(ServerReflectionResponseSchema, reflection.answer(request));
        call.sendHeaders();
        if (stream.send(frameOf(answer)) || held) return;
        held = true;
        call.hold();
      } catch (reason) {
        call.fail(reason);
      } finally {
        release();
      }
    },
    end: () => call.finish(),
  });
}
