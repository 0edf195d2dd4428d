/** Command line and environment of the node program. Flags win over the environment, that over the file. */
import { readFileSync } from "node:fs";
import { homedir, hostname } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { TUNNEL_PATH } from "@model-gateway/protocol/agent.ts";
import { hostProblem } from "@model-gateway/protocol/host.ts";
import { type AgentConfig, loadConfig } from "./config.ts";
import { describeError, UsageError } from "./errors.ts";

export const HELP = `Example:
  npm run agent -- --gateway wss://gateway.example.com --token-file <file with the token from agents.register>

Joins this machine to a model gateway as a node: reports its GPUs, and downloads, starts, watches and stops
the models that the gateway deploys on it. It dials out; no port has to be opened towards the gateway.

  --gateway <url>    the gateway, ws:// or wss:// (AGENT_GATEWAY)
  --token-file <file>  what agents.register returned, in a file (or AGENT_TOKEN, or token_file in the configuration)
  --config <file>    TOML: engines, models, mirror and limits; see docs/agent-node.md
  --data-dir <path>  weights, logs and state; default ~/.local/share/model-agent (AGENT_DATA_DIR)
  --host <address>   an address of this machine that the gateway can reach. Engines then listen beyond this
                     machine and are called directly; without it, inference travels through the tunnel
  --name <name>      how the node calls itself; default: the machine's name
  --help             this text
`;

export interface AgentSettings {
  url: string;
  token: string;
  name: string;
  dataDir: string;
  /** Address for engines to listen on. */
  bind: string;
  /** Shown to the gateway as this node's host. */
  host: string;
  /** Whether the gateway may dial `host`. */
  direct: boolean;
  config: AgentConfig;
}

type Env = Record<string, string | undefined>;

/** Null when only the help was asked for. */
export function readSettings(argv: string[], env: Env): AgentSettings | null {
  const flags = parseFlags(argv);
  if (flags.help) return null;
  const config = loadConfig(flags.config ?? null);
  const gateway = flags.gateway || env.AGENT_GATEWAY || config.gateway;
  if (!gateway) throw new UsageError("no gateway given: --gateway wss://…, or AGENT_GATEWAY");
  const url = tunnelUrl(gateway);
  const given = flags.host ?? config.host;
  const problem = given === undefined ? null : hostProblem(given);
  if (problem) throw new UsageError(`--host: ${problem}`);
  const advertised = given ?? (isLoopback(url.hostname) ? "127.0.0.1" : null);
  return {
    url: url.href,
    token: readToken(flags, env, config),
    name: flags.name ?? config.name ?? hostname(),
    dataDir: resolve(
      flags["data-dir"] ||
        env.AGENT_DATA_DIR ||
        config.data_dir ||
        join(homedir(), ".local/share/model-agent"),
    ),
    bind: config.bind ?? (advertised && !isLoopback(advertised) ? "0.0.0.0" : "127.0.0.1"),
    host: advertised ?? hostname(),
    direct: advertised !== null,
    config,
  };
}

function parseFlags(argv: string[]) {
  const text = { type: "string" } as const;
  try {
    return parseArgs({
      args: argv,
      options: {
        gateway: text,
        token: text,
        "token-file": text,
        config: text,
        "data-dir": text,
        host: text,
        name: text,
        help: { type: "boolean", short: "h" },
      },
    }).values;
  } catch (error) {
    throw new UsageError(describeError(error));
  }
}

/** The tunnel's address from any way of writing the gateway's. */
export function tunnelUrl(gateway: string): URL {
  let url: URL;
  try {
    url = new URL(gateway.replace(/^http(s?):/i, "ws$1:"));
  } catch {
    throw new UsageError(`--gateway: ${JSON.stringify(gateway)} is no URL; write wss://gateway.example.com`);
  }
  if (url.protocol !== "ws:" && url.protocol !== "wss:")
    throw new UsageError(`--gateway: ${url.protocol}// is not understood; use ws:// or wss://`);
  // Credentials in the URL would show up in the log and could not be sent: the token replaces them.
  if (url.username || url.password || url.search)
    throw new UsageError("--gateway: leave out user, password and query; the token has a flag of its own");
  const path = url.pathname.replace(/\/+$/, "");
  url.pathname = path.endsWith(TUNNEL_PATH) ? path : `${path}${TUNNEL_PATH}`;
  return url;
}

function readToken(flags: { token?: string; "token-file"?: string }, env: Env, config: AgentConfig): string {
  // Everyone on the machine can read the command lines of its processes.
  if (flags.token !== undefined)
    throw new UsageError(
      "--token would show the token to everyone on this machine: use AGENT_TOKEN or --token-file",
    );
  const given = env.AGENT_TOKEN || config.token;
  if (given && !flags["token-file"]) return checkedToken(given, "the token");
  const file = flags["token-file"] || config.token_file;
  if (!file)
    throw new UsageError(
      "no token given: AGENT_TOKEN, --token-file or token_file; agents.register issues one",
    );
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new UsageError(`the token's file cannot be read: ${describeError(error)}`);
  }
  return checkedToken(text, `what ${file} holds`);
}

/** Never repeats the text itself, which may be a secret in the wrong place. */
function checkedToken(text: string, what: string): string {
  const token = text.trim();
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  throw new UsageError(`${what} is no token: one word is expected, as agents.register returned it`);
}

export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || host === "::1" || /^127\./.test(host);
}
