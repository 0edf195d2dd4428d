import type { Client } from "@model-gateway/client";
import { type Command, type Invocation, text } from "../command.ts";
import { findGroup } from "./groups.ts";
import { findUser } from "./users.ts";

/** Options that narrow usage and requests down. */
export const NARROWING = {
  model: { type: "string", short: "m", help: "only this model's" },
  backend: { type: "string", help: "only what this backend served" },
  project: { type: "string", help: "only what this project's keys did" },
  ref: { type: "string", help: "only what is tagged with this reference" },
  group: { type: "string", help: "only what was done with the keys of this group" },
  user: { type: "string", help: "only those of the account with this email or id: for administrators" },
} satisfies Command["options"];

export async function narrowed(client: Client, options: Invocation["options"]) {
  const [model, backend, project] = [
    text(options, "model"),
    text(options, "backend"),
    text(options, "project"),
  ];
  const [ref, group, user] = [text(options, "ref"), text(options, "group"), text(options, "user")];
  return {
    ...(model && { model }),
    ...(backend && { backend }),
    ...(project && { project }),
    ...(ref && { ref_id: ref }),
    ...(group && { group_id: (await findGroup(client, group)).id }),
    ...(user && { everyone: true, user_id: (await findUser(client, user)).id }),
  };
}
