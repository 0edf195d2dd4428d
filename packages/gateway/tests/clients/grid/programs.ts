/** Coding agents, as programs of their own. `npm run clients -- install` gets them; the versions are in its script. */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { folder, PROGRAMS } from "../../../../../scripts/clients.ts";
import { type Client, type Door, IMAGE_DATA } from "./client.ts";

type Package = keyof typeof PROGRAMS;

interface Program {
  name: string;
  /** Of its recorded requests. */
  id: string;
  package: Package;
  command: string;
  surface: string;
  differs?: Client["differs"];
  /** `image`: the name of a file beside it that goes along. */
  args(door: Door, prompt: string, image?: string): string[];
  env?(door: Door): Record<string, string>;
  /** Its settings, by their place below the home folder. */
  files?(door: Door): Record<string, string>;
}

const PROVIDER = "gateway";
const IMAGE_FILE = "picture.png";

const programs: readonly Program[] = [
  {
    name: "Codex",
    id: "codex",
    package: "@openai/codex",
    command: "codex",
    surface: "/v1/responses",
    differs: { "wrong key": { requests: 6, because: "it repeats every 401" } },
    args: (_, prompt, image) => [
      "exec",
      "--skip-git-repo-check",
      "--dangerously-bypass-approvals-and-sandbox",
      prompt,
      ...(image ? ["--image", image] : []),
    ],
    env: ({ key }) => ({ GATEWAY_KEY: key }),
    files: ({ url, model }) => ({
      ".codex/config.toml": [
        `model_provider = "${PROVIDER}"`,
        `model = "${model}"`,
        `[model_providers.${PROVIDER}]`,
        `name = "${PROVIDER}"`,
        `base_url = "${url}/v1"`,
        'env_key = "GATEWAY_KEY"',
        'wire_api = "responses"',
      ].join("\n"),
    }),
  },
  {
    name: "Claude Code",
    id: "claude-code",
    package: "@anthropic-ai/claude-code",
    command: "claude",
    surface: "/v1/messages",
    differs: {
      "unknown model": {
        requests: 2,
        says: /issue with the selected model \(nobody\)/,
        because: "it asks again, and says it in its own words",
      },
    },
    args: ({ model }, prompt, image) => [
      ...["--print", "--model", model, "--allowedTools", "Bash,Read", "--"],
      image ? `${prompt} @${image}` : prompt,
    ],
    env: ({ url, key }) => ({
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_AUTH_TOKEN: key,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    }),
  },
  {
    name: "Gemini CLI",
    id: "gemini-cli",
    package: "@google/gemini-cli",
    command: "gemini",
    surface: "/v1beta/models/{call}",
    args: ({ model }, prompt, image) => [
      ...["--yolo", "--skip-trust", "--model", model, "--prompt"],
      image ? `${prompt} @${image}` : prompt,
    ],
    env: ({ url, key }) => ({ GOOGLE_GEMINI_BASE_URL: url, GEMINI_API_KEY: key }),
    files: () => ({
      ".gemini/settings.json": JSON.stringify({
        security: { auth: { selectedType: "gemini-api-key" } },
        privacy: { usageStatisticsEnabled: false },
        telemetry: { enabled: false },
      }),
    }),
  },
  {
    name: "OpenCode",
    id: "opencode",
    package: "opencode-ai",
    command: "opencode",
    surface: "/v1/chat/completions",
    differs: { overflow: { requests: 2, because: "it asks for a summary first" } },
    args: ({ model }, prompt, image) => [
      ...["run", "--title", "grid", "--model", `${PROVIDER}/${model}`, prompt],
      ...(image ? ["--file", image] : []),
    ],
    env: () => ({ OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_AUTOUPDATE: "1" }),
    files: ({ url, key, model }) => ({
      ".config/opencode/opencode.json": JSON.stringify({
        provider: {
          [PROVIDER]: {
            npm: "@ai-sdk/openai-compatible",
            options: { baseURL: `${url}/v1`, apiKey: key },
            models: {
              [model]: { attachment: true, modalities: { input: ["text", "image"], output: ["text"] } },
            },
          },
        },
      }),
    }),
  },
];

interface Run {
  door: Door;
  prompt: string;
  image?: boolean;
  started?: (child: ChildProcess) => void;
}

/** A run in a home folder of its own, which is gone afterwards. */
async function run(
  program: Program,
  { door, prompt, image, started }: Run,
): Promise<{ code: number | null; out: string }> {
  const home = mkdtempSync(join(tmpdir(), "grid-client-"));
  try {
    for (const [name, text] of Object.entries(program.files?.(door) ?? {})) {
      mkdirSync(dirname(join(home, name)), { recursive: true });
      writeFileSync(join(home, name), text);
    }
    if (image) writeFileSync(join(home, IMAGE_FILE), Buffer.from(IMAGE_DATA, "base64"));
    const args = program.args(door, prompt, image ? IMAGE_FILE : undefined);
    const child = spawn(join(folder, "node_modules/.bin", program.command), args, {
      cwd: home,
      env: { PATH: process.env.PATH, HOME: home, ...program.env?.(door) },
      stdio: ["ignore", "pipe", "pipe"],
      // Some run themselves again as a child, which has to go with them.
      detached: true,
    });
    started?.(child);
    let out = "";
    for (const stream of [child.stdout!, child.stderr!]) stream.on("data", (bytes) => (out += bytes));
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", resolve);
    });
    return { code, out };
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

function client(program: Program): Client {
  const ask = async (door: Door, prompt: string, image = false) => {
    const { code, out } = await run(program, { door, prompt, image });
    if (code !== 0) throw new Error(out);
    return out;
  };
  return {
    name: program.name,
    version: `${program.package} ${PROGRAMS[program.package]}`,
    surface: program.surface,
    lacks: { whole: "always streams" },
    ...(program.differs && { differs: program.differs }),
    ask: (door, { prompt, image }) => ask(door, prompt, image),
    useTool: ask,
    async leave(door, prompt, begun) {
      let child: ChildProcess | null = null;
      const running = run(program, {
        door,
        prompt,
        started: (started) => {
          child = started;
        },
      });
      try {
        await begun();
      } finally {
        if (child) process.kill(-(child as ChildProcess).pid!, "SIGINT");
        await running;
      }
    },
  };
}

/** They take seconds to start. */
export const PROGRAM_TIMEOUT_MS = 180_000;
export const programClients = programs.map((program) => ({ ...client(program), id: program.id }));
export const hasPrograms = existsSync(join(folder, "node_modules"));
