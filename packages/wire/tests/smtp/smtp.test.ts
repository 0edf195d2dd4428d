import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startSmtp } from "@model-gateway/testing/smtp.ts";
import { type Mail, type MailServer, mailServerOf, sendMail } from "../../src/smtp/index.ts";

const openssl = Bun.which("openssl");
const dir = mkdtempSync(join(tmpdir(), "smtp-"));
let tls: { cert: string; key: string };
let server: Awaited<ReturnType<typeof startSmtp>>;
beforeAll(() => {
  if (!openssl) return;
  const [key, cert] = [join(dir, "key"), join(dir, "cert")];
  Bun.spawnSync(
    [
      ...[openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
      ...["-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"],
      ...["-addext", "subjectAltName=DNS:localhost"],
    ],
    { stderr: "ignore" },
  );
  tls = { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") };
});
afterEach(() => server?.stop());
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const MAIL: Mail = {
  from: "gateway@example.com",
  to: ["ada@example.com", "bob@example.com"],
  subject: "rack ist weg – übel",
  text: "Zeile 1\n.\nZeile 3 ü\n".repeat(200),
  id: "0199",
  atMs: 0,
};
const hand = (mail: Partial<Mail> = {}, to: Partial<MailServer> = {}) =>
  sendMail(
    { host: "localhost", port: server.port, isTls: false, user: null, password: null, ...to },
    { ...MAIL, ...mail },
  );

test("a mail arrives as it was written, at everyone it is for", async () => {
  server = await startSmtp();
  await hand();
  expect(server.mails).toEqual([
    {
      from: MAIL.from,
      to: [...MAIL.to],
      headers: expect.stringContaining("Message-ID: <0199@example.com>"),
      text: MAIL.text,
      signedIn: null,
      wasTls: false,
    },
  ]);
  const subject = /Subject: ((?:=\?utf-8\?B\?[\w+/=]+\?=(?:\r\n )?)+)/.exec(server.mails[0]!.headers)![1]!;
  const words = [...subject.matchAll(/B\?([\w+/=]+)\?=/g)].map(([, word]) => Buffer.from(word!, "base64"));
  expect(Buffer.concat(words).toString()).toBe(MAIL.subject);
});

describe.if(openssl !== null)("with TLS", () => {
  test.each(["PLAIN", "LOGIN"] as const)("STARTTLS and AUTH %s", async (auth) => {
    server = await startSmtp({ tls, auth });
    await hand({}, { user: "ada", password: "p:ä ss", ca: tls.cert });
    expect(server.mails).toMatchObject([{ signedIn: "ada:p:ä ss", wasTls: true }]);
  });

  test("from the first byte", async () => {
    server = await startSmtp({ tls, isTls: true });
    await hand({}, { isTls: true, ca: tls.cert });
    expect(server.mails).toMatchObject([{ wasTls: true }]);
  });

  test.each([true, false])(
    "a certificate that nobody vouches for gets no mail (from the first byte: %p)",
    async (isTls) => {
      server = await startSmtp({ tls, isTls });
      await expect(hand({}, { isTls })).rejects.toThrow(/self.signed|certificate/i);
      expect(server.mails).toEqual([]);
      expect(server.commands).not.toContain("MAIL");
    },
  );
});

test("what could begin another header or command is refused before the server hears of it", async () => {
  server = await startSmtp();
  for (const mail of [
    { subject: "x\r\nBcc: eve@example.com" },
    { subject: "x\nX: y" },
    { from: "a@example.com>\r\nRCPT TO:<eve@example.com" },
    { to: ["a@example.com, eve@example.com"] },
    { to: ["a b@example.com"] },
    { id: "x>\r\nX: y" },
  ])
    await expect(hand(mail)).rejects.toThrow(/is not an email address|must be on one line/);
  expect(server.commands).toEqual([]);
});

test("a refusal is told in the server's words, without the password", async () => {
  server = await startSmtp({ refuse: { command: "RCPT", reply: "550 no such user" } });
  await expect(hand()).rejects.toThrow("it answered 550 no such user to RCPT TO:<ada@example.com>");
  server.stop();
  server = await startSmtp({ auth: "PLAIN", refuse: { command: "AUTH", reply: "535 wrong" } });
  await expect(hand({}, { user: "u", password: "secret" })).rejects.toThrow(
    "it answered 535 wrong to AUTH PLAIN",
  );
});

test("a server that closes or talks too much is left", async () => {
  const answering = (text: string) =>
    new Promise<{ port: number; stop(): void }>((resolve) => {
      const plain = createServer((socket) => {
        socket.on("error", () => {});
        socket.end(text);
      });
      plain.listen(0, "127.0.0.1", () =>
        resolve({ port: (plain.address() as { port: number }).port, stop: () => plain.close() }),
      );
    });
  for (const [text, words] of [
    ["220 hi\r\n", "it closed the connection"],
    ["220-x\r\n".repeat(20_000), "its answer is too long"],
    ["nonsense\r\n", "it closed the connection"],
  ] as const) {
    const odd = await answering(text);
    await expect(hand({}, { port: odd.port })).rejects.toThrow(words);
    odd.stop();
  }
});

test("addresses of servers", () => {
  expect(mailServerOf("smtps://ada%40x:p%3Aw@mail.example.com")).toEqual({
    host: "mail.example.com",
    port: 465,
    isTls: true,
    user: "ada@x",
    password: "p:w",
  });
  expect(mailServerOf("smtp://[::1]:2525")).toMatchObject({
    host: "::1",
    port: 2525,
    isTls: false,
    user: null,
  });
});
