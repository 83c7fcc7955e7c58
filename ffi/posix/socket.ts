import { isFfiAllowed } from "../permission.ts";

const SOL_SOCKET = 1;
const SO_ACCEPTCONN = 30;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;
const AF_INET = 2;
const AF_INET6 = 10;
const ADDRESS_BYTE_SIZE = 128;

const SOCKET_SYMBOLS = {
  // int getsockopt(int fd, int level, int name, void* value, socklen_t* size)
  getsockopt: { parameters: ["i32", "i32", "i32", "buffer", "buffer"], result: "i32" },
  // int setsockopt(int fd, int level, int name, const void* value, socklen_t size)
  setsockopt: { parameters: ["i32", "i32", "i32", "buffer", "u32"], result: "i32" },
  // int getsockname(int fd, struct sockaddr* address, socklen_t* size)
  getsockname: { parameters: ["i32", "buffer", "buffer"], result: "i32" },
} as const satisfies Deno.ForeignLibraryInterface;

/**
 * Sets TCP_NODELAY on the listening sockets of this process at a port; the connections they accept inherit it. Meant
 * for listeners whose connections have no such setting of their own (TLS). Linux only; elsewhere, and without
 * the permission, it does nothing.
 * @returns the number of sockets it was set on.
 */
export function setListenerNoDelay(port: number): number {
  if (Deno.build.os !== "linux" || !isFfiAllowed()) return 0;
  const library = Deno.dlopen("libc.so.6", SOCKET_SYMBOLS);
  try {
    let count = 0;
    const enabled = new Int32Array([1]);
    for (const { name } of Deno.readDirSync("/proc/self/fd")) {
      const fd = Number(name);
      if (listeningPort(library.symbols, fd) !== port) continue;
      const status = library.symbols.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, enabled, 4);
      if (status === 0) count++;
    }
    return count;
  } finally {
    library.close();
  }
}

/** Port of a listening internet socket; undefined for every other file descriptor. */
function listeningPort(
  symbols: Deno.StaticForeignLibraryInterface<typeof SOCKET_SYMBOLS>,
  fd: number,
): number | undefined {
  const value = new Int32Array(new ArrayBuffer(4));
  const size = new Uint32Array(new ArrayBuffer(4));
  size[0] = 4;
  if (symbols.getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, value, size) !== 0) return undefined;
  if (value[0] !== 1) return undefined;
  const address = new DataView(new ArrayBuffer(ADDRESS_BYTE_SIZE));
  size[0] = ADDRESS_BYTE_SIZE;
  if (symbols.getsockname(fd, address, size) !== 0) return undefined;
  const family = address.getUint16(0, true);
  return family === AF_INET || family === AF_INET6 ? address.getUint16(2) : undefined;
}
