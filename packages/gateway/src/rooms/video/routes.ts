import { z } from "zod";
import { fail } from "../../kernel/errors.ts";
import { GivenId } from "../../kernel/method.ts";
import { BODY_BYTES_MAX, defineRoute, raw } from "../../kernel/route.ts";
import { modelRefusal, ownerOf, payerOf } from "../keys/index.ts";
import { Job, VideoTask } from "./schemas.ts";

const Submitted = Job.pick({ id: true, object: true, model: true, status: true, created_at: true });

export const submit = defineRoute({
  method: "POST",
  path: "/v1/video/generations",
  summary: "Submit a video task",
  auth: "api_key",
  recorded: true,
  body: VideoTask,
  bodyBytesMax: BODY_BYTES_MAX,
  response: Submitted,
  handler: async ({ rooms, principal, body, record }) => {
    const refusal = modelRefusal(principal, rooms.routing.aliases.resolve(body.model));
    if (refusal !== null) fail("model_not_allowed", refusal);
    const { job } = await rooms.video.create(payerOf(principal), body, { record });
    return job;
  },
});

export const poll = defineRoute({
  method: "GET",
  path: "/v1/video/generations/{id}",
  summary: "Poll a video task; also followed live at /api/rpc/events?session=<id>",
  auth: "api_key",
  outsideTierRate: true,
  response: Job,
  handler: ({ rooms, principal, path }) =>
    rooms.video.get(principal.userId, jobIdIn(path), ownerOf(principal).keyId),
});

const Clip = raw(z.string(), { type: "video/mp4" });

export const content = defineRoute({
  method: "GET",
  path: "/v1/video/generations/{id}/content",
  summary: "The clip of a video task that was made on own GPUs",
  auth: "api_key",
  outsideTierRate: true,
  response: Clip,
  handler: (call) => call.rooms.video.content(ownerOf(call.principal), jobIdIn(call.path), call),
});

export const clip = defineRoute({
  method: "GET",
  path: "/api/video/{id}/content",
  summary: "The same, for signed-in people",
  auth: "jwt",
  response: Clip,
  handler: (call) => call.rooms.video.content(call.actor, jobIdIn(call.path), call),
});

function jobIdIn(path: { id: string }): string {
  const id = GivenId.safeParse(path.id);
  return id.success ? id.data : fail("bad_id", "The job id must be a UUID, as the submission returned it");
}
