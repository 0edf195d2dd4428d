import { expect, test } from "bun:test";
import { availableParallelism } from "node:os";
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

test("an admin token is taken as it is, of any length; an empty one is none", () => {
  const tokenOf = (text: string) => {
    const read = readConfig({ SERVICE_ADMIN_TOKEN: text });
    return "config" in read ? read.config.adminToken : read.problems;
  };
  expect(tokenOf("a secret of words")).toBe("a secret of words");
  expect(tokenOf("s3cret")).toBe("s3cret");
  expect(tokenOf("")).toBeNull();
});

test("settings of the sign-in provider that do not fit together stop the start", () => {
  const oidc = {
    SERVICE_OIDC_ISSUER: "https://login.example.com",
    SERVICE_OIDC_CLIENT_ID: "gateway",
    SERVICE_PUBLIC_URL: "https://models.example.com",
  };
  expect(problems(oidc)).toEqual([]);
  for (const [env, said] of [
    [{ ...oidc, SERVICE_OIDC_CLIENT_ID: "" }, "set both or neither"],
    [{ ...oidc, SERVICE_PUBLIC_URL: "" }, "SERVICE_PUBLIC_URL"],
    [{ ...oidc, SERVICE_OIDC_ISSUER: "http://login.example.com" }, "https://"],
    [{ ...oidc, SERVICE_OIDC_ADMIN: "groups" }, "claim=value"],
    [{ ...oidc, SERVICE_OIDC_SCOPES: "email" }, "openid"],
    [{ ...oidc, SERVICE_OIDC_CLIENT_SECRET_FILE: "/no/such/file" }, "SERVICE_OIDC_CLIENT_SECRET_FILE"],
    [{ SERVICE_PASSWORD_SIGN_IN: "false" }, "nobody could sign in"],
  ] as [Record<string, string>, string][]) {
    const found = problems(env);
    expect(found).toHaveLength(1);
    expect(found[0]).toContain(said);
  }
  const read = readConfig({ ...oidc, SERVICE_OIDC_EMAIL_DOMAINS: "@Example.com, b.example" });
  expect("config" in read && read.config.oidcEmailDomains).toEqual(["example.com", "b.example"]);
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

test("workers: a number, or one for each core", () => {
  const workers = (text: string) => {
    const read = readConfig({ SERVICE_WORKERS: text });
    return "config" in read ? read.config.workers : read.problems;
  };
  if (process.platform === "linux")
    expect([workers("4"), workers("auto")]).toEqual([4, Math.min(64, availableParallelism())]);
  expect(workers("1")).toBe(1);
  for (const bad of ["0", "-1", "65", "2.5", "many", "1e3"])
    expect(workers(bad)).toEqual([expect.stringContaining("SERVICE_WORKERS: ")]);
});
