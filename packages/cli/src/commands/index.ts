import type { Command } from "../command.ts";
import { serve } from "../service/serve.ts";
import { agents } from "./agents.ts";
import { apply, exportConfig } from "./apply.ts";
import { backends, models } from "./backends.ts";
import { chat } from "./chat.ts";
import { codes } from "./codes.ts";
import { completionFor } from "./completion.ts";
import { connect } from "./connect.ts";
import { groups } from "./groups.ts";
import { keys } from "./keys.ts";
import { ledger } from "./ledger.ts";
import { logs } from "./logs.ts";
import { audit, requests, routes } from "./operate.ts";
import { backup, doctor, migrate, restore } from "./own-files.ts";
import { prices } from "./prices.ts";
import { login, logout, whoami } from "./session.ts";
import { usage } from "./usage.ts";
import { users } from "./users.ts";

/** Options of every command. */
export const COMMON_OPTIONS = {
  json: { type: "boolean", help: "print the result as JSON" },
  url: { type: "string", help: "address of the service (MODEL_GATEWAY_URL; http://127.0.0.1:8080)" },
  "key-file": { type: "string", help: "file with the API key (or MODEL_GATEWAY_KEY)" },
  "admin-token-file": { type: "string", help: "file with the admin token (or SERVICE_ADMIN_TOKEN)" },
  help: { type: "boolean", short: "h", help: "show the help" },
} as const;

const completion: Command = {
  name: "completion",
  summary: "Print a completion script",
  examples: [
    'eval "$(model-gateway completion bash)"',
    'eval "$(model-gateway completion zsh)"',
    "model-gateway completion fish | source",
  ],
  actions: ["bash", "zsh", "fish"],
  run({ words, output }) {
    const common = Object.keys(COMMON_OPTIONS).map((name) => `--${name}`);
    output.write(completionFor(words[0] ?? "bash", COMMANDS, common));
  },
};

export const COMMANDS: readonly Command[] = [
  serve,
  doctor,
  login,
  logout,
  whoami,
  keys,
  connect,
  backends,
  models,
  routes,
  prices,
  chat,
  usage,
  logs,
  requests,
  audit,
  users,
  groups,
  codes,
  ledger,
  agents,
  apply,
  exportConfig,
  migrate,
  backup,
  restore,
  completion,
];
