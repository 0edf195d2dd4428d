import type { BackendSettings, JsonBody } from "../contract.ts";

type Fields = Record<string, unknown>;

/** The operator's changes to the fields of a request; null without any. */
export function fieldChange({
  set,
  drop,
  id_prefix: prefix,
}: BackendSettings): ((fields: Fields) => Fields) | null {
  if (!set && !drop?.length && !prefix) return null;
  return (fields) => {
    const sent: Fields = { ...fields, ...set };
    for (const name of drop ?? []) delete sent[name];
    if (prefix && typeof sent.model === "string" && !sent.model.startsWith(prefix))
      sent.model = prefix + sent.model;
    return sent;
  };
}

/** A body as it is sent: the same bytes where nothing is changed. */
export function sentBody(settings: BackendSettings): (body: JsonBody) => JsonBody {
  const change = fieldChange(settings);
  if (!change) return (body) => body;
  return (body) =>
    body.form
      ? body
      : { bytes: () => JSON.stringify(change(body.object())), object: () => change(body.object()) };
}
