/**
 * Machine code of the few functions that native threads call where JavaScript cannot be called. Position independent,
 * by the C calling convention of Linux. What each does, in C:
 *
 * `runCalls(call* list, size_t count)` calls `list[i].function(a0 … a4)` one after the other on one thread, keeps each
 * result, ends at the first whose masked low half is not the expected one, and returns its index; else `count`.
 *
 * `reallocate(this, name, current, size, alignment)`: raises `this->needed` to `size`; gives `this->address` when
 * `size <= this->capacity`, else null. `notify64/32(this, name, dims)`: copies the dims to `this->dims`.
 *
 * `log(this, severity, text)`: `this->dprintf(this->file, this->format, severity, text)`.
 *
 * `freeStrings(data, length, this)`: `this->deallocate(p)` for each 24 bytes at `data`, then `this->free(data)`.
 *
 * `loggerKind/allocatorKind(this)`: the struct `{this->kind, 1, 0}`. `zero()`, `one()`: the numbers.
 */
export type MachineFunction =
  | "runCalls"
  | "reallocate"
  | "notify64"
  | "notify32"
  | "log"
  | "freeStrings"
  | "loggerKind"
  | "allocatorKind"
  | "zero"
  | "one";

/** The code by architecture, in hexadecimal. */
export const MACHINE_CODE: Readonly<Record<string, Readonly<Record<MachineFunction, string>>>> = {
  "x86_64": {
    runCalls: "53415441554889fb4989f44531ed4d39e5732d488b7b08488b7310488b5318488b4b204c8b4328" +
      "31c0ff13488943382343303b433475094883c34049ffc5ebce4c89e8415d415c5bc3",
    reallocate: "48394f18730448894f1831c0483b4f087704488b4710c3",
    notify64: "4889d64883c720b909000000f348a5c3",
    notify32: "4889d64883c720b909000000f3a5c3",
    log: "4889d189f2488b77104c8b5f18488b7f0831c041ffe3",
    freeStrings: "5355415441554883ec084889fb4889fd4c8d24374989d54c39e3730d4889df41ff5500" +
      "4883c318ebee4889ef41ff55084883c408415d415c5d5bc3",
    loggerKind: "488b4720ba01000000c3",
    allocatorKind: "488b4770ba01000000c3",
    zero: "31c0c3",
    one: "b801000000c3",
  },
  "aarch64": {
    runCalls: "fd7bbda9fd030091f35301a9f51300f9f30300aaf40301aa150080d2bf0214eba2010054" +
      "700240a9610a41a9631242a900023fd6601e00f9692a46292901000a3f010a6b81000054" +
      "73020191b5060091f3ffff17e00315aaf51340f9f35341a9fd7bc3a8c0035fd6",
    reallocate: "090c40f93f0103eb42000054030c00f909a840a97f0009ebe0838a9ac0035fd6",
    notify64: "431040a9031002a9431041a9031003a9431042a9031004a9431043a9031005a9432040f9033000f9" +
      "c0035fd6",
    notify32: "431040a9031002a9431041a9031003a9432040b9034000b9c0035fd6",
    log: "e30302aae203012a012441a9000440f920011fd6",
    freeStrings:
      "fd7bbda9fd030091f35301a9f55b02a9f30300aaf40300aa1500018bf60302aa7f0215ebc2000054" +
      "e00313aac90240f920013fd673620091faffff17e00314aac90640f920013fd6" +
      "f55b42a9f35341a9fd7bc3a8c0035fd6",
    loggerKind: "001040f9210080d2c0035fd6",
    allocatorKind: "003840f9210080d2c0035fd6",
    zero: "00008052c0035fd6",
    one: "20008052c0035fd6",
  },
};
