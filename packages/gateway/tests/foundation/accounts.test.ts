import { describe, expect, spyOn, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { inOneProcess } from "@model-gateway/testing/deployment.ts";
import { bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { SignJWT, UnsecuredJWT } from "jose";

async function withGateway(
  options: Parameters<typeof bootGateway>[0],
  work: (gateway: TestGateway) => Promise<void>,
) {
  const gateway = await bootGateway(options);
  try {
    await work(gateway);
  } finally {
    await gateway.stop();
  }
}
const account = (name: string) => ({ email: `${name}@example.com`, password: PASSWORD });

onEachDatabase("accounts", (fresh) => {
  test("register, log in, refresh, me; and nothing secret in any answer", async () => {
    const { options, drop } = await fresh();
    await withGateway({ config: options }, async ({ rpc, call }) => {
      const registered = await rpc("auth.register", { ...account("Ada"), name: "Ada L" });
      expect(registered).toEqual({
        access_token: expect.any(String),
        refresh_token: expect.any(String),
        token_type: "Bearer",
        expires_in: 900,
        user: { id: expect.any(String), email: "ada@example.com", name: "Ada L", is_admin: true },
      });
      const loggedIn = await rpc("auth.login", { email: " ADA@example.com ", password: PASSWORD });
      expect(loggedIn.user).toEqual(registered.user);
      const refreshed = await rpc("auth.refresh", { refresh_token: loggedIn.refresh_token });
      expect(refreshed.refresh_token).not.toBe(loggedIn.refresh_token);
      const me = await rpc("auth.me", {}, refreshed.access_token);
      expect(me).toEqual({ id: registered.user.id, email: "ada@example.com", name: "Ada L" });
      const texts = JSON.stringify([
        registered,
        loggedIn,
        refreshed,
        me,
        await call("auth.register", account("ada")),
      ]);
      expect(texts).not.toContain(PASSWORD);
      expect(texts).not.toContain("argon2");
      expect(texts).not.toContain("password_hash");
    });
    await drop();
  });

  test("of many first registrations at once exactly one becomes the administrator", async () => {
    const { options, drop } = await fresh();
    await withGateway({ config: options }, async ({ rpc }) => {
      const all = await Promise.all(["a", "b", "c", "d"].map((name) => rpc("auth.register", account(name))));
      expect(all.filter(({ user }) => user.is_admin)).toHaveLength(1);
    });
    await drop();
  });

  test("the same email at once: one account", async () => {
    const { options, drop } = await fresh();
    await withGateway({ config: options }, async ({ call }) => {
      const all = await Promise.all([1, 2, 3].map(() => call("auth.register", account("same"))));
      expect(all.filter(({ result }) => result)).toHaveLength(1);
      expect(all.find(({ error }) => error)?.error.message).toContain("exists already");
    });
    await drop();
  });

  test("a refresh token works once; its reuse ends the whole family", async () => {
    const { options, drop } = await fresh();
    await withGateway({ config: options }, async ({ rpc, call }) => {
      const first = await rpc("auth.register", account("ada"));
      const second = await rpc("auth.refresh", { refresh_token: first.refresh_token });
      expect((await call("auth.refresh", { refresh_token: first.refresh_token })).error.code).toBe(-32005);
      expect((await call("auth.refresh", { refresh_token: second.refresh_token })).error.code).toBe(-32005);
      // Another sign-in is another family.
      const other = await rpc("auth.login", account("ada"));
      expect((await rpc("auth.refresh", { refresh_token: other.refresh_token })).access_token).toBeString();
    });
    await drop();
  });

  test("of concurrent uses of one refresh token exactly one succeeds", async () => {
    const { options, drop } = await fresh();
    await withGateway({ config: options }, async ({ rpc, call }) => {
      const { refresh_token } = await rpc("auth.register", account("ada"));
      const all = await Promise.all(Array.from({ length: 5 }, () => call("auth.refresh", { refresh_token })));
      expect(all.filter(({ result }) => result)).toHaveLength(1);
    });
    await drop();
  });
});

describe("registration", () => {
  test("unset: open until the first user exists", () =>
    withGateway({ config: { registrationOpen: null } }, async ({ rpc, call }) => {
      expect((await rpc("auth.register", account("first"))).user.is_admin).toBe(true);
      const { error } = await call("auth.register", account("second"));
      expect([error.code, error.message]).toEqual([
        -32000,
        "Registration is closed; ask an administrator, who can invite you or open it under Settings",
      ]);
    }));
  test("unset and two at once: one account, and it is the administrator's", () =>
    withGateway({ config: { registrationOpen: null } }, async ({ call }) => {
      const all = await Promise.all(["a", "b", "c"].map((name) => call("auth.register", account(name))));
      expect(all.filter(({ result }) => result?.user.is_admin)).toHaveLength(1);
      expect(all.filter(({ error }) => error)).toHaveLength(2);
    }));
  test("closed: even for the first user", () =>
    withGateway({ config: { registrationOpen: false } }, async ({ call }) => {
      expect((await call("auth.register", account("first"))).error.code).toBe(-32000);
    }));
  test("wrong fields are named", () =>
    withGateway({}, async ({ call }) => {
      const cases: [Record<string, unknown>, string][] = [
        [{ email: "no address", password: PASSWORD }, "email"],
        [{ email: 5, password: PASSWORD }, "email"],
        [{ email: "a@b.io", password: "short" }, "password"],
        [{ email: "a@b.io", password: "x".repeat(129) }, "password"],
        [{ email: "a@b.io" }, "password"],
        [{ email: "a@b.io", password: PASSWORD, name: "" }, "name"],
        [{ email: "a@b.io", password: PASSWORD, name: {} }, "name"],
        [{ email: `${"x".repeat(300)}@b.io`, password: PASSWORD }, "email"],
      ];
      for (const [params, field] of cases) {
        const { error } = await call("auth.register", params);
        expect([error.code, error.data?.fields]).toEqual([-32602, [field]]);
      }
    }));
});

describe("login", () => {
  test("an unknown account and a wrong password get the same answer", () =>
    withGateway({}, async ({ call, rpc }) => {
      await rpc("auth.register", account("ada"));
      const wrong = await call("auth.login", { email: "ada@example.com", password: "wrong password" });
      const unknown = await call("auth.login", { email: "nobody@example.com", password: "wrong password" });
      expect(wrong.error).toEqual(unknown.error);
      expect(wrong.error.code).toBe(-32005);
    }));

  test("takes the same work whoever is named: one comparison, with a hash of the same cost", () =>
    withGateway({}, async ({ call, rpc }) => {
      const register = (name: string) =>
        rpc("auth.register", { ...account(name), password: "a password of its own" });
      const admin = (await register("ada")).access_token;
      const reset = (await register("reset")).user.id;
      const disabled = (await register("disabled")).user.id;
      await rpc("users.password.reset", { user_id: reset }, admin);
      await rpc("users.update", { user_id: disabled, disabled: true }, admin);
      const verify = spyOn(Bun.password, "verify");
      try {
        for (const name of ["ada", "nobody", "reset", "disabled"]) {
          verify.mockClear();
          const { error } = await call("auth.login", { ...account(name), password: "wrong password" });
          expect([name, error]).toEqual([name, { code: -32005, message: "Email or password is wrong" }]);
          const hashes = verify.mock.calls.map(([, hash]) => String(hash).split("$").slice(0, 4).join("$"));
          expect([name, hashes]).toEqual([name, ["$argon2id$v=19$m=19456,t=2,p=1"]]);
        }
      } finally {
        verify.mockRestore();
      }
    }));

  // Several processes count by a clock of their own.
  inOneProcess("is limited per address and account, then per address, and opens again", async () => {
    const clock = new ManualClock();
    await withGateway({ overrides: { clock } }, async ({ call, rpc }) => {
      await rpc("auth.register", account("ada"));
      const attempt = async (email: string) =>
        (await call("auth.login", { email, password: "wrong password" })).error;
      for (let i = 0; i < 5; i++) expect((await attempt("ada@example.com")).code).toBe(-32005);
      const limited = await attempt("ada@example.com");
      expect([limited.code, limited.data?.retry_after]).toEqual([-32000, 60]);
      // The right password does not help before the minute is over.
      expect((await call("auth.login", account("ada"))).error.code).toBe(-32000);
      for (let i = 0; i < 13; i++) expect((await attempt(`user${i}@example.com`)).code).toBe(-32005);
      expect((await attempt("another@example.com")).code).toBe(-32000);
      clock.advance(60_000);
      expect((await call("auth.login", account("ada"))).result.user.email).toBe("ada@example.com");
    });
  });
});

describe("access tokens", () => {
  const secret = "a test secret of more than thirty-two characters";
  const key = new TextEncoder().encode(secret);
  const claims = (sub: string) =>
    new SignJWT()
      .setSubject(sub)
      .setIssuer("model-gateway")
      .setIssuedAt()
      .setExpirationTime("10m")
      .setJti("1");

  test("only our own, unexpired HS256 tokens of existing users are accepted", () =>
    withGateway({ config: { jwtSecret: secret } }, async ({ rpc, call }) => {
      const { user, access_token } = await rpc("auth.register", account("ada"));
      expect((await rpc("auth.me", {}, access_token)).id).toBe(user.id);
      const good = await claims(user.id).setProtectedHeader({ alg: "HS256" }).sign(key);
      expect((await rpc("auth.me", {}, good)).id).toBe(user.id);

      const [header, payload, signature] = access_token.split(".") as [string, string, string];
      const forged = {
        "alg none": new UnsecuredJWT()
          .setSubject(user.id)
          .setIssuer("model-gateway")
          .setIssuedAt()
          .setExpirationTime("10m")
          .setJti("1")
          .encode(),
        "another key": await claims(user.id)
          .setProtectedHeader({ alg: "HS256" })
          .sign(new TextEncoder().encode("x".repeat(40))),
        "another algorithm": await claims(user.id)
          .setProtectedHeader({ alg: "HS512" })
          .sign(new TextEncoder().encode("y".repeat(64))),
        "HS512 with our key": await claims(user.id)
          .setProtectedHeader({ alg: "HS512" })
          .sign(new TextEncoder().encode(secret.padEnd(64))),
        expired: await claims(user.id)
          .setExpirationTime("-1m")
          .setProtectedHeader({ alg: "HS256" })
          .sign(key),
        "another issuer": await claims(user.id)
          .setIssuer("someone")
          .setProtectedHeader({ alg: "HS256" })
          .sign(key),
        "no expiry": await new SignJWT()
          .setSubject(user.id)
          .setIssuer("model-gateway")
          .setIssuedAt()
          .setJti("1")
          .setProtectedHeader({ alg: "HS256" })
          .sign(key),
        "an unknown user": await claims(crypto.randomUUID()).setProtectedHeader({ alg: "HS256" }).sign(key),
        "a changed payload": [
          header,
          // Another first digit, whichever it has.
          btoa(
            atob(payload).replace(/"sub":"(.)/, (_, first) => `"sub":"${first === "0" ? "1" : "0"}`),
          ).replaceAll("=", ""),
          signature,
        ].join("."),
        "a cut signature": access_token.slice(0, -2),
        "an API key": `service-${crypto.randomUUID()}`,
        "a huge value": "x".repeat(10_000),
        "an SQL string": "' OR 1=1 --",
      };
      for (const [title, token] of Object.entries(forged)) {
        const answer = await call("auth.me", {}, token);
        expect([title, answer.error?.code]).toEqual([title, -32005]);
      }
    }));

  test("live 15 minutes; refresh tokens 30 days", async () => {
    const clock = new ManualClock();
    await withGateway({ overrides: { clock } }, async ({ rpc, call }) => {
      const session = await rpc("auth.register", account("ada"));
      clock.advance(15 * 60_000 - 1_000);
      expect((await call("auth.me", {}, session.access_token)).result).toBeDefined();
      clock.advance(2_000);
      expect((await call("auth.me", {}, session.access_token)).error.code).toBe(-32005);
      clock.jump(30 * 24 * 3_600_000);
      expect((await call("auth.refresh", { refresh_token: session.refresh_token })).error.code).toBe(-32005);
    });
  });

  inOneProcess(
    "survive a restart, because the signing key is kept in the data directory with mode 0600",
    async () => {
      const first = await bootGateway();
      const { access_token } = await first.rpc("auth.register", account("ada"));
      await first.app.stop();
      const second = await bootGateway({ dataDir: first.dataDir });
      expect((await second.rpc("auth.me", {}, access_token)).email).toBe("ada@example.com");
      const { statSync } = await import("node:fs");
      expect(statSync(`${first.dataDir}/jwt-secret`).mode & 0o777).toBe(0o600);
      await second.stop();
    },
  );
});
