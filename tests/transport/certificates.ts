/** Certificates for a test: a root, a server and a client, PEM texts. */
export interface TestCertificates {
  readonly ca: string;
  readonly serverCert: string;
  readonly serverKey: string;
  readonly clientCert: string;
  readonly clientKey: string;
}

/** Makes certificates with the `openssl` program; undefined when it is not there. */
export async function createTestCertificates(): Promise<TestCertificates | undefined> {
  const folder = await Deno.makeTempDir();
  try {
    await run(
      folder,
      "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-root -keyout ca.key -out ca.crt",
    );
    await Deno.writeTextFile(`${folder}/server.ext`, "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
    await Deno.writeTextFile(`${folder}/client.ext`, "extendedKeyUsage=clientAuth\n");
    for (const name of ["server", "client"]) {
      await run(
        folder,
        `req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=${name} -keyout ${name}.key -out ${name}.csr`,
      );
      await run(
        folder,
        `x509 -req -in ${name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile ${name}.ext -out ${name}.crt`,
      );
    }
    const read = (name: string) => Deno.readTextFile(`${folder}/${name}`);
    return {
      ca: await read("ca.crt"),
      serverCert: await read("server.crt"),
      serverKey: await read("server.key"),
      clientCert: await read("client.crt"),
      clientKey: await read("client.key"),
    };
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function run(cwd: string, line: string): Promise<void> {
  const command = new Deno.Command("openssl", {
    args: line.split(" "),
    cwd,
    stdout: "null",
    stderr: "piped",
  });
  const { success, stderr } = await command.output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
}
