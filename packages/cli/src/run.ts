import { parseArgs } from "node:util";
import { ConnectionError, RestError, RpcError } from "@model-gateway/client";
import manifest from "../package.json" with { type: "json" };
import { CliError, type Command, text } from "./command.ts";
import { COMMANDS, COMMON_OPTIONS } from "./commands/index.ts";
import { Connection } from "./connection.ts";
import { helpOf, overview } from "./help.ts";
import { Output } from "./output.ts";
import { readSecret, refuseSecrets } from "./secrets.ts";

const EXIT_USAGE = 2;

function parse(command: Command, args: readonly string[]) {
  refuseSecrets(args);
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      options: { ...command.options, ...COMMON_OPTIONS },
      allowPositionals: true,
      strict: true,
    });
    return { options: values as Record<string, string | boolean | undefined>, words: positionals };
  } catch (error) {
    throw new CliError(
      `${(error as Error).message.split(". ")[0]}; model-gateway ${command.name} --help lists the options`,
    );
  }
}

function explain(error: unknown, url: string): string {
  if (error instanceof ConnectionError)
    return `${url} cannot be reached; is the service running? model-gateway doctor looks into it`;
  if (error instanceof RestError && error.status === 401)
    return error.message === "admin access required"
      ? "the admin token is not accepted"
      : `not accepted: ${error.message}`;
  if (error instanceof CliError || error instanceof RpcError || error instanceof RestError)
    return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** Runs one command line and returns the exit code. */
export async function runCli(args: readonly string[]): Promise<number> {
  const [name, ...rest] = args;
  if (name === undefined || name === "--help" || name === "-h" || name === "help") {
    process.stdout.write(overview());
    return 0;
  }
  if (name === "--version") {
    process.stdout.write(`${manifest.version}\n`);
    return 0;
  }
  const command = COMMANDS.find((candidate) => candidate.name === name);
  if (!command) {
    process.stderr.write(`model-gateway: there is no command "${name}"; model-gateway --help lists them\n`);
    return EXIT_USAGE;
  }
  let url = "";
  try {
    const { options, words } = command.passThrough ? { options: {}, words: rest } : parse(command, rest);
    if (options.help) {
      process.stdout.write(helpOf(command));
      return 0;
    }
    const connection = new Connection({
      url: text(options, "url"),
      key: readSecret("key", options, process.env),
      adminToken: readSecret("admin-token", options, process.env),
      env: process.env,
    });
    url = connection.url;
    const output = new Output({
      json: Boolean(options.json),
      stdout: process.stdout,
      stderr: process.stderr,
    });
    await command.run({ words, options, output, connection });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    process.stderr.write(`model-gateway ${name}: ${explain(error, url)}\n`);
    return 1;
  }
}
