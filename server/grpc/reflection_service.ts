import {
  create,
  type DescFile,
  type DescService,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { file_grpc_service } from "../../proto/gen/grpc_service_pb.ts";
import { file_health } from "../../proto/gen/health_pb.ts";
import {
  file_reflection,
  type ServerReflectionRequest,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
} from "../../proto/gen/reflection_pb.ts";
import { file_reflection_v1alpha } from "../../proto/gen/reflection_v1alpha_pb.ts";

const ROOT_FILES: readonly DescFile[] = [
  file_grpc_service,
  file_health,
  file_reflection,
  file_reflection_v1alpha,
];

type Answer = MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"];

/** Answers the requests of server reflection from the generated descriptors. */
export class ReflectionService {
  readonly #files = new Map<string, DescFile>();
  readonly #symbols = new Map<string, DescFile>();
  readonly #services: string[] = [];

  constructor() {
    for (const file of ROOT_FILES) this.#addFile(file);
    this.#services.sort();
  }

  #addFile(file: DescFile): void {
    const name = file.proto.name;
    if (this.#files.has(name)) return;
    this.#files.set(name, file);
    for (const dependency of file.dependencies) this.#addFile(dependency);
    for (const service of file.services) this.#addService(service, file);
    for (const type of [...file.enums, ...file.messages]) this.#addType(type, file);
  }

  #addService(service: DescService, file: DescFile): void {
    this.#services.push(service.typeName);
    this.#symbols.set(service.typeName, file);
    for (const method of service.methods) {
      this.#symbols.set(`${service.typeName}.${method.name}`, file);
    }
  }

  #addType(type: DescFile["messages"][number] | DescFile["enums"][number], file: DescFile): void {
    this.#symbols.set(type.typeName, file);
    if (type.kind === "enum") return;
    for (const field of type.fields) this.#symbols.set(`${type.typeName}.${field.name}`, file);
    for (const nested of [...type.nestedEnums, ...type.nestedMessages]) this.#addType(nested, file);
  }

  answer(request: ServerReflectionRequest): ServerReflectionResponse {
    return create(ServerReflectionResponseSchema, {
      validHost: request.host,
      originalRequest: request,
      messageResponse: this.#answerTo(request.messageRequest),
    });
  }

  #answerTo(request: ServerReflectionRequest["messageRequest"]): NonNullable<Answer> {
    switch (request.case) {
      case "listServices":
        return {
          case: "listServicesResponse",
          value: { service: this.#services.map((name) => ({ name })) },
        };
      case "fileByFilename":
        return this.#fileAnswer(this.#files.get(request.value), request.value);
      case "fileContainingSymbol":
        return this.#fileAnswer(
          this.#symbols.get(request.value.replace(/^\./, "")),
          request.value,
        );
      case "fileContainingExtension":
        return notFound(request.value.containingType);
      case "allExtensionNumbersOfType":
        if (!this.#symbols.has(request.value)) return notFound(request.value);
        return {
          case: "allExtensionNumbersResponse",
          value: { baseTypeName: request.value, extensionNumber: [] },
        };
      default:
        return {
          case: "errorResponse",
          value: { errorCode: Code.InvalidArgument, errorMessage: "No request given" },
        };
    }
  }

  #fileAnswer(file: DescFile | undefined, name: string): NonNullable<Answer> {
    if (file === undefined) return notFound(name);
    const found = new Set<DescFile>();
    const collect = (current: DescFile) => {
      if (found.has(current)) return;
      found.add(current);
      current.dependencies.forEach(collect);
    };
    collect(file);
    const encoded = [...found].map(({ proto }) => toBinary(FileDescriptorProtoSchema, proto));
    return { case: "fileDescriptorResponse", value: { fileDescriptorProto: encoded } };
  }
}

function notFound(name: string): NonNullable<Answer> {
  return {
    case: "errorResponse",
    value: { errorCode: Code.NotFound, errorMessage: `Not found: ${name.slice(0, 256)}` },
  };
}
