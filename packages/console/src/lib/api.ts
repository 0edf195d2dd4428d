import type { Client } from "@model-gateway/client";
import { client } from "./client.ts";

/** One call of the management plane, as the signed-in person. */
export const api: Client["call"] = (method, ...rest) => client.call(method, ...rest);
