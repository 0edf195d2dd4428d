import { networkInterfaces } from "node:os";
import type { Demo } from "@model-gateway/demo";
import { warnOfExposure } from "./app/exposure.ts";
import { type App, startApp } from "./app/index.ts";
import { lockAlone, lockForWorkers, warnUnlessAlone } from "./app/single-process.ts";
import { warmUpSoon } from "./app/warm-up.ts";
import { type Config, describeSettings, readConfig } from "./config.ts";
import { createLog, type Log } from "./kernel/log.ts";
import { VERSION } from "./kernel/version.ts";

/** How the command line runs this program; it names itself in the place of a file. */
const COMMAND = "serve";
const isCommand = process.argv[1] === COMMAND;
/** How people start it, alone and with options. */
const START = isCommand ? "model-gateway serve" : "npm start";
const START_WITH = isCommand ? START : `${START} --`;
const HINT = `\`${isCommand ? "" : "npx --no "}model-gateway doctor\`, with the same settings, checks everything that a start needs`;

function help(): string {
  const starts = [
    [START, "serve on http://127.0.0.1:8080, data in ./data"],
    [`SERVICE_PORT=9000 ${START}`, "the same on another port"],
    [`${START_WITH} --workers 4`, "with four processes on that port (auto: as many as there are cores)"],
    [`${START_WITH} --demo`, "with a built-in model, memory, a user and a key, to try it out"],
  ] as const;
  const width = Math.max(...starts.map(([start]) => start.length));
  const lines = starts.map(([start, does]) => `  ${start.padEnd(width)}    ${does}`);
  return `Model gateway ${VERSION}

${lines.join("\n")}

Settings (environment variables):
${describeSettings()}
`;
}

/** Given by the supervisor to the processes that it starts. */
const WORKER_FLAG = "--worker";

async function main(args: readonly string[]): Promise<void> {
  // What only some starts need is loaded by them alone: the others are ready sooner.
  if (args.includes(WORKER_FLAG) && process.connected) {
    const { runWorker } = await import("./app/workers/worker.ts");
    return runWorker(introduction);
  }
  const options = readOptions(args);
  if (options.isHelp || options.isVersion) {
    process.stdout.write(options.isHelp ? help() : `${VERSION}\n`);
    return;
  }
  if (options.problem !== null) stopWith([`${options.problem}; ${START_WITH} --help lists the options`]);

  const read = readConfig({
    ...process.env,
    ...(options.workers !== null && { SERVICE_WORKERS: options.workers }),
  });
  if ("problems" in read) stopWith(read.problems);
  const demo = options.isDemo ? (await import("@model-gateway/demo")).startDemo(read.config) : null;
  const config = demo?.config ?? read.config;
  const serve = config.workers > 1 ? serveByWorkers : serveAlone;
  const service = await serve(config).catch((error: Error) => stopWith([explain(error), HINT]));

  // Installed before the "listening" line: a supervisor may send SIGTERM as soon as it sees that.
  watchProcess(service, demo);

  // Neither this nor the warnings load the streams of process.stdout and process.stderr before the first answer.
  // The demonstration makes the first account itself.
  print(demo ? service.introduction.replace(/^ {2}(accounts|set up) .*\n/gm, "") : service.introduction);
  if (demo) {
    const { writePast } = await import("./app/demo-past.ts");
    const { text } = await demo
      .introduce(service.url, (past) => writePast(config, past))
      .catch((error: Error) => stopWith([error.message]));
    print(`\n${text}`);
  }
}

/** The service runs even where nobody reads this any longer. */
function print(text: string): void {
  try {
    console.write(text);
  } catch {}
}

interface Options {
  isHelp: boolean;
  isVersion: boolean;
  isDemo: boolean;
  workers: string | null;
  problem: string | null;
}

function readOptions(args: readonly string[]): Options {
  const options: Options = { isHelp: false, isVersion: false, isDemo: false, workers: null, problem: null };
  for (let i = 0; i < args.length; i++) {
    const arg = args[i]!;
    if (arg === "--help" || arg === "-h") options.isHelp = true;
    else if (arg === "--version") options.isVersion = true;
    else if (arg === "--demo") options.isDemo = true;
    else if (arg === "--workers") options.workers = args[++i] ?? "";
    else if (arg.startsWith("--workers=")) options.workers = arg.slice("--workers=".length);
    else if (arg.startsWith("-")) options.problem = `${arg} is not an option`;
  }
  if (options.workers === "") options.problem = "--workers needs a number, or auto";
  return options;
}

/** The running service, in one process or in several. */
interface Service {
  url: string;
  introduction: string;
  log: Log;
  drain(): Promise<void>;
  kill(): void;
}

async function serveAlone(config: Config): Promise<Service> {
  const lock = lockAlone(config);
  const app = await startApp(config);
  warnUnlessAlone(config, lock, app.log);
  warnOfExposure(app, config);
  warmUpSoon(app, config.warmUp);
  return {
    url: app.url,
    introduction: await introduction(app, config),
    log: app.log,
    async drain() {
      await app.drain();
      lock?.release();
    },
    kill() {},
  };
}

async function serveByWorkers(config: Config): Promise<Service> {
  const { Supervisor } = await import("./app/workers/supervisor.ts");
  const lock = lockForWorkers(config);
  const log = createLog({ level: config.logLevel, format: config.logFormat });
  const supervisor = await Supervisor.start({ config, log, command: workerCommand() });
  return {
    url: supervisor.url,
    introduction: `${supervisor.introduction}  workers     ${config.workers}\n`,
    log,
    async drain() {
      await supervisor.drain();
      lock?.release();
    },
    kill: () => supervisor.kill(),
  };
}

/** This program again. An executable has its files inside. */
function workerCommand(): string[] {
  const isExecutable = Bun.main.startsWith("/$bunfs/") || Bun.main.includes("~BUN");
  return [
    process.execPath,
    ...process.execArgv,
    ...(isExecutable ? [] : [Bun.main]),
    ...(isCommand ? [COMMAND] : []),
    WORKER_FLAG,
  ];
}

async function introduction(app: App, config: Config): Promise<string> {
  const open = await app.rooms.accounts.registrationIsOpen();
  const isFirst = await app.rooms.accounts.hasNobody();
  return [
    `Model gateway ${VERSION} is listening on ${app.url}`,
    `  inference   ${app.url}/v1`,
    `  management  ${app.url}/api/rpc`,
    `  reference   ${app.url}/api/reference.md`,
    `  data        ${config.databaseUrl ? "Postgres" : "SQLite"}, ${config.dataDir}`,
    `  accounts    registration is ${open ? (isFirst ? "open; the first user becomes administrator" : "open") : "closed"}`,
    ...(isFirst ? [`  set up      ${setupLink(app, config)}`] : []),
    "",
  ].join("\n");
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
function watchProcess(service: Service, demo: Demo | null): void {
  const { log } = service;
  process.on("unhandledRejection", (error) => log.error("unhandled promise rejection", { error }));
  let stopping = false;
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    process.on(signal, async () => {
      // A second signal means: now.
      if (stopping) {
        service.kill();
        process.exit(1);
      }
      stopping = true;
      log.info("draining", { signal });
      await service.drain();
      await demo?.stop();
      process.exit(0);
    });
  }
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

void main(process.argv.slice(2));
