import { addressOfPointer, viewMemory } from "./memory.ts";
import { MACHINE_CODE, type MachineFunction } from "./machine_code_table.ts";

const PAGE_BYTE_SIZE = 4096;
const READ_WRITE = 3;
const READ_EXECUTE = 5;
const PRIVATE_ANONYMOUS = 0x22;
const CODE_ALIGNMENT = 16;

const LIBC_SYMBOLS = {
  // void* mmap(void* address, size_t length, int protection, int flags, int file, off_t offset)
  mmap: { parameters: ["pointer", "usize", "i32", "i32", "i32", "i64"], result: "pointer" },
  // int mprotect(void* address, size_t length, int protection)
  mprotect: { parameters: ["pointer", "usize", "i32"], result: "i32" },
} as const satisfies Deno.ForeignLibraryInterface;

/** Addresses of the functions of machine_code_table.ts. */
export type MachineCode = Readonly<Record<MachineFunction, bigint>>;

/**
 * Puts the functions into a page of memory that can be executed; it stays for the life of the process, since native
 * threads may run in it.
 * @throws Error on another system or processor, and where the system lets no new code run.
 */
export function loadMachineCode(): MachineCode {
  const code = MACHINE_CODE[Deno.build.arch];
  if (Deno.build.os !== "linux" || code === undefined) {
    throw new Error(
      `Cannot run native calls in a row on ${Deno.build.os} ${Deno.build.arch}: expected Linux on ` +
        Object.keys(MACHINE_CODE).join(" or "),
    );
  }
  const { mmap, mprotect } = Deno.dlopen("libc.so.6", LIBC_SYMBOLS).symbols;
  const page = mmap(null, BigInt(PAGE_BYTE_SIZE), READ_WRITE, PRIVATE_ANONYMOUS, -1, 0n);
  const start = addressOfPointer(page);
  if (page === null || BigInt.asIntN(64, start) === -1n) {
    throw new Error("Cannot get a page of memory for machine code");
  }
  const bytes = new Uint8Array(viewMemory(page, PAGE_BYTE_SIZE));
  const addresses: Record<string, bigint> = {};
  let offset = 0;
  for (const [name, text] of Object.entries(code)) {
    const part = Uint8Array.fromHex(text);
    bytes.set(part, offset);
    addresses[name] = start + BigInt(offset);
    offset += Math.ceil(part.length / CODE_ALIGNMENT) * CODE_ALIGNMENT;
  }
  if (mprotect(page, BigInt(PAGE_BYTE_SIZE), READ_EXECUTE) !== 0) {
    throw new Error("Cannot make a page of memory executable: the system forbids it");
  }
  return addresses as MachineCode;
}
