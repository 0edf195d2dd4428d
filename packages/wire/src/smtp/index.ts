import type { Socket } from "node:net";

const tls = () => process.getBuiltinModule("node:tls");

/** Where mail is handed in, and how. */
export interface MailServer {
  host: string;
  port: number;
  /** From the first byte; otherwise STARTTLS, which only a server on this machine may lack. */
  isTls: boolean;
  user: string | null;
  password: string | null;
  /** Certificates to trust instead of the system's. */
  ca?: string;
}

export interface Mail {
  from: string;
  to: readonly string[];
  subject: string;
  text: string;
  /** The same for every attempt to send this mail. */
  id: string;
  atMs: number;
}

const SEND_MS = 30_000;
const REPLY_CHARS_MOST = 64 * 1024;
const ADDRESS = /^[^\s<>,;:"()[\]\\\p{Cc}]+@[^\s<>,;:"()[\]\\\p{Cc}]+$/u;
const WHOLE_REPLY = /^(?:\d{3}-[^\n]*\n)*(\d{3})(?: [^\n]*)?\n/;

export const isAddress = (text: string): boolean => text.length <= 254 && ADDRESS.test(text);

/** `smtps://user:password@host:465`, or `smtp://host:587`. */
export function mailServerOf(url: string): MailServer {
  const { protocol, hostname: host, port, username, password } = new URL(url);
  const isTls = protocol === "smtps:";
  return {
    host: host.replace(/^\[|\]$/g, ""),
    port: Number(port) || (isTls ? 465 : 587),
    isTls,
    user: username ? decodeURIComponent(username) : null,
    password: password ? decodeURIComponent(password) : null,
  };
}

const base64 = (text: string) => Buffer.from(text).toString("base64");

/** Texts that are not plain ASCII are written in words of at most 75 characters (RFC 2047). */
const encoded = (text: string) =>
  /^[ -~]{0,800}$/.test(text)
    ? text
    : (text.match(/.{1,10}/gsu) ?? []).map((part) => `=?utf-8?B?${base64(part)}?=`).join("\r\n ");

/** The message as it is sent. Whatever could begin another header or command is refused. */
function messageOf({ from, to, subject, text, id, atMs }: Mail): string {
  for (const address of [from, ...to])
    if (!isAddress(address)) throw new Error(`${JSON.stringify(address)} is not an email address`);
  if (/\p{Cc}/u.test(subject + id)) throw new Error("the subject of a mail must be on one line");
  return [
    `From: ${from}`,
    `To: ${to.join(", ")}`,
    `Subject: ${encoded(subject)}`,
    `Date: ${new Date(atMs).toUTCString().replace("GMT", "+0000")}`,
    `Message-ID: <${id}@${from.slice(from.lastIndexOf("@") + 1)}>`,
    "Auto-Submitted: auto-generated",
    "MIME-Version: 1.0",
    "Content-Type: text/plain; charset=utf-8",
    "Content-Transfer-Encoding: base64",
    "",
    ...(base64(text).match(/.{1,76}/g) ?? []),
    ".",
  ].join("\r\n");
}

class Talk {
  #text = "";
  #isOver: Error | null = null;
  #heard = Promise.withResolvers<void>();
  #socket!: Socket;

  use(socket: Socket): void {
    this.#socket?.removeAllListeners("data");
    this.#socket = socket;
    socket.on("data", (bytes: Buffer) => {
      this.#text += bytes.toString("latin1");
      if (this.#text.length > REPLY_CHARS_MOST) this.end(new Error("its answer is too long"));
      this.#heard.resolve();
    });
    socket.on("error", (error: Error) => this.end(error));
    socket.on("close", () => this.end(new Error("it closed the connection")));
  }

  end(error: Error): void {
    this.#isOver ??= error;
    this.#socket?.destroy();
    this.#heard.resolve();
  }

  /** Sends a line, or waits only, for an answer that begins with this digit. */
  async ask(line: string | null, wanted: "2" | "3", shown = line): Promise<string> {
    if (line !== null) this.#socket.write(`${line}\r\n`);
    for (;;) {
      const [reply, code] = WHOLE_REPLY.exec(this.#text) ?? [];
      if (reply !== undefined) {
        this.#text = this.#text.slice(reply.length);
        if (code!.startsWith(wanted)) return reply;
        throw new Error(`it answered ${reply.trim().slice(0, 300)} to ${shown ?? "the connection"}`);
      }
      if (this.#isOver) throw this.#isOver;
      await this.#heard.promise;
      this.#heard = Promise.withResolvers();
    }
  }

  /** The same connection in TLS. What came before it ended in plain text is not the server's word. */
  async secure(options: { host: string; servername: string | undefined; ca?: string }): Promise<void> {
    await this.ask("STARTTLS", "2");
    if (this.#text !== "") throw new Error("it sent text before TLS began");
    const socket = this.#socket;
    socket.removeAllListeners("data");
    this.use(tls().connect({ ...options, socket }));
  }
}

/** Hands a mail to its server; throws with the server's words when that fails. */
export async function sendMail(server: MailServer, mail: Mail): Promise<void> {
  const { host, port, user, password, ca } = server;
  const message = messageOf(mail);
  const talk = new Talk();
  const timer = setTimeout(() => talk.end(new Error(`it took longer than ${SEND_MS / 1000} s`)), SEND_MS);
  try {
    const isAddressed = /^[\d.]+$|:/.test(host);
    const secured = { host, servername: isAddressed ? undefined : host, ...(ca && { ca }) };
    talk.use(
      server.isTls
        ? tls().connect({ ...secured, port })
        : process.getBuiltinModule("node:net").connect({ host, port }),
    );
    await talk.ask(null, "2");
    const hello = `EHLO ${
      process
        .getBuiltinModule("node:os")
        .hostname()
        .replace(/[^\w.-]/g, "") || "localhost"
    }`;
    let offers = await talk.ask(hello, "2");
    const isHere = /^(localhost|127\.[\d.]+|::1)$/.test(host);
    if (!server.isTls && (/^\d{3}[ -]STARTTLS\b/im.test(offers) || !isHere)) {
      await talk.secure(secured);
      offers = await talk.ask(hello, "2");
    }
    if (user !== null && password !== null) {
      const ways = /^\d{3}[ -]AUTH[ =](.*)$/im.exec(offers)?.[1]?.toUpperCase() ?? "";
      if (/\bPLAIN\b/.test(ways))
        await talk.ask(`AUTH PLAIN ${base64(`\0${user}\0${password}`)}`, "2", "AUTH PLAIN");
      else if (/\bLOGIN\b/.test(ways)) {
        await talk.ask("AUTH LOGIN", "3");
        await talk.ask(base64(user), "3", "the user name");
        await talk.ask(base64(password), "2", "the password");
      } else throw new Error("it offers neither AUTH PLAIN nor AUTH LOGIN");
    }
    await talk.ask(`MAIL FROM:<${mail.from}>`, "2");
    for (const to of mail.to) await talk.ask(`RCPT TO:<${to}>`, "2");
    await talk.ask("DATA", "3");
    await talk.ask(message, "2", "the message");
    await talk.ask("QUIT", "2").catch(() => {});
  } finally {
    clearTimeout(timer);
    talk.end(new Error("over"));
  }
}
