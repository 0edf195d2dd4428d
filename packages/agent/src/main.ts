/** The program that an operator starts on a GPU machine. */
import { HELP, readSettings } from "./args.ts";
import { describeError, UsageError } from "./errors.ts";
import { createLog } from "./log.ts";
import { createNode } from "./node.ts";

// Lines are lost while the disk of the log is full or its reader is gone; otherwise that would end the program.
process.stderr.on("error", () => {});
const log = createLog();

async function main(): Promise<number> {
  const settings = readSettings(process.argv.slice(2), process.env);
  if (!settings) {
    process.stdout.write(HELP);
    return 0;
  }
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
  for (const event of ["SIGINT", "SIGTERM"] as const) process.on(event, end);
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
