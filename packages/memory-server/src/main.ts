import { parseArgs } from "node:util";
import { startMemoryServer } from "./server.ts";

const HELP = `The reference memory service

  bun packages/memory-server/src/main.ts [options]

  --port <port>      port to listen on (default: 7718; 0 takes a free one)
  --data <dir>       directory of its SQLite file (default: ./data)
  --host <address>   address to listen on (default: 127.0.0.1)
  --token <secret>   demand this token; required when the address is not this machine alone

Point the gateway to it with SERVICE_MEMORY_URL=ws://127.0.0.1:7718
`;
const LOOPBACK = new Set(["127.0.0.1", "::1", "localhost"]);
const TOKEN_CHARS_MIN = 16;

function stopWith(problem: string): never {
  process.stderr.write(`The memory service cannot start: ${problem}\n`);
  process.exit(1);
}

function readOptions() {
  const options = {
    port: { type: "string", default: "7718" },
    data: { type: "string", default: "./data" },
    host: { type: "string", default: "127.0.0.1" },
    token: { type: "string" },
    help: { type: "boolean", short: "h", default: false },
  } as const;
  try {
    return parseArgs({ options }).values;
  } catch (error) {
    return stopWith(`${(error as Error).message}; --help lists the options`);
  }
}

const { port, data, host, token, help } = readOptions();
if (help) {
  process.stdout.write(HELP);
  process.exit(0);
}
if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535) stopWith("--port must be a number from 0 to 65535");
if (token !== undefined && token.length < TOKEN_CHARS_MIN)
  stopWith(`--token must have at least ${TOKEN_CHARS_MIN} characters`);
if (!LOOPBACK.has(host) && token === undefined)
  stopWith(`--host ${host} is open to other machines: give a --token as well`);

const server = startMemoryServer({ port: Number(port), dataDir: data, host, token: token ?? null });
process.stdout.write(`Memory service is listening on ${server.url}\n`);
for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.on(signal, async () => {
    await server.stop();
    process.exit(0);
  });
}
