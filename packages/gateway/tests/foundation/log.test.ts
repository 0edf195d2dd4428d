import { expect, test } from "bun:test";
import { createLog } from "../../src/kernel/log.ts";

const SECRETS = {
  key: `service-${crypto.randomUUID()}`,
  jwt: "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
  password: "hunter2hunter2",
  upstream: "sk-very-secret-value",
};

test("no secret reaches the log, wherever it stands", () => {
  for (const format of ["json", "pretty"] as const) {
    const lines: string[] = [];
    const log = createLog({ level: "debug", format, write: (line) => lines.push(line) });
    log.info(`calling with Bearer ${SECRETS.upstream}`, {
      authorization: `Bearer ${SECRETS.jwt}`,
      nested: {
        api_key: SECRETS.upstream,
        list: [{ password: SECRETS.password }],
        text: `key ${SECRETS.key}`,
      },
      url: `postgres://user:${SECRETS.password}@host/db`,
      error: new Error(`bad key ${SECRETS.key}`, {
        cause: new Error(`Authorization: bearer ${SECRETS.upstream}`),
      }),
    });
    const text = lines.join("");
    for (const secret of Object.values(SECRETS)) expect(text).not.toContain(secret);
    expect(text).toContain("[redacted]");
  }
});

test("lines are JSON with level, time and bound fields, from the set level up", () => {
  const lines: string[] = [];
  const log = createLog({ level: "warn", format: "json", write: (line) => lines.push(line) }).with({
    request_id: "r1",
  });
  log.info("not shown");
  log.warn("shown", { count: 2 });
  expect(lines).toHaveLength(1);
  expect(JSON.parse(lines[0]!)).toEqual({
    time: expect.any(String),
    level: "warn",
    message: "shown",
    request_id: "r1",
    count: 2,
  });
});
