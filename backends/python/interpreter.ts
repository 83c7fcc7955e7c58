import { ServerError } from "../../proto/status.ts";

/** A Python to run, and all of the environment it runs in. */
export interface PythonInterpreter {
  readonly executable: string;
  readonly environment: Readonly<Record<string, string>>;
}

/**
 * The interpreter of a model: that of its execution environment if it has one, else the server's.
 * @param executable `python-executable` of the settings.
 * @param environmentPath folder of the execution environment.
 */
export async function chooseInterpreter(
  executable: string,
  environmentPath: string | undefined,
): Promise<PythonInterpreter> {
  const inherited = Deno.env.toObject();
  if (environmentPath === undefined) return { executable, environment: inherited };
  const bin = `${environmentPath}/bin`;
  for (const name of ["python", "python3"]) {
    const isFile = await Deno.stat(`${bin}/${name}`).then((stat) => stat.isFile, () => false);
    if (!isFile) continue;
    return {
      executable: `${bin}/${name}`,
      environment: activated(inherited, environmentPath),
    };
  }
  throw new ServerError(
    "INVALID_ARG",
    `the execution environment '${environmentPath}' has neither bin/python nor bin/python3`,
  );
}

/** What `bin/activate` would do; the script itself is not run. */
function activated(inherited: Record<string, string>, path: string): Record<string, string> {
  const { PYTHONHOME: _removed, ...environment } = inherited;
  const prepend = (key: string, folder: string) => {
    const before = environment[key];
    environment[key] = before === undefined || before === "" ? folder : `${folder}:${before}`;
  };
  prepend("PATH", `${path}/bin`);
  prepend("LD_LIBRARY_PATH", `${path}/lib`);
  environment.VIRTUAL_ENV = path;
  return environment;
}
