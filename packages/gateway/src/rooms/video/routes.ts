import { Reply } from "@model-gateway/wire/http";
import { fail } from "../../kernel/errors.ts";
import { decodeUtf8, parseJson } from "../../kernel/json.ts";
import { GivenId } from "../../kernel/method.ts";
import { defineRoute } from "../../kernel/route.ts";
import { validate } from "../../kernel/validate.ts";
import { modelAllowed } from "../groups/index.ts";
import { payerOf } from "../keys/index.ts";
import { Job, VideoTask } from "./schemas.ts";

const BODY_BYTES_MAX = 32 * 1024 * 1024;
const Submitted = Job.pick({ id: true, object: true, model: true, status: true, created_at: true });

export const submit = defineRoute({
  method: "POST",
  path: "/v1/video/generations",
  summary: "Submit a video task",
  auth: "api_key",
  body: VideoTask,
  response: Submitted,
  handler: async ({ rooms, request, requestId }) => {
    const principal = await rooms.inference.principal(request, requestId);
    if (principal instanceof Reply) return principal;
    const payer = payerOf(principal);
    await rooms.metering.checkRate(payer);
    const task = validate(
      VideoTask,
      parseJson(decodeUtf8(await request.body(BODY_BYTES_MAX))),
      "missing_fields",
    );
    const model = rooms.routing.aliases.resolve(task.model);
    if (!modelAllowed(principal.group, model)) {
      fail("model_not_allowed", `This key's group does not allow the model ${model}; ask a group admin`);
    }
    const { job } = await rooms.video.create(payer, task);
    const { id, object, status, created_at } = job;
    return { id, object, model: job.model, status, created_at };
  },
});

export const poll = defineRoute({
  method: "GET",
  path: "/v1/video/generations/{id}",
  summary: "Poll a video task; also followed live at /api/rpc/events?session=<id>",
  auth: "api_key",
  response: Job,
  handler: async ({ rooms, request, requestId, path }) => {
    const principal = await rooms.inference.principal(request, requestId);
    if (principal instanceof Reply) return principal;
    const id = GivenId.safeParse(path.id);
    if (!id.success) fail("bad_id", "The job id must be a UUID, as the submission returned it");
    return rooms.video.get(principal.userId, id.data);
  },
});
