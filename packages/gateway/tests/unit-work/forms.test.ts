/** What the gateway reads from a form is what every server behind it reads: nothing else is sent. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { worker } from "@model-gateway/testing/work.ts";
import fc from "fast-check";
import { ServiceError } from "../../src/kernel/errors.ts";
import { FormPayload } from "../../src/rooms/inference/unit-work/form.ts";
import { deployedBefore, dialRaw, serveTunnel } from "../agents/support.ts";
import { FORM_READERS, type ReadField } from "../support/form-readers.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());
beforeEach(() => bench.upstream.answer(worker));

const send = (contentType: string, body: string | Buffer): Promise<Response> =>
  fetch(`${bench.url}/v1/audio/transcriptions`, {
    method: "POST",
    headers: { authorization: `Bearer ${bench.key}`, "content-type": contentType },
    body: new Uint8Array(typeof body === "string" ? Buffer.from(body, "latin1") : body),
  });

const PLAIN = "multipart/form-data; boundary=A";
const form = (parts: readonly string[], boundary = "A"): string =>
  `${parts.map((part) => `--${boundary}\r\n${part}\r\n`).join("")}--${boundary}--\r\n`;
const text = (name: string, value: string): string =>
  `Content-Disposition: form-data; name="${name}"\r\n\r\n${value}`;
const file = (content = "x", more = ""): string =>
  `Content-Disposition: form-data; name="file"; filename="a.mp3"${more}\r\nContent-Type: audio/mpeg\r\n\r\n${content}`;

/** The models that each server finds in a form: the first line of each, texts and files. */
const modelsRead = (contentType: string, body: string): string =>
  FORM_READERS.map(([, read]) => {
    const fields = read(contentType, Buffer.from(body, "latin1"));
    const models = fields?.filter(({ name }) => name === "model").map(({ value }) => value.split("\r\n")[0]);
    return models ? models.sort().join(",") : "refused";
  }).join(" | ");

describe("what a server could read in another way is refused, and nothing is sent", () => {
  const TWO_FORMS = form([
    text("model", "m"),
    file(`${form([text("model", "dear"), file("x".repeat(100))], "Z")}`),
  ]);
  type Misread = [what: string, reads: string, contentType: string, body: string];
  const header = (parameters: string, reads: string): Misread => [
    parameters,
    reads,
    `multipart/form-data; ${parameters}`,
    TWO_FORMS,
  ];
  const part = (what: string, reads: string, ...parts: string[]): Misread => [
    what,
    reads,
    PLAIN,
    form([...parts, file()]),
  ];
  // What Go, Werkzeug 3.1.9 and Django 5.2.17 take for the model.
  const misread: Misread[] = [
    header("boundary=A; boundary*0=Z", "dear | dear | m"),
    header("boundary=A; boundary*0*=utf-8''Z", "dear | dear | m"),
    header("boundary=A; boundary*=utf-8''Z", "dear | dear | dear,m"),
    header("boundary*=utf-8''Z; boundary=A", "dear | m | m"),
    header("boundary=A; boundary =Z", "refused | m | dear,m"),
    header("boundary=A; boundary= Z", "refused | m | dear,m"),
    header("boundary=A; boundary=Z", "refused | dear | dear,m"),
    header("boundary=A; Boundary=Z", "refused | dear | dear,m"),
    header('boundary="A"; x="; boundary=Z"; boundary*0="Z"', "dear | dear | m"),
    header("boundary*0=Z", "dear | dear | refused"),
    part(
      "name*",
      "dear,m | dear,m | dear,m",
      `Content-Disposition: form-data; name="note"; name*=utf-8''model\r\n\r\ndear`,
      text("model", "m"),
    ),
    part(
      "name*0",
      "dear,m | dear,m | m",
      `Content-Disposition: form-data; name="note"; name*0=model\r\n\r\ndear`,
      text("model", "m"),
    ),
    part(
      "two names",
      "m | dear,m | dear,m",
      `Content-Disposition: form-data; name="note"; name="model"\r\n\r\ndear`,
      text("model", "m"),
    ),
    part("a name with a space", "m | m | dear,m", text("model", "m"), text("model ", "dear")),
    part(
      "a name in a file's name",
      "m | dear,m | m",
      text("model", "m"),
      `Content-Disposition: form-data; name="note"; filename="a\\\\"; name="model"\r\n\r\ndear`,
    ),
    part("a text twice", "dear,m | dear,m | dear,m", text("model", "m"), text("model", "dear")),
    part(
      "a folded header",
      "dear,m | dear,m | m",
      text("model", "m"),
      `Content-Disposition: form-data;\r\n name="model"\r\n\r\ndear`,
    ),
    part(
      "a header twice",
      "dear,m | dear,m | m",
      text("model", "m"),
      `Content-Disposition: form-data; name="model"\r\n${text("note", "dear")}`,
    ),
    part(
      "a space before the colon",
      "m | dear,m | m",
      text("model", "m"),
      `Content-Disposition : form-data; name="model"\r\n\r\ndear`,
    ),
    part(
      "an encoded text",
      "ZGVhcg== | ZGVhcg== | dear",
      `Content-Transfer-Encoding: base64\r\n${text("model", Buffer.from("dear").toString("base64"))}`,
    ),
    part(
      "a boundary inside a line",
      "m | m | dear,m",
      text("model", "m"),
      text("note", `x--A\r\n${text("model", "dear")}`),
    ),
    part(
      "a boundary after a line feed",
      "m | dear,m | m",
      text("model", "m"),
      text("note", `x\n--A\n${text("model", "dear").replaceAll("\r\n", "\n")}`),
    ),
    part(
      "an empty file name",
      "dear,m | dear,m | dear,m",
      text("model", "m"),
      `Content-Disposition: form-data; name="model"; filename=""\r\n\r\ndear`,
    ),
    ["something before the form", " |  | dear", PLAIN, `--A--\r\n${form([text("model", "dear"), file()])}`],
    [
      "a form after the form",
      "m | m | dear,m",
      PLAIN,
      `${form([text("model", "m"), file()])}${form([text("model", "dear"), file()])}`,
    ],
  ];

  test.each(misread)("%s", async (_what, reads, contentType, body) => {
    const before = bench.upstream.requests.length;
    const answer = await send(contentType, body);
    expect([answer.status, bench.upstream.requests.length - before]).toEqual([400, 0]);
    expect(((await answer.json()) as { error: { message: string } }).error.message.length).toBeGreaterThan(
      20,
    );
    expect(modelsRead(contentType, body)).toBe(reads);
  });

  test("so is what no server needs", async () => {
    const bad: [string, string | Buffer][] = [
      ["multipart/form-data", form([text("model", "m"), file()])],
      ["multipart/form-data; boundary=A; charset=utf-8", form([text("model", "m"), file()])],
      ["multipart/form-data; boundary=A;", form([text("model", "m"), file()])],
      ["multipart/form-data; boundary=", form([text("model", "m"), file()])],
      [PLAIN, form([text("model", "m"), text("[model]", "dear"), file()])],
      [PLAIN, form([text("model", "m"), text("model[a][b]", "dear"), file()])],
      [PLAIN, form([text("model", "m"), text("file", "dear"), file()])],
      [PLAIN, form([text("model", "m"), text("prompt", "\xff\xfe"), file()])],
      [PLAIN, form([text("model", "m"), file("x", "; filename*=utf-8''%ff")])],
      [PLAIN, form([text("model", "m"), file("x", "; filename*=utf-16''a")])],
      [PLAIN, form([text("model", "m"), file("x", `; filename="b.mp3"`)])],
    ];
    const before = bench.upstream.requests.length;
    for (const [contentType, body] of bad)
      expect([body, (await send(contentType, body)).status]).toEqual([body, 400]);
    expect(bench.upstream.requests.length).toBe(before);
    const { error } = (await (await send("multipart/form-data; boundary=A; boundary*0=Z", "")).json()) as {
      error: { message: string };
    };
    expect(error.message).toContain("`multipart/form-data; boundary=…`");
  });
});

describe("what is sent is written from what was read", () => {
  const SOUND = 'ID3\r\n--A\xff\x00"; name="model"\n';
  const fields = (...more: ReadField[]): ReadField[] => [
    { name: "model", isFile: false, value: "m" },
    ...more,
    { name: "file", isFile: true, value: SOUND.replace("--A", "--B") },
  ];
  const sound = (disposition: string, more = ""): string =>
    `Content-Disposition: form-data; ${disposition}\r\n${more}\r\n${SOUND.replace("--A", "--B")}`;

  const read: [string, string, ReadField[], string][] = [
    [
      "a plain form",
      form([text("model", "m"), sound('name="file"; filename="a.mp3"')]),
      fields(),
      'filename="a.mp3"',
    ],
    [
      "unquoted names, as .NET writes them",
      form([
        "Content-Disposition: form-data; name=model\r\n\r\nm",
        sound("name=file; filename=a.mp3; filename*=utf-8''a.mp3"),
      ]),
      fields(),
      'filename="a.mp3"',
    ],
    [
      "another order",
      form([text("model", "m"), sound('filename="a.mp3"; name="file"')]),
      fields(),
      'name="file"; filename="a.mp3"',
    ],
    [
      "a file's name with a quote and another name",
      form([text("model", "m"), sound('name="file"; filename="C:\\\\x\\\\a\\"; name=\\"model.mp3"')]),
      fields(),
      'filename="a__ name=_model.mp3"',
    ],
    [
      "a file's name in percent signs",
      form([text("model", "m"), sound('name="file"; filename="a%22; name=%22model%22.mp3"')]),
      fields(),
      'filename="a_22_ name=_22model_22.mp3"',
    ],
    [
      "a file's name in another script",
      form([text("model", "m"), sound("name=\"file\"; filename*=UTF-8''%D0%B0.mp3")]),
      fields(),
      'filename="\u0430.mp3"',
    ],
    [
      "a file without a name",
      form([text("model", "m"), sound('name="file"; filename=""')]),
      fields(),
      'filename="file"',
    ],
    [
      "a file that is named as a folder",
      form([text("model", "m"), sound('name="file"; filename="../.."')]),
      fields(),
      'filename="file"',
    ],
    [
      "a file that says it is a form",
      form([
        text("model", "m"),
        sound(
          'name="file"; filename="a"',
          "Content-Type: multipart/mixed; boundary=B\r\nContent-Length: 1\r\n",
        ),
      ]),
      fields(),
      'filename="a"',
    ],
    [
      "a text of another type",
      form([
        `Content-Type: text/plain; charset=utf-16\r\n${text("model", "m")}`,
        sound('name="file"; filename="a"'),
      ]),
      fields(),
      'filename="a"',
    ],
    [
      "texts as they are",
      form([
        text("model", "m"),
        text("prompt", " \u00c3\u00a4\r\n\r\n--"),
        text("timestamp_granularities[]", "word"),
        text("timestamp_granularities[]", "segment"),
        sound('name="file"; filename="a"'),
      ]),
      fields(
        { name: "prompt", isFile: false, value: " \u00c3\u00a4\r\n\r\n--" },
        { name: "timestamp_granularities[]", isFile: false, value: "word" },
        { name: "timestamp_granularities[]", isFile: false, value: "segment" },
      ),
      'filename="a"',
    ],
  ];

  test.each(read)("%s", async (_what, body, expected, disposition) => {
    const before = bench.upstream.requests.length;
    expect((await send(PLAIN, body)).status).toBe(200);
    expect(bench.upstream.requests.length).toBe(before + 1);
    const { headers, bytes } = bench.upstream.requests.at(-1)!;
    const contentType = headers["content-type"]!;
    expect(contentType).toMatch(/^multipart\/form-data; boundary=[\w-]{36,70}$/);
    expect(headers["content-length"]).toBe(String(bytes.length));
    for (const [reader, readForm] of FORM_READERS)
      expect([reader, readForm(contentType, bytes)]).toEqual([reader, expected]);
    const sent = bytes.toString();
    expect(sent).toContain(disposition);
    for (const unsent of ["--A\r", "multipart/mixed", "utf-16", "Content-Length"])
      expect(sent).not.toContain(unsent);
  });

  test("the boundary is another each time", async () => {
    const body = form([text("model", "m"), file()]);
    const types = new Set<string>();
    for (let each = 0; each < 3; each++) {
      await send(PLAIN, body);
      types.add(bench.upstream.requests.at(-1)!.headers["content-type"]!);
    }
    expect(types.size).toBe(3);
  });

  test("no header that describes the client's body goes upstream", async () => {
    const body = Bun.gzipSync(Buffer.from(form([text("model", "m"), file()])));
    const answer = await fetch(`${bench.url}/v1/audio/transcriptions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${bench.key}`,
        "content-type": PLAIN,
        "content-encoding": "gzip",
        "content-language": "de",
        "content-disposition": 'form-data; name="model"',
        "content-location": "/x",
        "content-md5": "x",
        "content-range": "bytes 0-1/2",
        digest: "sha-256=x",
      },
      body,
    });
    expect(answer.status).toBe(200);
    const { headers } = bench.upstream.requests.at(-1)!;
    const describing = Object.keys(headers).filter((name) =>
      /^(content-|digest|expect|trailer|transfer-)/.test(name),
    );
    expect(describing.sort()).toEqual(["content-length", "content-type"]);
  });

  test("a large file arrives as it is", async () => {
    const large = Buffer.alloc(5_000_000, "sound");
    const body = Buffer.concat([
      Buffer.from(
        `--A\r\n${text("model", "m")}\r\n--A\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n`,
      ),
      large,
      Buffer.from("\r\n--A--"),
    ]);
    expect((await send(PLAIN, body)).status).toBe(200);
    expect(bench.upstream.requests.at(-1)!.bytes.includes(large)).toBe(true);
  });

  test("through a node's tunnel too", async () => {
    const engine = startUpstream({ models: ["ear"] });
    engine.answer(worker);
    const node = await bench.rpc("agents.register", { machine_name: "n", version: "1" }, bench.token);
    await deployedBefore(bench, node.agent_id, "ear");
    const raw = await dialRaw(bench, node.token);
    serveTunnel(raw, { baseUrl: engine.url, apiKey: null });
    await raw.hello({ models: [{ model_id: "ear", port: 20_000 }] });
    await until("it is routable", async () =>
      (await (await fetch(`${bench.url}/v1/models`)).text()).includes('"ear"'),
    );
    const large = Buffer.alloc(1_000_000, "sound");
    const answer = await send(
      PLAIN,
      Buffer.concat([
        Buffer.from(`--A\r\n${text("model", "ear")}\r\n--A\r\n`),
        Buffer.from('Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n'),
        large,
        Buffer.from("\r\n--A--"),
      ]),
    );
    expect(answer.status).toBe(200);
    const { headers, bytes } = engine.requests.findLast(({ method }) => method === "POST")!;
    expect(headers["content-length"]).toBe(String(bytes.length));
    for (const [reader, readForm] of FORM_READERS)
      expect([reader, readForm(headers["content-type"]!, bytes)]).toEqual([
        reader,
        [
          { name: "model", isFile: false, value: "ear" },
          { name: "file", isFile: true, value: large.toString("latin1") },
        ],
      ]);
    raw.socket.close();
    engine.stop();
  });
});

test("of whatever form is accepted, every server reads the model, the count and the file that were read here", async () => {
  const mostly = (plain: string[], odd: string[]) =>
    fc.oneof(
      { weight: 5, arbitrary: fc.constantFrom(...plain) },
      { weight: 1, arbitrary: fc.constantFrom(...odd) },
    );
  const name = mostly(["model", "file", "n"], ["prompt", "Model", "model[]"]);
  const head = name.chain((name) =>
    mostly(
      [
        `Content-Disposition: form-data; name="${name}"`,
        `Content-Disposition: form-data; name="${name}"; filename="a.mp3"\r\nContent-Type: audio/mpeg`,
        `content-disposition: form-data; name=${name}`,
      ],
      [
        `Content-Disposition:form-data;name="${name}"`,
        `Content-Disposition: form-data; filename="a\\"; name=\\"model"; name="${name}"`,
        `Content-Disposition: form-data; name="${name}"; filename*=utf-8''a%22%3B%20name%3D%22model`,
        `Content-Disposition: form-data; name="${name}"; filename="a\\\\"; name="model"`,
        `Content-Disposition: form-data; name="prompt"; name*=utf-8''${name}`,
        `Content-Disposition: form-data; name="prompt"; name*0=${name}`,
        `Content-Disposition: form-data;\r\n name="${name}"`,
        `Content-Disposition: form-data; name="${name} "`,
        `Content-Disposition: form-data; name="prompt"\r\nContent-Disposition: form-data; name="${name}"`,
        `Content-Transfer-Encoding: base64\r\nContent-Disposition: form-data; name="${name}"`,
        `Content-Type: multipart/mixed; boundary=B\r\nContent-Disposition: form-data; name="${name}"; filename="b"`,
        `Content-Length: 1\r\nContent-Disposition: form-data; name="${name}"`,
      ],
    ),
  );
  const value = mostly(
    ["m", "dear", "1", "10"],
    [
      ...["", "ZGVhcg==", " m ", "x\r\n--A", "x\r\n--A--", "x\n--A\n", "x--A\r\n", "\r\n\r\n--"],
      form([text("model", "dear")], "B"),
      `\r\n--A\r\n${text("model", "dear")}`,
    ],
  );
  const sent = fc.record({
    type: mostly(
      ["A", '"A"'],
      ["A; boundary*0=B", "A; boundary*=utf-8''B", "A; boundary =B", "A; charset=x"],
    ),
    parts: fc.array(fc.tuple(head, value), { minLength: 1, maxLength: 4 }),
    end: mostly(["--A--\r\n", "--A--"], ["--A-- \r\n", "--A--\n", "--A--\r\nmore", "--A\r\n"]),
    lineEnd: mostly(["\r\n"], ["\n"]),
  });
  let accepted = 0;
  const check = fc.asyncProperty(sent, async ({ type, parts, end, lineEnd }) => {
    const body = parts
      .map(([head, value]) => `--A${lineEnd}${head}${lineEnd}${lineEnd}${value}${lineEnd}`)
      .join("");
    let payload: FormPayload;
    try {
      payload = new FormPayload(Buffer.from(body + end), `multipart/form-data; boundary=${type}`);
    } catch (error) {
      if (error instanceof ServiceError) return;
      throw error;
    }
    accepted++;
    const sent = Buffer.from(await payload.compose(new Map()).form!().arrayBuffer());
    for (const [reader, readForm] of FORM_READERS) {
      const fields = readForm(payload.contentType, sent) ?? [];
      const textsOf = (name: string) =>
        fields.flatMap((each) => (each.name === name && !each.isFile ? each.value : []));
      const texts = ["model", "n"].map((name) => (payload.has(name) ? [String(payload.value(name))] : []));
      expect([reader, textsOf("model"), textsOf("n")]).toEqual([reader, ...texts]);
      const files = fields.filter(({ isFile }) => isFile).map(({ name, value }) => [name, value]);
      expect([reader, files]).toEqual([
        reader,
        payload.files.map(({ name, bytes }) => [name, bytes.toString("latin1")]),
      ]);
    }
  });
  await fc.assert(check, { numRuns: 2_000 });
  expect(accepted).toBeGreaterThan(50);
});
