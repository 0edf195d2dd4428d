import { afterEach, expect, test } from "bun:test";
import { type RealtimeUpstream, startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import { createCloudRealtime, realtimeUrl } from "../../src/backends/cloud-realtime/index.ts";
import { BackendError } from "../../src/backends/contract.ts";

const upstreams: RealtimeUpstream[] = [];
afterEach(() => {
  for (const upstream of upstreams.splice(0)) upstream.stop();
});

async function connect(dialect: "openai" | "dashscope", config: Record<string, unknown> = {}) {
  const upstream = startRealtimeUpstream(dialect);
  upstreams.push(upstream);
  const backend = createCloudRealtime(
    {
      name: "rt",
      kind: "cloud-realtime",
      type: "cloud-realtime",
      url: upstream.url,
      apiKey: "sk-1",
      models: ["voice"],
    },
    { fetch },
  );
  const events: Record<string, unknown>[] = [];
  const closes: string[] = [];
  const link = await backend.realtime!.open(
    {
      sessionId: "s",
      model: "voice",
      config,
      onEvent: (event) => events.push(event),
      onClose: (reason) => closes.push(reason),
    },
    new AbortController().signal,
  );
  return { upstream, backend, events, closes, link };
}

test("addresses", () => {
  expect(realtimeUrl("https://api.openai.com", "m")).toBe("wss://api.openai.com/v1/realtime?model=m");
  expect(realtimeUrl("https://api.openai.com/v1/", "m")).toBe("wss://api.openai.com/v1/realtime?model=m");
  expect(realtimeUrl("wss://api.openai.com/v1/realtime", "m")).toBe(
    "wss://api.openai.com/v1/realtime?model=m",
  );
  expect(realtimeUrl("https://proxy.example/openai", "m/1")).toBe(
    "wss://proxy.example/openai/v1/realtime?model=m%2F1",
  );
  expect(realtimeUrl("https://dashscope-intl.aliyuncs.com", "q")).toBe(
    "wss://dashscope-intl.aliyuncs.com/api-ws/v1/realtime?model=q",
  );
});

for (const dialect of ["openai", "dashscope"] as const) {
  test(`${dialect}: session, audio both ways untouched, response, end`, async () => {
    const { upstream, link, events, closes } = await connect(dialect, { instructions: "be brief" });
    const audio = btoa("some pcm bytes");
    expect(link.send({ type: "input_audio_buffer.append", audio })).toBe(true);
    expect(link.send({ type: "input_image_buffer.append", image: "/9j/" })).toBe(true);
    expect(link.send({ type: "response.create" })).toBe(true);
    await until("the response is done", () => events.some(({ type }) => type === "response.done"));
    expect(upstream.authorizations).toEqual(["Bearer sk-1"]);
    expect(upstream.models).toEqual(["voice"]);
    const [session, appended, image] = upstream.received;
    expect(session).toEqual({
      type: "session.update",
      session:
        dialect === "openai" ? { type: "realtime", instructions: "be brief" } : { instructions: "be brief" },
    });
    expect(appended).toEqual({ type: "input_audio_buffer.append", audio });
    expect(image?.type).toBe(dialect === "openai" ? "conversation.item.create" : "input_image_buffer.append");
    expect(events.find(({ delta }) => delta)?.delta).toBe("AAAA");
    upstream.closeAll(1000, "time is up");
    await until("the session is closed", () => closes.length > 0);
    expect(closes).toEqual(["time is up"]);
    expect(link.send({ type: "response.create" })).toBe(false);
    link.close();
    expect(closes).toHaveLength(1);
  });
}

test("a search of the vendor's, which costs by the call, is no setting unless the operator says so", async () => {
  const { backend, upstream } = await connect("dashscope");
  expect(backend.realtime!.known).not.toContain("enable_search");
  const config = { ...backend.config, url: upstream.url, fields: ["enable_search"] };
  expect(createCloudRealtime(config, { fetch }).realtime!.known).toContain("enable_search");
});

test("rubbish ends the session, once, with a reason", async () => {
  const { upstream, closes } = await connect("openai");
  upstream.sendRaw("this is not json");
  await until("the session is closed", () => closes.length > 0);
  upstream.closeAll();
  expect(closes).toEqual(["the upstream sent something that is not a realtime event"]);
});

test("an upstream that is not there is a connection failure", async () => {
  const gone = startRealtimeUpstream("openai");
  gone.stop();
  const backend = createCloudRealtime(
    { name: "rt", kind: "cloud-realtime", type: "cloud-realtime", url: gone.url, apiKey: null, models: [] },
    { fetch },
  );
  const opening = backend.realtime!.open(
    { sessionId: "s", model: "m", config: {}, onEvent() {}, onClose() {} },
    new AbortController().signal,
  );
  const error = await opening.then(
    () => null,
    (reason) => reason,
  );
  expect(error).toBeInstanceOf(BackendError);
  expect(error.kind).toBe("connect");
  expect((await backend.probe(new AbortController().signal)).state).toBe("Unhealthy");
});
