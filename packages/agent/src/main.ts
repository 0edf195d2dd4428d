/** The program that an operator starts on a GPU machine. */
import { HELP, readSettings } from "./args.ts";
import { describeError, UsageError } from "./errors.ts";
import { createLog } from "./log.ts";
import { createNode } from "./node.ts";

// Lines are lost while the disk of the log is full or its reader is gone; otherwise that would end the program.
process.stderr.on("error", () => {});
const log = createLog();

/** The runtime reads this once, before any code runs; without it 256 requests to engines are the most at a time. */
const OUTGOING_LIMIT = "BUN_CONFIG_MAX_HTTP_REQUESTS";
/** An executable's files lie in a folder that exists only inside it. */
const isCompiled = /^(\/\$bunfs\/|[a-z]:[\\/]~BUN[\\/])/i.test(Bun.main);

/** Runs the program again with the limit lifted, and resolves with its exit status. */
function relaunch(): Promise<number> {
  const self = isCompiled ? [process.execPath] : [process.execPath, Bun.main];
  const child = Bun.spawn([...self, ...process.argv.slice(2)], {
    env: { ...process.env, [OUTGOING_LIMIT]: "65336" },
    stdio: ["inherit", "inherit", "inherit"],
    // Closes when this process is killed, which ends the program.
    ipc() {},
  });
  // A terminal sends SIGINT to both, and a second one would end the program at once.
  for (const signal of ["SIGINT", "SIGTERM"] as const)
    process.on(signal, () => (signal === "SIGINT" && process.stdin.isTTY) || child.kill(signal));
  return child.exited;
}

async function main(): Promise<number> {
  const settings = readSettings(process.argv.slice(2), process.env);
  if (!settings) {
    process.stdout.write(HELP);
    return 0;
  }
  if (process.env[OUTGOING_LIMIT] === undefined) return relaunch();
  if (settings.url.startsWith("ws://") && !settings.direct)
    log.warn("the token is sent unencrypted: use wss:// unless the gateway is on a private network");
  const node = createNode(settings, log);
  let ending = false;
  const end = () => {
    // Twice means that the operator does not want to wait; the guards end the engines then.
    if (ending) process.exit(130);
    ending = true;
    log.info("stopping the engines; their models are restored at the next start");
    void node.stop();
  };
  for (const event of ["SIGINT", "SIGTERM", "disconnect"] as const) process.on(event, end);
  log.info("node program started", {
    gateway: settings.url,
    data_dir: settings.dataDir,
    inference: settings.direct ? `directly at ${settings.host}, or through the tunnel` : "through the tunnel",
  });
  await node.run();
  log.info("stopped");
  return 0;
}

main().then(
  (code) => process.exit(code),
  (error) => {
    process.stderr.write(
      error instanceof UsageError ? `${describeError(error)}\nSee --help.\n` : `${error}\n`,
    );
    process.exit(error instanceof UsageError ? 2 : 1);
  },
);
