import { expect, test } from "bun:test";
import { describeSettings, readConfig } from "../../src/config.ts";

const problems = (env: Record<string, string>) => {
  const read = readConfig(env);
  return "problems" in read ? read.problems : [];
};

test("defaults", () => {
  const read = readConfig({});
  expect("config" in read && read.config).toMatchObject({
    host: "127.0.0.1",
    port: 8080,
    dataDir: "./data",
    databaseUrl: null,
    registrationOpen: null,
    apiRateLimitRpm: 60,
    pointsPerUsd: 100,
    trustedProxies: [],
    corsOrigins: [],
  });
});

test("every problem is named at once", () => {
  const found = problems({
    SERVICE_PORT: "http",
    SERVICE_DATABASE_URL: "mysql://x",
    SERVICE_REGISTRATION_OPEN: "maybe",
    SERVICE_TYPO: "1",
    POINTS_PER_USD: "0",
    OTHER: "ignored",
  });
  for (const name of [
    "SERVICE_PORT",
    "SERVICE_DATABASE_URL",
    "SERVICE_REGISTRATION_OPEN",
    "SERVICE_TYPO",
    "POINTS_PER_USD",
  ]) {
    expect(found.filter((problem) => problem.startsWith(name))).toHaveLength(1);
  }
  expect(found.join()).not.toContain("OTHER");
});

test("a bad value is not repeated: it may be a secret", () => {
  const found = problems({ SERVICE_JWT_SECRET: "hunter2", SERVICE_DATABASE_URL: "hunter2" });
  expect(found).toHaveLength(2);
  expect(found.join()).not.toContain("hunter2");
});

test("an admin token is taken as it is, unless it can be guessed; an empty one is none", () => {
  const tokenOf = (text: string) => {
    const read = readConfig({ SERVICE_ADMIN_TOKEN: text });
    return "config" in read ? read.config.adminToken : read.problems;
  };
  expect(tokenOf("a secret of words")).toBe("a secret of words");
  expect(tokenOf("s3cret")).toEqual([expect.stringContaining("at least 16 characters")]);
  expect(tokenOf("")).toBeNull();
});

test("the help lists each setting with its default", () => {
  const help = describeSettings();
  for (const name of [
    "SERVICE_HOST",
    "SERVICE_DATA_DIR",
    "SERVICE_REDIS_URL",
    "POINTS_PER_USD",
    "SERVICE_TRUSTED_PROXIES",
  ]) {
    expect(help).toMatch(new RegExp(`${name}\\s+.+\\(default: .+\\)`));
  }
});
