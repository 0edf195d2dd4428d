import { createServer, type Socket } from "node:net";
import { TLSSocket } from "node:tls";

export interface ReceivedMail {
  from: string;
  to: string[];
  /** Header lines as they came. */
  headers: string;
  text: string;
  /** Who signed in before, `user:password`. */
  signedIn: string | null;
  wasTls: boolean;
}

interface SmtpOptions {
  /** Certificate and key; without them the server has no STARTTLS. */
  tls?: { cert: string; key: string };
  /** TLS from the first byte. */
  isTls?: boolean;
  auth?: "PLAIN" | "LOGIN";
  /** Answers this command with this line instead. */
  refuse?: { command: string; reply: string };
}

/** A mail server that takes nothing that a strict one would not: order, forms, line ends, length of lines. */
export async function startSmtp({ tls, isTls = false, auth, refuse }: SmtpOptions = {}) {
  const mails: ReceivedMail[] = [];
  const commands: string[] = [];
  const sockets = new Set<Socket>();

  const serve = (socket: Socket, wasTls: boolean, isGreeted: boolean) => {
    let buffer = "";
    let state: "command" | "user" | "password" | "data" = "command";
    let signedIn: string | null = null;
    let user: string | null = null;
    let from: string | null = null;
    let to: string[] = [];
    let isKnown = false;
    const say = (line: string) => socket.write(`${line}\r\n`);
    const decoded = (text: string) => Buffer.from(text, "base64").toString();

    const command = (line: string) => {
      const verb = line.split(" ")[0]!.toUpperCase();
      commands.push(verb);
      if (refuse?.command === verb) return say(refuse.reply);
      if (verb === "EHLO") {
        isKnown = true;
        const offers = [
          ...(tls && !wasTls ? ["STARTTLS"] : []),
          ...(auth ? [`AUTH ${auth}`] : []),
          "8BITMIME",
        ];
        return ["mail.test", ...offers].forEach((offer, at) => {
          say(`250${at === offers.length ? " " : "-"}${offer}`);
        });
      }
      if (verb === "QUIT") return socket.end("221 bye\r\n");
      if (!isKnown) return say("503 say EHLO first");
      if (verb === "STARTTLS" && tls && !wasTls) {
        socket.removeAllListeners("data");
        socket.write("220 go ahead\r\n");
        return serve(new TLSSocket(socket, { isServer: true, ...tls }), true, true);
      }
      if (verb === "AUTH" && auth === "PLAIN" && line.startsWith("AUTH PLAIN ")) {
        signedIn = decoded(line.slice(11)).split("\0").slice(1).join(":");
        return say("235 welcome");
      }
      if (verb === "AUTH" && auth === "LOGIN" && line === "AUTH LOGIN") {
        state = "user";
        return say("334 VXNlcm5hbWU6");
      }
      if (auth && signedIn === null) return say("530 sign in first");
      const path = /^(?:MAIL FROM|RCPT TO):<([^<>\s]+@[^<>\s]+)>$/.exec(line)?.[1];
      if (verb === "MAIL" && path && from === null) from = path;
      else if (verb === "RCPT" && path && from !== null) to.push(path);
      else if (verb === "DATA" && to.length > 0) {
        state = "data";
        return say("354 end with a dot");
      } else return say("503 not now, or not like this");
      say("250 ok");
    };

    const take = (line: string) => {
      if (state === "user") {
        user = decoded(line);
        state = "password";
        return say("334 UGFzc3dvcmQ6");
      }
      if (state !== "password") return command(line);
      signedIn = `${user}:${decoded(line)}`;
      state = "command";
      say("235 welcome");
    };

    const receive = (message: string) => {
      const [headers = "", body = ""] = message.split(/\r\n\r\n(.*)/s);
      if (/[^\r]\n|\r[^\n]/.test(message) || message.split("\r\n").some((line) => line.length > 998))
        return say("550 bare line end, or a line that is too long");
      mails.push({ from: from!, to, headers, text: decoded(body), signedIn, wasTls });
      [state, from, to] = ["command", null, []];
      say("250 taken");
    };

    socket.on("error", () => {});
    socket.on("data", (bytes: Buffer) => {
      buffer += bytes.toString("latin1");
      for (;;) {
        const mark = state === "data" ? "\r\n.\r\n" : "\r\n";
        const end = buffer.indexOf(mark);
        if (end < 0) return;
        const piece = buffer.slice(0, end);
        buffer = buffer.slice(end + mark.length);
        if (state === "data") receive(piece);
        else take(piece);
      }
    });
    if (!isGreeted) say("220 mail.test");
  };

  const server = createServer((socket) => {
    sockets.add(socket);
    if (!isTls) return serve(socket, false, false);
    serve(new TLSSocket(socket, { isServer: true, ...tls! }), true, false);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  return {
    port,
    mails,
    commands,
    stop: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
