import { create, fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import assert from "node:assert/strict";
import { ServerReflectionRequestSchema } from "../../proto/gen/reflection_pb.ts";
import { ReflectionService } from "./reflection_service.ts";

function ask(request: MessageInitShape<typeof ServerReflectionRequestSchema>["messageRequest"]) {
  const message = create(ServerReflectionRequestSchema, {
    host: "h",
    ...(request === undefined ? {} : { messageRequest: request }),
  });
  const answer = new ReflectionService().answer(message);
  assert.equal(answer.validHost, "h");
  assert.equal(answer.originalRequest, message);
  return answer.messageResponse;
}

function fileNames(answer: ReturnType<typeof ask>): string[] {
  assert(answer.case === "fileDescriptorResponse", answer.case);
  return answer.value.fileDescriptorProto.map((bytes) =>
    fromBinary(FileDescriptorProtoSchema, bytes).name
  );
}

Deno.test("reflection lists every service", () => {
  const answer = ask({ case: "listServices", value: "" });
  assert(answer.case === "listServicesResponse");
  assert.deepEqual(answer.value.service.map(({ name }) => name), [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
  ]);
});

Deno.test("reflection finds files by name and symbol, with what they import", () => {
  const both = ["grpc_service.proto", "model_config.proto"];
  assert.deepEqual(fileNames(ask({ case: "fileByFilename", value: "grpc_service.proto" })), both);
  for (
    const symbol of [
      "inference.GRPCInferenceService",
      "inference.GRPCInferenceService.ModelInfer",
      "inference.ModelInferRequest.InferInputTensor",
      ".inference.InferParameter",
      "inference.ModelReadyRequest.name",
    ]
  ) {
    assert.deepEqual(fileNames(ask({ case: "fileContainingSymbol", value: symbol })), both, symbol);
  }
  const config = ask({ case: "fileContainingSymbol", value: "inference.ModelConfig" });
  assert.deepEqual(fileNames(config), ["model_config.proto"]);
});

Deno.test("reflection answers errors inside the response", () => {
  const code = (answer: ReturnType<typeof ask>) =>
    answer.case === "errorResponse" ? answer.value.errorCode : undefined;
  assert.equal(code(ask({ case: "fileByFilename", value: "no.proto" })), 5);
  assert.equal(code(ask({ case: "fileContainingSymbol", value: "no.Such" })), 5);
  assert.equal(code(ask({ case: "allExtensionNumbersOfType", value: "no.Such" })), 5);
  assert.equal(code(ask({ case: "fileContainingExtension", value: { containingType: "x" } })), 5);
  assert.equal(code(ask(undefined)), 3);
  const none = ask({ case: "allExtensionNumbersOfType", value: "inference.ModelConfig" });
  assert.equal(none.case, "allExtensionNumbersResponse");
});
