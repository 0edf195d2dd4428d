import { networkInterfaces } from "node:os";
import { startDemo } from "@model-gateway/demo";
import { writePast } from "./app/demo-past.ts";
import { exposureOf, ownProcess } from "./app/exposure.ts";
import { type App, startApp } from "./app/index.ts";
import { lockAlone, warnUnlessAlone } from "./app/single-process.ts";
import { type Config, describeSettings, readConfig } from "./config.ts";
import type { InstanceLock } from "./kernel/instance-lock.ts";
import { VERSION } from "./kernel/version.ts";

const HELP = `Model gateway ${VERSION}

  npm start                      serve on http://127.0.0.1:8080, data in ./data
  SERVICE_PORT=9000 npm start    the same on another port
  npm start -- --demo            with a built-in model, memory, a user and a key, to try it out

Settings (environment variables):
${describeSettings()}
`;

const HINT = "`model-gateway doctor`, with the same settings, checks everything that a start needs";

async function main(args: readonly string[]): Promise<void> {
  if (args.includes("--help") || args.includes("-h")) {
    process.stdout.write(HELP);
    return;
  }
  if (args.includes("--version")) {
    process.stdout.write(`${VERSION}\n`);
    return;
  }
  const unknown = args.find((arg) => arg.startsWith("-") && arg !== "--demo");
  if (unknown) stopWith([`${unknown} is not an option; npm start -- --help lists them`]);

  const read = readConfig(process.env);
  if ("problems" in read) stopWith(read.problems);
  const demo = args.includes("--demo") ? startDemo(read.config) : null;
  const config = demo?.config ?? read.config;
  const { app, lock } = await serve(config).catch((error: Error) => stopWith([explain(error), HINT]));

  // Installed before the "listening" line: a supervisor may send SIGTERM as soon as it sees that.
  watchProcess(app, async () => {
    await demo?.stop();
    lock?.release();
  });

  for (const { message, remedy } of exposureOf(config, ownProcess())) app.log.warn(`${message}; ${remedy}`);

  const open = await app.rooms.accounts.registrationIsOpen();
  process.stdout.write(
    [
      `Model gateway ${VERSION} is listening on ${app.url}`,
      `  inference   ${app.url}/v1`,
      `  management  ${app.url}/api/rpc`,
      `  reference   ${app.url}/api/reference.md`,
      `  data        ${config.databaseUrl ? "Postgres" : "SQLite"}, ${config.dataDir}`,
      `  accounts    registration is ${open ? (config.registrationOpen ? "open" : "open for the first user, who becomes administrator") : "closed"}`,
      ...((await app.rooms.accounts.hasNobody()) ? [`  set up      ${setupLink(app, config)}`] : []),
      "",
    ].join("\n"),
  );

  if (demo) {
    const { text } = await demo
      .introduce(app.url, (past) => writePast(config, past))
      .catch((error: Error) => stopWith([error.message]));
    process.stdout.write(`\n${text}`);
  }
}

const addressOfThisMachine = (): string | null =>
  Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(({ family, internal }) => family === "IPv4" && !internal)?.address ?? null;

/** Where the first account is made. From another machine only this link can make it. */
function setupLink(app: App, { publicUrl, host }: Config): string {
  const everywhere = /^(0\.0\.0\.0|::)$/.test(host) ? addressOfThisMachine() : null;
  const base =
    publicUrl ?? (everywhere === null ? app.url : `${new URL(app.url).protocol}//${everywhere}:${app.port}`);
  return `${base.replace(/\/$/, "")}/#setup=${app.rooms.accounts.setupToken}`;
}

/** Lets the service outlive one request's mistake, and end in order when it is told to. */
function watchProcess(app: App, ended: () => Promise<void>): void {
  process.on("unhandledRejection", (error) => app.log.error("unhandled promise rejection", { error }));
  let stopping = false;
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    process.on(signal, async () => {
      // A second signal means: now.
      if (stopping) process.exit(1);
      stopping = true;
      app.log.info("draining", { signal });
      await app.drain();
      await ended();
      process.exit(0);
    });
  }
}

async function serve(config: Config): Promise<{ app: App; lock: InstanceLock | null }> {
  const lock = lockAlone(config);
  const app = await startApp(config);
  warnUnlessAlone(config, lock, app.log);
  return { app, lock };
}

function explain(error: Error & { code?: string }): string {
  if (error.code === "EADDRINUSE") return "the port is already in use; set SERVICE_PORT to another one";
  if (error.code === "EACCES") return `permission denied: ${error.message}`;
  return error.message;
}

function stopWith(problems: readonly string[]): never {
  process.stderr.write(
    `The service cannot start:\n${problems.map((problem) => `  - ${problem}\n`).join("")}`,
  );
  process.exit(1);
}

await main(process.argv.slice(2));
