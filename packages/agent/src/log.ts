/** One line per event on stderr: time, level, what happened, and the fields that matter. */
export type LogFields = Record<string, string | number | boolean | null | undefined>;

export interface Log {
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

const render = (value: LogFields[string]) =>
  typeof value === "string" && /[\s"=]/.test(value) ? JSON.stringify(value) : String(value);

export function createLog(write: (line: string) => void = (line) => process.stderr.write(line)): Log {
  const emit = (level: string, message: string, fields: LogFields = {}) => {
    const pairs = Object.entries(fields)
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => ` ${name}=${render(value)}`);
    write(`${new Date().toISOString()} ${level.padEnd(5)} ${message}${pairs.join("")}\n`);
  };
  return {
    info: (message, fields) => emit("info", message, fields),
    warn: (message, fields) => emit("warn", message, fields),
    error: (message, fields) => emit("error", message, fields),
  };
}
