import { type DescFile, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  type DescriptorProto,
  type EnumDescriptorProto,
  type FieldDescriptorProto,
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
} from "@bufbuild/protobuf/wkt";
import assert from "node:assert/strict";
import { file_grpc_service } from "../../proto/gen/grpc_service_pb.ts";
import { file_model_config } from "../../proto/gen/model_config_pb.ts";
import { missingTritonclient, runPython } from "./tritonclient_python.ts";

const PRINT_DESCRIPTORS = `
import base64
from tritonclient.grpc import service_pb2, model_config_pb2
for module in (service_pb2, model_config_pb2):
    print(base64.b64encode(module.DESCRIPTOR.serialized_pb).decode())
`;

/** Everything of a file that shows on the wire or in generated code, by full name. */
type Facts = Record<string, unknown>;

function messageFacts(facts: Facts, message: DescriptorProto, scope: string): void {
  const name = `${scope}.${message.name}`;
  facts[name] = { isMapEntry: message.options?.mapEntry ?? false };
  for (const field of message.field) {
    facts[`${name}.${field.name}`] = fieldFacts(field, message);
  }
  for (const nested of message.nestedType) messageFacts(facts, nested, name);
  for (const nested of message.enumType) enumFacts(facts, nested, name);
}

function fieldFacts(field: FieldDescriptorProto, message: DescriptorProto) {
  const isInOneof = message.oneofDecl.length > 0 && "oneofIndex" in field &&
    Object.hasOwn(field, "oneofIndex");
  return {
    number: field.number,
    type: field.type,
    typeName: field.typeName,
    label: field.label,
    oneof: isInOneof ? message.oneofDecl[field.oneofIndex]!.name : "",
    isProto3Optional: field.proto3Optional,
    isDeprecated: field.options?.deprecated ?? false,
  };
}

function enumFacts(facts: Facts, type: EnumDescriptorProto, scope: string): void {
  for (const value of type.value) facts[`${scope}.${type.name}.${value.name}`] = value.number;
}

function factsOf(file: FileDescriptorProto): Facts {
  const facts: Facts = {};
  const scope = `.${file.package}`;
  for (const message of file.messageType) messageFacts(facts, message, scope);
  for (const type of file.enumType) enumFacts(facts, type, scope);
  for (const service of file.service) {
    for (const method of service.method) {
      facts[`${scope}.${service.name}.${method.name}`] = {
        input: method.inputType,
        output: method.outputType,
        streams: [method.clientStreaming, method.serverStreaming],
      };
    }
  }
  return facts;
}

function ours(file: DescFile): Facts {
  return factsOf(
    fromBinary(FileDescriptorProtoSchema, toBinary(FileDescriptorProtoSchema, file.proto)),
  );
}

async function theirs(): Promise<Facts[]> {
  const lines = await runPython(PRINT_DESCRIPTORS);
  return lines.map((line) =>
    factsOf(fromBinary(FileDescriptorProtoSchema, Uint8Array.fromBase64(line)))
  );
}

const missing = missingTritonclient();

Deno.test({
  name: `our descriptors equal those inside tritonclient${missing ? ` (skipped: ${missing})` : ""}`,
  ignore: missing !== undefined,
  async fn() {
    const [service, config] = await theirs();
    assert(Object.keys(service!).length > 200);
    assert(Object.keys(config!).length > 200);
    assert.deepEqual(ours(file_grpc_service), service);
    assert.deepEqual(ours(file_model_config), config);
  },
});
