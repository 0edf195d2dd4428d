import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { ADMIN_TOKEN } from "@model-gateway/testing/gateway.ts";
import { type RealtimeUpstream, startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";
import { until } from "@model-gateway/testing/until.ts";
import { FILM, minimax, startMinimax, type VideoUpstream } from "@model-gateway/testing/video.ts";
import type { Page } from "playwright-core";
import { axeFindings, openSite, type Site, shot } from "./support/site.ts";

let site: Site;
let films: VideoUpstream;
let voices: RealtimeUpstream;
beforeAll(async () => {
  site = await openSite();
  films = startMinimax();
  films.downloadUrl = null;
  voices = startRealtimeUpstream("openai", { echoAudio: true });
  await site.withBackend();
  await site.addBackend({
    name: "hailuo",
    type: "minimax",
    url: films.url,
    api_key: "sk",
    models: ["film-1"],
  });
  await site.addBackend({
    name: "voice",
    type: "cloud-realtime",
    url: voices.url,
    api_key: "sk",
    models: ["voice-1"],
  });
  await site.gateway.rpc(
    "billing.video.pricing.set",
    { model: "film-1", price_per_second: 0.04 },
    ADMIN_TOKEN,
  );
}, 60_000);
afterEach(() => site.closeVisits());
afterAll(async () => {
  await site.stop();
  films.stop();
  voices.stop();
});

async function order(page: Page, prompt: string): Promise<void> {
  await page.getByRole("button", { name: "New video" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Model").fill("film-1");
  await dialog.getByLabel("Prompt").fill(prompt);
  await dialog.getByRole("button", { name: "Start" }).click();
  await dialog.waitFor({ state: "detached" });
}

test("a video is ordered, followed live, and there with its cost and its film", async () => {
  const { page, complaints } = await site.signedInAs("director");
  let finished = false;
  films.script = [() => (finished ? minimax.success() : minimax.status("Processing")())];
  await page.goto(`${site.gateway.url}/video`);
  await order(page, "a fox in the snow");
  const card = page.getByRole("listitem").filter({ hasText: "a fox in the snow" });
  await card.getByText("running").waitFor();
  await shot(page, "video-running");
  finished = true;
  // Nobody reloads: the notification alone brings the page up to date.
  await card.getByText("done").waitFor();
  await card.getByText("$0.20").waitFor();
  const href = (await card.getByRole("link").getAttribute("href")) ?? "";
  expect(Buffer.from(await (await fetch(href)).arrayBuffer()).equals(FILM)).toBe(true);
  await shot(page, "video-done");
  expect(await axeFindings(page)).toEqual([]);
  expect(complaints).toEqual([]);
}, 60_000);

test("a video is cancelled; another fails and says why, and neither is charged", async () => {
  const { page } = await site.signedInAs("director");
  films.script = [minimax.status("Processing")];
  await page.goto(`${site.gateway.url}/video`);
  await order(page, "a river at dusk");
  const river = page.getByRole("listitem").filter({ hasText: "a river at dusk" });
  await river.getByText("running").waitFor();
  await river.getByRole("button", { name: "Cancel" }).click();
  await river.getByText("cancelled").waitFor();

  films.script = [
    minimax.status("Fail", { base_resp: { status_code: 0, status_msg: "the prompt is unclear" } }),
  ];
  await order(page, "something");
  const failed = page.getByRole("listitem").filter({ hasText: "something" });
  await failed.getByText("the prompt is unclear").waitFor();
  await failed.getByText("not charged").waitFor();
  await shot(page, "video-failed");

  await page.getByRole("button", { name: "New video" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Model").fill("demo-chat");
  await dialog.getByLabel("Prompt").fill("x");
  await dialog.getByRole("button", { name: "Start" }).click();
  await dialog.getByRole("alert").filter({ hasText: "demo-chat" }).waitFor();
  await shot(page, "video-refused");
}, 60_000);

test("voice: the microphone moves the meter and reaches the model, its words and voice come back, hanging up ends it", async () => {
  const { page, complaints } = await site.signedInAs("caller");
  await page.goto(`${site.gateway.url}/voice`);
  await page.getByLabel("Model", { exact: true }).fill("voice-1");
  await page.getByRole("button", { name: "Start talking" }).click();
  await page.getByText("Live", { exact: true }).or(page.getByRole("alert")).first().waitFor();
  expect(await page.getByRole("alert").allTextContents()).toEqual([]);
  const meter = page.getByRole("meter", { name: "Microphone level" });
  await until("the level", async () => Number(await meter.getAttribute("aria-valuenow")) > 5);
  await until("audio at the model", () =>
    voices.received.some(
      ({ type, audio }) => type === "input_audio_buffer.append" && String(audio).length > 1000,
    ),
  );
  voices.emit({
    type: "conversation.item.input_audio_transcription.completed",
    item_id: "u1",
    transcript: "What is the weather?",
  });
  voices.emit({ type: "response.output_audio_transcript.delta", item_id: "a1", delta: "It is " });
  voices.emit({ type: "response.output_audio_transcript.delta", item_id: "a1", delta: "sunny." });
  voices.emit({ type: "response.output_audio_transcript.done", item_id: "a1", transcript: "It is sunny." });
  await page.getByText("What is the weather?").waitFor();
  await page.getByText("It is sunny.").waitFor();
  // The upstream sends the microphone's own sound back as its voice.
  await page.getByText(/[1-9]\d* ms? of its voice played|[\d.]+ s of its voice played/).waitFor();
  await shot(page, "voice-live");
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole("button", { name: "Hang up" }).click();
  await page.getByRole("button", { name: "Start talking" }).waitFor();
  await until("the session's end", () => voices.sessions() === 0);
  await page.getByText("It is sunny.").waitFor();
  expect(complaints).toEqual([]);
}, 60_000);

test("voice: a model that cannot, a model that is not, and an upstream that hangs up are told apart", async () => {
  const { page } = await site.signedInAs("caller");
  await page.goto(`${site.gateway.url}/voice`);
  // The page has what it needs.
  await page.locator("#voice-models option").first().waitFor({ state: "attached" });
  const start = async (model: string) => {
    await page.getByLabel("Model", { exact: true }).fill(model);
    await page.getByRole("button", { name: "Start talking" }).click();
  };
  await start("demo-chat");
  await page.getByText("does not support realtime sessions").waitFor();
  await shot(page, "voice-refused");
  await start("no-such-model");
  await page.getByText("no-such-model").last().waitFor();
  await page.getByRole("button", { name: "Start talking" }).waitFor();

  await start("voice-1");
  await page.getByText("Live", { exact: true }).waitFor();
  voices.closeAll(1011, "the engine restarts");
  await page.getByText("The session has ended").waitFor();
  await page.getByRole("button", { name: "Start talking" }).waitFor();
  await shot(page, "voice-ended");
}, 60_000);
