import { create } from "@bufbuild/protobuf";
import {
  type Backend,
  CPU_OFFER,
  DEVICE_CLASS_NAMES,
  DEVICE_PARAMETER,
  type DeviceClass,
  type Devices,
  type KindOffer,
  type ModelSource,
} from "../../backends/backend.ts";
import {
  type ModelConfig,
  type ModelInstanceGroup,
  ModelInstanceGroup_Kind,
  ModelInstanceGroupSchema,
  ModelParameterSchema,
} from "../../proto/gen/model_config_pb.ts";
import { isEnsemble } from "../../proto/model_config_normalize.ts";
import type { GpuMachine } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import type { ServerOptions } from "./options.ts";

/** What decides where instances go, beside the configuration. */
export interface KindSettings {
  /** Absent = nothing is known of any device but the CPU. */
  readonly devices?: Devices | undefined;
  /** `fallback` of `--backend-config`: a group of KIND_GPU may run on the next kind where there is no GPU. */
  readonly mayFallBack: boolean;
  /** Families on which this version could not be loaded before, with the reason. */
  readonly failed?: ReadonlyMap<DeviceClass, string> | undefined;
}

/** Where the groups of a configuration go. */
export interface KindChoice {
  /** For the checks of the configuration. */
  readonly machine: GpuMachine;
  /** What was chosen for groups that left it open, one line each. */
  readonly notes: readonly string[];
  /** Groups that asked for a GPU and run on something else, one line each. */
  readonly fallbacks: readonly string[];
  /** The family on which the version is to be loaded when there is another one after it. */
  readonly replaceable: DeviceClass | undefined;
}

/**
 * Decides the kind of every instance group, in place: KIND_AUTO and an omitted group get the best that the backend can
 * make (CUDA, then WebGPU, then the CPU), KIND_GPU without `gpus` gets all that it can use.
 */
export async function chooseKinds(
  source: ModelSource,
  backend: Backend,
  settings: KindSettings,
): Promise<KindChoice> {
  const { config } = source;
  const { devices, failed } = settings;
  forgetDevices(config);
  if (isEnsemble(config)) return NOTHING_TO_CHOOSE;
  const declared = devices === undefined || needsNoOffers(config)
    ? undefined
    : await backend.kinds?.(devices, source);
  const offers = (declared ?? offersWithoutDevices(backend)).map((offer) => {
    const reason = failed?.get(offer.device);
    return reason === undefined ? offer : { ...offer, refusal: `loading failed: ${reason}` };
  });
  if (config.instanceGroup.length === 0) {
    if (backend.preference.kind === "KIND_MODEL") return NOTHING_TO_CHOOSE;
    config.instanceGroup.push(create(ModelInstanceGroupSchema, { name: config.name }));
  }
  const hasChoice = backend.kinds !== undefined;
  const placement = new GroupPlacement(config, offers, {
    ...settings,
    backend: backend.name,
    hasChoice,
  });
  for (const [index, group] of config.instanceGroup.entries()) {
    if (group.name === "") group.name = `${config.name}_${index}`;
    placement.place(index, group);
    if (backend.usesSecondaryDevices !== true) placement.tellUnused(group);
  }
  return { ...placement.choice(), machine: await placement.machine(devices) };
}

const NOTHING_TO_CHOOSE: KindChoice = {
  machine: { minComputeCapability: 0, gpuIds: [], refusals: new Map() },
  notes: [],
  fallbacks: [],
  replaceable: undefined,
};

/** Key of `--backend-config` that lets groups of KIND_GPU run on the next kind. */
const FALLBACK_KEY = "fallback";

/** Whether a backend's groups of KIND_GPU may run on something else. @throws ServerError INVALID_ARG for no bool. */
export function mayFallBack({ backendConfig }: ServerOptions, backendName: string): boolean {
  const text = backendConfig.get(backendName)?.get(FALLBACK_KEY) ??
    backendConfig.get("")?.get(FALLBACK_KEY) ?? "false";
  const word = text.toLowerCase();
  if (["true", "1", "on"].includes(word)) return true;
  if (["false", "0", "off"].includes(word)) return false;
  throw new ServerError(
    "INVALID_ARG",
    `failed to convert '${text}' to boolean for --backend-config '${FALLBACK_KEY}'`,
  );
}

/** What is said about devices belongs to the server, whoever wrote it into the file. */
function forgetDevices({ parameters }: ModelConfig): void {
  for (const key of Object.keys(parameters)) {
    if (key.startsWith(DEVICE_PARAMETER)) delete parameters[key];
  }
}

/** True when every group says that it wants no GPU: then none is looked for. */
function needsNoOffers({ instanceGroup }: ModelConfig): boolean {
  const { CPU, MODEL } = ModelInstanceGroup_Kind;
  return instanceGroup.length > 0 &&
    instanceGroup.every(({ kind }) => kind === CPU || kind === MODEL);
}

function offersWithoutDevices({ name, kinds }: Backend): readonly KindOffer[] {
  const refusal = kinds === undefined
    ? `backend '${name}' runs on CPUs only`
    : "nothing is known of GPUs here";
  return [{ kind: "KIND_GPU", device: "cuda", deviceIds: [], refusal }, CPU_OFFER];
}

interface PlacementSettings extends KindSettings {
  readonly backend: string;
  /** The backend can use other devices than the CPU: what was chosen is worth a line of the log. */
  readonly hasChoice: boolean;
}

class GroupPlacement {
  readonly #config: ModelConfig;
  readonly #offers: readonly KindOffer[];
  readonly #settings: PlacementSettings;
  readonly #refusals = new Map<number, string>();
  readonly #notes: string[] = [];
  readonly #fallbacks: string[] = [];
  #replaceable: DeviceClass | undefined;

  constructor(
    config: ModelConfig,
    offers: readonly KindOffer[],
    settings: PlacementSettings,
  ) {
    this.#config = config;
    this.#offers = offers;
    this.#settings = settings;
  }

  choice(): Omit<KindChoice, "machine"> {
    return { notes: this.#notes, fallbacks: this.#fallbacks, replaceable: this.#replaceable };
  }

  async machine(devices: Devices | undefined): Promise<GpuMachine> {
    const refusals = this.#refusals;
    if (refusals.size === 0 || devices === undefined) {
      return { minComputeCapability: 6, gpuIds: [], refusals };
    }
    const { minComputeCapability } = await devices.gpus();
    const cuda = this.#offers.find((offer) => offer.device === "cuda" && isUsable(offer));
    return { minComputeCapability, gpuIds: cuda?.deviceIds ?? [], refusals };
  }

  place(index: number, group: ModelInstanceGroup): void {
    if (group.kind === ModelInstanceGroup_Kind.AUTO) this.#placeAuto(index, group);
    else if (group.kind === ModelInstanceGroup_Kind.GPU) this.#placeGpu(index, group);
  }

  /** Any backend's configuration may name them, as with the reference. */
  tellUnused({ name, secondaryDevices }: ModelInstanceGroup): void {
    if (secondaryDevices.length === 0) return;
    this.#notes.push(
      `instance group ${name} of model ${this.#config.name} names secondary_devices, which ` +
        `backend '${this.#settings.backend}' does not use`,
    );
  }

  #placeAuto(index: number, group: ModelInstanceGroup): void {
    // A group that leaves its kind to the server leaves a nonsensical count to it, too; others are refused for it.
    if (group.count < 0) group.count = 0;
    const offer = this.#offers.find((each) => isUsable(each) && fits(each, group));
    if (offer === undefined && !this.#offers.some(({ kind }) => kind !== "KIND_GPU")) {
      group.kind = ModelInstanceGroup_Kind.GPU;
      this.#refuse(index);
      return;
    }
    const chosen = offer ?? CPU_OFFER;
    const why = this.#whyNot(chosen, group);
    const start = `instance group ${group.name} of model ${this.#config.name} (KIND_AUTO)`;
    const reason = why === "" ? "the best that its backend can use" : why;
    if (this.#settings.hasChoice) {
      this.#notes.push(`${start} runs on ${nameOf(chosen)}: ${reason}`);
    }
    this.#take(group, chosen);
    // What a machine has not is plain; that a device which is there was given up is not.
    const isGivenUp = (this.#settings.failed?.size ?? 0) > 0;
    if (chosen.device !== "cpu" || isGivenUp) this.#tell(group, chosen, `KIND_AUTO; ${reason}`);
  }

  #placeGpu(index: number, group: ModelInstanceGroup): void {
    const offer = this.#offers.find((each) =>
      each.kind === "KIND_GPU" && isUsable(each) && fits(each, group)
    );
    if (offer !== undefined) {
      this.#take(group, offer, this.#settings.mayFallBack);
      if (offer.device !== "cuda") this.#tell(group, offer, this.#whyNot(offer, group));
      return;
    }
    const next = this.#settings.mayFallBack
      ? this.#offers.find((each) => each.kind !== "KIND_GPU" && isUsable(each))
      : undefined;
    if (next === undefined) {
      this.#refuse(index);
      return;
    }
    const tried = this.#tried();
    this.#fallbacks.push(
      `instance group ${group.name} of model ${this.#config.name} has kind KIND_GPU and falls ` +
        `back to ${nameOf(next)}: ${tried}`,
    );
    group.gpus = [];
    this.#take(group, next);
    this.#tell(group, next, `KIND_GPU fell back; ${tried}`);
  }

  #take(group: ModelInstanceGroup, offer: KindOffer, isReplaceable = true): void {
    group.kind = KINDS[offer.kind];
    if (offer.kind === "KIND_GPU" && group.gpus.length === 0) group.gpus = [...offer.deviceIds];
    const rest = this.#offers.slice(this.#offers.indexOf(offer) + 1);
    if (isReplaceable && offer.device !== "cpu" && rest.some(isUsable)) {
      this.#replaceable ??= offer.device;
    }
  }

  #tell(group: ModelInstanceGroup, { device }: KindOffer, reason: string): void {
    const stringValue = reason === "" ? device : `${device}: ${reason}`;
    this.#config.parameters[DEVICE_PARAMETER + group.name] = create(ModelParameterSchema, {
      stringValue,
    });
  }

  #refuse(index: number): void {
    const hasCpu = this.#offers.some((offer) => offer.device === "cpu");
    const { backend } = this.#settings;
    const way = hasCpu
      ? `KIND_CPU or KIND_AUTO is expected, or --backend-config=${backend},fallback=true`
      : `backend '${backend}' needs a GPU`;
    this.#refusals.set(index, `tried ${this.#tried()}; ${way}`);
  }

  /** What stands before a choice and could not be had. */
  #whyNot(chosen: KindOffer, group: ModelInstanceGroup): string {
    const before = this.#offers.slice(0, Math.max(0, this.#offers.indexOf(chosen)));
    return before.map((offer) =>
      `${DEVICE_CLASS_NAMES[offer.device]}: ${offer.refusal ?? `has no device ${group.gpus}`}`
    ).join("; ");
  }

  #tried(): string {
    const offers = this.#offers.filter(({ kind }) => kind === "KIND_GPU");
    if (offers.length === 0) return `nothing: backend '${this.#settings.backend}' uses no GPU`;
    return offers.map(({ device, deviceIds, refusal }) =>
      `${DEVICE_CLASS_NAMES[device]}: ${refusal ?? `has the devices ${deviceIds.join(", ")}`}`
    ).join("; ");
  }
}

const KINDS = {
  KIND_CPU: ModelInstanceGroup_Kind.CPU,
  KIND_GPU: ModelInstanceGroup_Kind.GPU,
  KIND_MODEL: ModelInstanceGroup_Kind.MODEL,
} as const;

function isUsable({ refusal }: KindOffer): boolean {
  return refusal === undefined;
}

/** Whether an offer has the devices that a group names. */
function fits({ kind, deviceIds }: KindOffer, { gpus }: ModelInstanceGroup): boolean {
  return kind !== "KIND_GPU" || gpus.every((id) => deviceIds.includes(id));
}

function nameOf({ device, deviceIds }: KindOffer): string {
  const name = DEVICE_CLASS_NAMES[device];
  return device === "cpu" ? name : `${name} ${deviceIds.join(", ")}`;
}
