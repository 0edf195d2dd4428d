import { join } from "node:path";
import { Glob } from "bun";

export interface Asset {
  type: string;
  gzip: Uint8Array<ArrayBuffer>;
  /** Its name changes with its content, so that it may be cached forever. */
  immutable: boolean;
}
export type Assets = ReadonlyMap<string, Asset>;

const ROOT = join(import.meta.dir, "../../../../..");
const CONSOLE_SOURCE = join(ROOT, "packages/console/src");
export const INDEX_PATH = "/index.html";

const asset = (content: Uint8Array<ArrayBuffer> | string, type: string, immutable: boolean): Asset => ({
  type,
  immutable,
  gzip: Bun.gzipSync(typeof content === "string" ? new TextEncoder().encode(content) : content, { level: 9 }),
});

/** Bundles the console from its source, which takes a few tens of milliseconds. */
async function bundle(): Promise<Map<string, Asset>> {
  const built = await Bun.build({
    entrypoints: [join(CONSOLE_SOURCE, "index.html"), join(CONSOLE_SOURCE, "voice-worklet.ts")],
    target: "browser",
    minify: true,
    splitting: true,
    publicPath: "/assets/",
    define: { "process.env.NODE_ENV": '"production"' },
    naming: { entry: "[name].[ext]", chunk: "[name]-[hash].[ext]", asset: "[name]-[hash].[ext]" },
  });
  const files = new Map<string, Asset>();
  for (const output of built.outputs) {
    const name = output.path.replace(/^\.\//, "");
    const content = new Uint8Array(await output.arrayBuffer());
    const hashed = /-[a-z0-9]{8}\.\w+$/.test(name);
    const path = name === "index.html" ? INDEX_PATH : `/assets/${name}`;
    files.set(path, asset(content, output.type, hashed));
  }
  return files;
}

/** The documentation as Markdown under `/docs/`, and its table of contents for machines. */
async function documents(): Promise<Map<string, Asset>> {
  const files = new Map<string, Asset>();
  const texts: { path: string; title: string; text: string }[] = [];
  for await (const path of new Glob("docs/**/*.md").scan(ROOT)) {
    const text = await Bun.file(join(ROOT, path)).text();
    const title = /^# (.+)$/m.exec(text)?.[1] ?? path;
    files.set(`/${path}`, asset(text, "text/markdown; charset=utf-8", false));
    texts.push({ path: path.replace(/^docs\/|\.md$/g, ""), title, text });
  }
  for await (const path of new Glob("docs/images/*.{svg,png}").scan(ROOT)) {
    const file = Bun.file(join(ROOT, path));
    files.set(`/${path}`, asset(await file.bytes(), file.type, false));
  }
  files.set("/docs/search.json", asset(JSON.stringify(texts), "application/json", false));
  const index = texts
    .map(({ path, title }) => ({ path: `/docs/${path}.md`, title }))
    .sort((a, b) => a.path.localeCompare(b.path))
    .map(({ path, title }) => `- [${title}](${path})`);
  const intro =
    "# Model gateway\n\n> A self-hosted gateway in front of model servers: one address, keys, groups, metering and quotas.";
  const machines =
    "## For machines\n\n- [OpenRPC](/api/openrpc.json)\n- [OpenAPI](/api/openapi.json)\n- [Models](/v1/models)";
  const contents = `${intro}\n\n## Documentation\n\n${index.join("\n")}\n\n${machines}\n`;
  files.set("/llms.txt", asset(contents, "text/plain; charset=utf-8", false));
  return files;
}

declare const CONSOLE_ASSETS: string | undefined;
type Packed = Record<string, { type: string; immutable: boolean; gzipBase64: string }>;

export async function packAssets(): Promise<string> {
  const packed: Packed = {};
  for (const [path, { type, immutable, gzip }] of await fromSource())
    packed[path] = { type, immutable, gzipBase64: Buffer.from(gzip).toString("base64") };
  return JSON.stringify(packed);
}

async function fromSource(): Promise<Assets> {
  return new Map([...(await bundle()), ...(await documents())]);
}

export async function loadAssets(basePath: string): Promise<Assets> {
  const assets = await unprefixed();
  return basePath === ""
    ? assets
    : new Map(Array.from(assets, ([path, each]) => [path, below(basePath, path, each)]));
}

/** The file with the base path in its links, and in a meta element for the console. */
function below(basePath: string, path: string, file: Asset): Asset {
  const isList = path === "/llms.txt";
  if (!isList && path !== INDEX_PATH && !/^\/assets\/.*\.(js|css)$/.test(path)) return file;
  const text = new TextDecoder().decode(Bun.gunzipSync(file.gzip));
  const linked = isList
    ? text.replaceAll("](/", `](${basePath}/`)
    : text.replaceAll("/assets/", `${basePath}/assets/`);
  const meta = `<meta name="base-path" content="${Bun.escapeHTML(basePath)}"></head>`;
  return asset(
    path === INDEX_PATH ? linked.replace("</head>", () => meta) : linked,
    file.type,
    file.immutable,
  );
}

async function unprefixed(): Promise<Assets> {
  if (typeof CONSOLE_ASSETS !== "string") return fromSource();
  const packed = JSON.parse(CONSOLE_ASSETS) as Packed;
  return new Map(
    Object.entries(packed).map(([path, { type, immutable, gzipBase64 }]) => [
      path,
      { type, immutable, gzip: Uint8Array.from(Buffer.from(gzipBase64, "base64")) },
    ]),
  );
}
