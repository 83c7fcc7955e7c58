/** Tensors in memory of clients on the GPU of this machine, in ONNX models: only when GPU tests are asked for. */
import { MachineDevices } from "../../backends/device.ts";
import type { DevicePlace } from "../../proto/tensor.ts";
import { CallList, createCallRunner } from "../../ffi/call_list.ts";
import { DeviceCalls, type DeviceObject } from "../../ffi/cuda/device_calls.ts";
import { openCudaExecution } from "../../ffi/cuda/execution_library.ts";
import { loadMachineCode } from "../../ffi/machine_code.ts";
import { addressOf } from "../../ffi/memory.ts";
import { ModelInstanceGroup_Kind } from "../../proto/gen/model_config_pb.ts";
import { checkGpuTensors, type GpuBlock } from "../backends/gpu_tensor_suite.ts";
import { openInstance } from "../backends/fixture.ts";
import { identityModel, ONNX_DATA_TYPE as TYPE } from "../fixtures/onnx_builder.ts";

const MODEL = identityModel([{ type: TYPE.FLOAT, dims: ["batch", 4] }]);
const TO_DEVICE = 1n;
const TO_HOST = 2n;

/** Memory that CUDA gave to this test. */
class RealGpuBlock implements GpuBlock, AsyncDisposable {
  readonly #device: DeviceCalls;
  readonly #block: DeviceObject;
  readonly #stream: DeviceObject;

  private constructor(device: DeviceCalls, block: DeviceObject, stream: DeviceObject) {
    this.#device = device;
    this.#block = block;
    this.#stream = stream;
  }

  static async allocate(byteSize: number): Promise<RealGpuBlock> {
    const cuda = await openCudaExecution(createCallRunner(loadMachineCode()));
    const device = new DeviceCalls(cuda, 0);
    return new RealGpuBlock(device, await device.allocate(byteSize), await device.createStream());
  }

  place(offset: number, byteSize: number): DevicePlace {
    return { deviceId: 0, address: this.#block.address + BigInt(offset), byteSize };
  }

  async write(offset: number, values: readonly number[]): Promise<void> {
    const bytes = new Float32Array(new ArrayBuffer(4 * values.length));
    bytes.set(values);
    const { address } = this.place(offset, bytes.byteLength);
    await this.#copy([address, addressOf(bytes), BigInt(bytes.byteLength), TO_DEVICE], bytes);
  }

  async read(offset: number, count: number): Promise<number[]> {
    const bytes = new Float32Array(new ArrayBuffer(4 * count));
    const { address } = this.place(offset, bytes.byteLength);
    await this.#copy([addressOf(bytes), address, BigInt(bytes.byteLength), TO_HOST], bytes);
    return [...bytes];
  }

  async #copy(args: readonly bigint[], kept: object): Promise<void> {
    const list = new CallList();
    list.keep(kept);
    this.#device.begin(list);
    this.#device.add(list, "cudaMemcpyAsync", [...args, this.#stream.address]);
    this.#device.add(list, "cudaStreamSynchronize", [this.#stream.address]);
    await this.#device.run(list);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#device.destroy([this.#block, this.#stream]);
  }
}

/** Why ONNX Runtime cannot use CUDA here; undefined when it can. */
async function whyNoCuda(): Promise<string | undefined> {
  if (Deno.env.get("NEREID_GPU_TESTS") !== "1") return "no GPU tests are asked for";
  using devices = new MachineDevices({
    minComputeCapability: 6,
    findWebGpuAdapters: () => Promise.resolve({ adapters: [], reasons: {} }),
  });
  await using opened = await openInstance("onnxruntime", { model: MODEL });
  const offers = await opened.backend.kinds!(devices, opened.source);
  return offers.find(({ device }) => device === "cuda")?.refusal;
}

const reason = await whyNoCuda();

Deno.test({
  name: `onnxruntime on CUDA: tensors of clients stay on the GPU${reason ? ` (${reason})` : ""}`,
  ignore: reason !== undefined,
  fn: async () => {
    const kind = ModelInstanceGroup_Kind.GPU;
    await using opened = await openInstance("onnxruntime", {
      model: MODEL,
      config: { instanceGroup: [{ name: "m_0", kind, gpus: [0], count: 1 }] },
      placement: { kind: "KIND_GPU", deviceId: 0 },
    });
    await using gpu = await RealGpuBlock.allocate(8192);
    await checkGpuTensors(opened.instance, gpu, { movesThere: true });
  },
});
