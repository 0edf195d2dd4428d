import { OPENAI_VOICE_SETTINGS, VOICE_SETTINGS } from "../../kernel/known-fields.ts";
import type { MediaRates } from "../contract.ts";

type Event = Record<string, unknown>;

/** How one vendor's realtime WebSocket differs from the client events of the contract. Pure. */
interface RealtimeDialect {
  name: string;
  /** Appended to the base URL unless that already names a path of its own. */
  path: string;
  rates: MediaRates;
  /** Settings that a session or a response may have. */
  known: readonly string[];
  /** The `session` object of the first session.update, from the caller's config. */
  session(config: Event): Event;
  /** What is sent upstream for one client event. */
  event(event: Event): Event;
}

const DASHSCOPE_SETTINGS = [
  ...["smooth_output", "top_p", "top_k", "max_tokens", "repetition_penalty", "presence_penalty", "seed"],
];

const openaiRealtime: RealtimeDialect = {
  name: "openai",
  path: "/v1/realtime",
  // A token is 100 ms of input audio or 50 ms of output audio; an image has at most 8 tiles.
  rates: {
    inputAudioHz: 24_000,
    outputAudioHz: 24_000,
    inputAudioTokensPerSecond: 10,
    outputAudioTokensPerSecond: 20,
    audioSecondsMin: 0,
    tokensPerImage: 85 + 8 * 170,
  },
  known: [...VOICE_SETTINGS, ...OPENAI_VOICE_SETTINGS],
  session: (config) => ({ type: "realtime", ...config }),
  event(event) {
    if (event.type === "session.update" && typeof event.session === "object" && event.session !== null) {
      return { ...event, session: { type: "realtime", ...event.session } };
    }
    if (event.type !== "input_image_buffer.append") return event;
    // There is no image buffer here: an image is an item of the conversation.
    const image = String(event.image ?? "");
    const url = image.startsWith("data:") ? image : `data:image/jpeg;base64,${image}`;
    return {
      type: "conversation.item.create",
      item: { type: "message", role: "user", content: [{ type: "input_image", image_url: url }] },
    };
  },
};

const dashscopeRealtime: RealtimeDialect = {
  name: "dashscope",
  path: "/api-ws/v1/realtime",
  // Rates of Qwen-Omni-Turbo; later models count half of this or less.
  rates: {
    inputAudioHz: 16_000,
    outputAudioHz: 24_000,
    inputAudioTokensPerSecond: 25,
    outputAudioTokensPerSecond: 25,
    audioSecondsMin: 1,
    tokensPerImage: 1_282,
  },
  known: [...VOICE_SETTINGS, ...DASHSCOPE_SETTINGS],
  session: (config) => config,
  event: (event) => event,
};

export const KNOWN_SETTINGS = Object.fromEntries(
  [openaiRealtime, dashscopeRealtime].map(({ name, known }) => [`${name}, voice`, known]),
);

export function chooseRealtimeDialect(url: string): RealtimeDialect {
  const { hostname, pathname } = new URL(url);
  return /(^|\.)aliyuncs\.com$/.test(hostname) || pathname.startsWith(dashscopeRealtime.path)
    ? dashscopeRealtime
    : openaiRealtime;
}

/** The address of a session of `model`: https becomes wss, and a bare host gets the dialect's path. */
export function realtimeUrl(base: string, model: string): string {
  const dialect = chooseRealtimeDialect(base);
  const url = new URL(base.replace(/^http/, "ws"));
  if (!url.pathname.endsWith(dialect.path)) {
    const stem = url.pathname.replace(/\/+$/, "");
    // A base that ends in /v1, as REST clients write it, must not become /v1/v1.
    url.pathname = dialect.path.startsWith(`${stem}/`) ? dialect.path : stem + dialect.path;
  }
  url.searchParams.set("model", model);
  return url.href;
}
