import { parseArgs } from "node:util";
import { ConnectionError, RestError, RpcError } from "@model-gateway/client";
import manifest from "../package.json" with { type: "json" };
import { asCalled } from "./called.ts";
import { CliError, type Command, text, UsageError } from "./command.ts";
import { valuesFor } from "./commands/completion-values.ts";
import { COMMANDS, COMMON_OPTIONS } from "./commands/index.ts";
import { Connection } from "./connection.ts";
import { didYouMean } from "./did-you-mean.ts";
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
    const message = (error as Error).message.split(". ")[0]!;
    const unknown = /^Unknown option '--([^']+)'/.exec(message)?.[1];
    const options = Object.keys({ ...command.options, ...COMMON_OPTIONS });
    const near = unknown === undefined ? "" : didYouMean(unknown, options).replace('"', '"--');
    throw new UsageError(`${message}${near}; model-gateway ${command.name} --help lists the options`);
  }
}

function explain(error: unknown, url: string): string {
  if (error instanceof ConnectionError)
    return `${url} cannot be reached; is the service running? model-gateway doctor looks into it`;
  if (error instanceof RestError && error.status === 401)
    return error.message === "admin access required"
      ? "the admin token is not accepted"
      : `not accepted: ${error.message}`;
  if (error instanceof RpcError && error.message === "authentication required")
    return `not signed in at ${url}; run: model-gateway login`;
  if (error instanceof CliError || error instanceof RpcError || error instanceof RestError)
    return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** The service names the fields of its methods; people gave options. */
const asOptions = (message: string, { options = {}, fields = {} }: Command): string =>
  message.replaceAll(/(?:Invalid params: )?`(\w+)`/g, (all, field: string) => {
    const option = fields[field] ?? field.replaceAll("_", "-");
    return option in options ? `--${option}` : all;
  });

/** The command and what else was said: common options may stand before it. */
function commandIn(args: readonly string[]): [string | undefined, string[]] {
  const common: Readonly<Record<string, { type: string }>> = COMMON_OPTIONS;
  for (let at = 0; at < args.length; at++) {
    const word = args[at]!;
    const option = common[word.slice(2).split("=")[0]!];
    if (!word.startsWith("--") || !option)
      return at > 0 && word.startsWith("-") ? [args[0], args.slice(1)] : [word, args.toSpliced(at, 1)];
    if (option.type === "string" && !word.includes("=")) at++;
  }
  return [args[0], args.slice(1)];
}

/** Runs one command line and returns the exit code. */
export async function runCli(args: readonly string[]): Promise<number> {
  const [name, rest] = commandIn(args);
  if (name === undefined || name === "--help" || name === "-h" || name === "help") {
    process.stdout.write(overview());
    return 0;
  }
  if (name === "--version") {
    process.stdout.write(`${manifest.version}\n`);
    return 0;
  }
  // Asked by the completion scripts while someone types.
  if (name === "__complete") {
    const adminToken = readSecret("admin-token", {}, process.env);
    const connection = new Connection({ url: null, key: null, adminToken, env: process.env });
    await Bun.write(Bun.stdout, (await valuesFor(rest, connection)).map((value) => `${value}\n`).join(""));
    // A call that was too late must not keep the shell waiting.
    process.exit(0);
  }
  const command = COMMANDS.find((candidate) => candidate.name === name);
  if (!command) {
    const near = didYouMean(
      name,
      COMMANDS.map((candidate) => candidate.name),
    );
    process.stderr.write(
      `model-gateway: there is no command "${name}"${near || asCalled("; model-gateway help lists them")}\n`,
    );
    return EXIT_USAGE;
  }
  let url = "";
  const output = new Output({
    json: rest.includes("--json"),
    stdout: process.stdout,
    stderr: process.stderr,
  });
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
    await command.run({ words, options, output, connection });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    const who = output.paint("red", `model-gateway ${name}:`, "stderr");
    process.stderr.write(`${who} ${asCalled(asOptions(explain(error, url), command))}\n`);
    return error instanceof UsageError ? EXIT_USAGE : 1;
  }
}
