import type { Methods } from "@model-gateway/client";
import { client } from "./client.ts";
import type { Planned } from "./planned.ts";

type Name = keyof Methods | keyof Planned;
type ResultOf<M extends Name> = M extends keyof Methods
  ? Methods[M]["result"]
  : M extends keyof Planned
    ? Planned[M]
    : never;

/** One call of the management plane, as the signed-in person. */
export const api = <M extends Name>(method: M, params?: Record<string, unknown>): Promise<ResultOf<M>> =>
  client.callUnknown(method, params) as Promise<ResultOf<M>>;
