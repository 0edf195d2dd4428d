import { readFileSync } from "node:fs";
import { CliError, type Invocation, text, UsageError } from "./command.ts";

export type Env = Readonly<Record<string, string | undefined>>;

/** Secrets and the variables that they come from; each also comes from a file, named by `--<option>-file`. */
const VARIABLES = {
  key: "MODEL_GATEWAY_KEY",
  password: "MODEL_GATEWAY_PASSWORD",
  "admin-token": "SERVICE_ADMIN_TOKEN",
  "backend-key": "MODEL_GATEWAY_BACKEND_KEY",
  "backend-headers": "MODEL_GATEWAY_BACKEND_HEADERS",
} as const;
export type SecretName = keyof typeof VARIABLES;

/** Everyone on the machine can read the command lines of its processes, so no secret is taken from there. */
export function refuseSecrets(args: readonly string[]): void {
  for (const [name, variable] of Object.entries(VARIABLES))
    if (args.some((arg) => arg === `--${name}` || arg.startsWith(`--${name}=`)))
      throw new UsageError(
        `--${name} would show the secret to everyone on this machine: set ${variable}, or give --${name}-file <file>`,
      );
}

/** From the file that the option names, the variable, or the file that the variable with `_FILE` names. */
export function readSecret(name: SecretName, options: Invocation["options"], env: Env): string | null {
  const variable = VARIABLES[name];
  const given = text(options, `${name}-file`);
  if (given !== null) return contentOf(given, `--${name}-file`);
  if (env[variable]) return env[variable];
  const file = env[`${variable}_FILE`];
  return file ? contentOf(file, `${variable}_FILE`) : null;
}

export function contentOf(file: string, source: string): string {
  let content: string;
  try {
    content = readFileSync(file, "utf8").trim();
  } catch (error) {
    throw new CliError(`${source}: ${(error as Error).message}`);
  }
  if (content === "") throw new CliError(`${source}: ${file} is empty`);
  return content;
}
