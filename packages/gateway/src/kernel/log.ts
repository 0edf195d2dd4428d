/** Structured logs: one line per event, JSON or readable, with secrets redacted before anything is written. */
type LogLevel = "debug" | "info" | "warn" | "error";
export type LogFields = Record<string, unknown>;

export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  with(fields: LogFields): Log;
}

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];
const SECRET_FIELD = /authorization|password|secret|token$|api_?key|cookie/i;
// Bearer values, our own keys, JWTs and credentials in URLs, anywhere in a text.
const SECRET_TEXT =
  /(bearer\s+)[^\s"',]+|service-[0-9a-f-]{36}|eyJ[\w-]+\.[\w-]+\.[\w-]+|(:\/\/[^/\s:@]+:)[^@\s/]+@/gi;
const TEXT_LENGTH_MAX = 4096;

export const redactText = (text: string): string =>
  text.replace(SECRET_TEXT, (_, bearer, userinfo) =>
    userinfo ? `${userinfo}[redacted]@` : `${bearer ?? ""}[redacted]`,
  );

function safe(value: unknown, depth = 0): unknown {
  if (typeof value === "string") return redactText(value.slice(0, TEXT_LENGTH_MAX));
  if (value instanceof Error) {
    return {
      message: redactText(value.message),
      stack: value.stack && redactText(value.stack),
      ...(value.cause ? { cause: safe(value.cause, depth + 1) } : {}),
    };
  }
  if (typeof value === "bigint") return String(value);
  if (value === null || typeof value !== "object") return value;
  if (depth > 4) return "[nested]";
  if (Array.isArray(value)) return value.slice(0, 50).map((item) => safe(item, depth + 1));
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      key,
      SECRET_FIELD.test(key) && item ? "[redacted]" : safe(item, depth + 1),
    ]),
  );
}

interface LogOptions {
  level: LogLevel;
  format: "json" | "pretty";
  write?: (line: string) => void;
}

let isGuarded = false;

/** While the log's disk is full or its reader is gone, lines are lost: an unhandled error would end the service. */
function writeToStderr(line: string): void {
  if (!isGuarded) {
    isGuarded = true;
    process.stderr.on("error", () => {});
  }
  process.stderr.write(line);
}

export function createLog({ level, format, write = writeToStderr }: LogOptions): Log {
  const threshold = LEVELS.indexOf(level);
  const make = (bound: LogFields): Log => {
    const emit = (at: LogLevel, message: string, fields?: LogFields) => {
      if (LEVELS.indexOf(at) < threshold) return;
      const extra = safe({ ...bound, ...fields }) as LogFields;
      const time = new Date().toISOString();
      write(
        format === "json"
          ? `${JSON.stringify({ time, level: at, message: redactText(message), ...extra })}\n`
          : `${time.slice(11, 23)} ${at.padEnd(5)} ${redactText(message)}${Object.keys(extra).length ? ` ${Bun.inspect(extra, { compact: true, colors: false })}` : ""}\n`,
      );
    };
    return {
      debug: (message, fields) => emit("debug", message, fields),
      info: (message, fields) => emit("info", message, fields),
      warn: (message, fields) => emit("warn", message, fields),
      error: (message, fields) => emit("error", message, fields),
      with: (fields) => make({ ...bound, ...fields }),
    };
  };
  return make({});
}

export const silentLog: Log = createLog({ level: "error", format: "json", write: () => {} });

/** For work that nobody awaits: logs a failure. */
export function inBackground(log: Log, what: string, work: Promise<unknown>): void {
  work.catch((error: unknown) => log.error(`${what} failed`, { error }));
}
